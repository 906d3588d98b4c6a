#include "generate_jobs.h"

#include <fmt/chrono.h>

#include <ctime>
#include <fstream>
#include <sstream>

#include "core/fail.h"
#include "files/decoded_image.h"
#include "files/npy.h"
#include "files/numbers.h"
#include "files/output_file.h"
#include "files/picture_file.h"
#include "files/text.h"
#include "options/field.h"
#include "qwen_image/image_file.h"

namespace qwen_image::cli {
namespace {

// The whole file, which may also be a pipe such as /dev/stdin.
std::string ReadPromptsFile(const std::filesystem::path& path) {
  constexpr size_t kMaxBytes = 64 << 20;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::vector<char> block(1 << 16);
  while (file && text.size() <= kMaxBytes) {
    file.read(block.data(), static_cast<std::streamsize>(block.size()));
    text.append(block.data(), static_cast<size_t>(file.gcount()));
  }
  if (text.size() > kMaxBytes)
    Fail(ErrorKind::kBadInput, "{} is too large for a list of prompts", path.string());
  if (!file.eof()) Fail(ErrorKind::kBadInput, "cannot read {}", path.string());
  constexpr std::string_view kByteOrderMark = "\uFEFF";
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  return text;
}

std::vector<std::string> ReadPrompts(const GenerateOptions& o) {
  if (o.prompts_file.empty()) {
    if (!o.Given("prompt"))
      Fail(ErrorKind::kUsage, "nothing to draw: give a prompt, --prompts FILE or --from PICTURE");
    return {o.request.prompt};
  }
  if (o.Given("prompt")) Fail(ErrorKind::kUsage, "give either a prompt or --prompts FILE, not both");
  std::istringstream lines(ReadPromptsFile(o.prompts_file));
  std::vector<std::string> prompts;
  std::string line;
  for (int64_t number = 1; std::getline(lines, line); ++number) {
    if (line.ends_with('\r')) line.pop_back();
    if (!IsUtf8(line))
      Fail(ErrorKind::kBadInput, "{}, line {}: not valid UTF-8", o.prompts_file.string(), number);
    if (line.find_first_not_of(" \t") != line.npos) prompts.push_back(line);
  }
  if (prompts.empty()) Fail(ErrorKind::kBadInput, "{} holds no prompt", o.prompts_file.string());
  return prompts;
}

std::filesystem::path DefaultOutput() {
  const std::time_t now = std::time(nullptr);
  const std::string stem = fmt::format("picture-{:%Y%m%d-%H%M%S}", fmt::localtime(now));
  std::string name = stem + ".png";
  std::error_code error;
  for (int i = 2; std::filesystem::exists(name, error); ++i) name = fmt::format("{}-{}.png", stem, i);
  return name;
}

// Checked before anything is computed, so that a user does not learn after an hour that there is no such
// format.
std::filesystem::path CheckedOutput(const GenerateOptions& o) {
  const std::filesystem::path output = o.output.empty() ? DefaultOutput() : o.output;
  const std::optional<PictureFormat> format = FormatOfFile(output);
  if (!format)
    Fail(ErrorKind::kUsage,
         "{}: pictures are written as PNG, JPEG or WebP; choose a name that ends in .png, .jpg or .webp",
         output.string());
  if (*format == PictureFormat::kPng && o.output_compression)
    Fail(ErrorKind::kUsage, "--output-compression is for JPEG and WebP pictures; PNG keeps every pixel");
  return output;
}

// The pictures first, first + step, …: of each part of the list every machine gets about as many.
struct Share {
  size_t first = 0;
  size_t step = 1;
};

Share ShareOf(const GenerateOptions& o) {
  if (o.shard.empty()) return {};
  const size_t slash = o.shard.find('/');
  const std::optional<uint64_t> number = ParseWhole(o.shard.substr(0, slash));
  const std::optional<uint64_t> total = ParseWhole(slash == o.shard.npos ? "" : o.shard.substr(slash + 1));
  if (!number || !total || *number < 1 || *number > *total || *total > kMaxPictures)
    Fail(ErrorKind::kUsage, "--shard: {} is not I/N with I from 1 to N, such as 2/8", Quoted(o.shard));
  // Its pictures must have the same names and noise whichever machine draws them, today or in a second run.
  if (o.output.empty())
    Fail(ErrorKind::kUsage,
         "--shard: name the pictures with -o; names made of the time differ between machines");
  if (o.random_seed)
    Fail(ErrorKind::kUsage,
         "--shard: a second run could not tell which pictures are there; give a number for --seed");
  return {.first = *number - 1, .step = *total};
}

// One picture keeps the name; several are numbered: out-001.png.
std::filesystem::path NumberedOutput(const std::filesystem::path& output, size_t index, size_t total) {
  if (total == 1) return output;
  std::filesystem::path name = output.stem();
  name += fmt::format("-{:03}", index + 1);
  name += output.extension();
  return output.parent_path() / name;
}

// What is read from files. All of it is read before a model is loaded: a wrong name should not cost minutes.
struct DataReader {
  const std::vector<std::filesystem::path>& files;  // one, but of a list
  const Note& note;
  std::vector<std::string>* transparent;

  Image Picture(const std::filesystem::path& path) const {
    ImageFile file = ReadImage(path, {}, Transparency::kKept);
    for (const std::string& text : file.notes) note(fmt::format("{}: {}", path.string(), text));
    if (file.transparent && transparent) transparent->push_back(path.string());
    return std::move(file.image);
  }

  void operator()(std::vector<Image>& images) const {
    for (const std::filesystem::path& path : files) images.push_back(Picture(path));
  }
  void operator()(std::optional<Image>& image) const { image = Picture(files.front()); }
  void operator()(std::optional<GreyImage>& mask) const {
    MaskFile file = ReadMask(files.front());
    for (const std::string& text : file.notes) note(fmt::format("{}: {}", files.front().string(), text));
    mask = std::move(file.image);
  }
  void operator()(std::optional<InitialLatents>& latents) const {
    const Tensor values = ReadNpyFloat(files.front());
    latents = InitialLatents{values.shape(), {values.data(), values.data() + values.size()}};
  }
  template <typename Setting>
  void operator()(Setting&) const {}
};

}  // namespace

GenerateRequest MakeRequest(const GenerateOptions& o, const Note& note,
                            std::vector<std::string>* transparent) {
  GenerateRequest request = o.request;
  if (!o.size.empty()) {
    if (request.width || request.height)
      Fail(ErrorKind::kUsage, "give either --size or --width and --height, not both");
    std::tie(request.width, request.height) = ParseSize(o.size);
  }
  for (const options::Field& field : options::Fields()) {
    if (const auto& files = o.Files(field.name); !files.empty())
      options::VisitValue(field, request, DataReader{files, note, transparent});
  }
  if (!request.blend && !request.mask && !request.outpaint.any())
    Fail(ErrorKind::kUsage, "--no-blend says how a mask is used; give one with --mask, or --outpaint");
  return request;
}

// Said at the start, not after the prompt was encoded.
void CheckResumable(const GenerateOptions& o) {
  if (o.request.resume_folder.empty()) return;
  if (o.random_seed)
    Fail(ErrorKind::kUsage,
         "a run with a random seed cannot be resumed: the next one would draw another; "
         "give a number for --seed");
  std::error_code error;
  std::filesystem::create_directories(o.request.resume_folder, error);  // if that fails, this says why:
  CheckWritable(o.request.resume_folder / "probe");
}

GenerateRequest JobPlan::RequestOf(const Job& job) const {
  GenerateRequest request = shared;
  request.prompt = job.prompt;
  request.seed = job.seed;
  return request;
}

JobPlan PlanJobs(const GenerateOptions& o, const Note& note) {
  CheckResumable(o);
  const Share share = ShareOf(o);
  JobPlan plan;
  plan.shared = MakeRequest(o, note, &plan.transparent);
  const std::vector<std::string> prompts = ReadPrompts(o);
  const std::filesystem::path output = CheckedOutput(o);
  if (plan.shared.latents && o.count > 1)
    Fail(ErrorKind::kUsage,
         "--count would draw the same picture again and again: --latents replaces the seed");
  const size_t total = prompts.size() * static_cast<size_t>(o.count);
  if (total > static_cast<size_t>(kMaxPictures))
    Fail(ErrorKind::kUsage, "{} pictures are too many for one run; at most {} are drawn", total,
         kMaxPictures);
  plan.keeps_drawn = !o.shard.empty() || (total > 1 && !o.request.resume_folder.empty());
  const size_t count = static_cast<size_t>(o.count);
  for (size_t i = share.first; i < total; i += share.step) {
    plan.jobs.push_back({prompts[i / count], plan.shared.seed + i % count, NumberedOutput(output, i, total)});
    CheckWritable(plan.jobs.back().output);
  }
  return plan;
}

void NoteTransparent(const JobPlan& plan, const Pipeline& pipeline, const Note& note) {
  if (pipeline.channels() == 4) return;
  for (const std::string& file : plan.transparent) note(fmt::format("{}: {}", file, kOnWhiteNote));
}

}  // namespace qwen_image::cli
