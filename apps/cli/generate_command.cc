// qwen-image generate: from options to picture files.
#include "generate_command.h"

#include <fmt/chrono.h>
#include <sys/resource.h>

#include <ctime>
#include <fstream>
#include <sstream>

#include "core/fail.h"
#include "debug_run.h"
#include "files/npy.h"
#include "files/output_file.h"
#include "files/png.h"
#include "files/text.h"
#include "picture_record.h"
#include "print.h"
#include "progress.h"

namespace qwen_image {
namespace {

struct Job {
  GenerateRequest request;
  std::filesystem::path output;
};

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
    if (!o.has_prompt)
      Fail(ErrorKind::kUsage, "nothing to draw: give a prompt, --prompts FILE or --from PICTURE");
    if (!IsUtf8(o.prompt)) Fail(ErrorKind::kUsage, "the prompt is not valid UTF-8: {}", Quoted(o.prompt));
    return {o.prompt};
  }
  if (o.has_prompt) Fail(ErrorKind::kUsage, "give either a prompt or --prompts FILE, not both");
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

GenerateRequest MakeRequest(const GenerateOptions& o) {
  GenerateRequest request;
  request.negative_prompt = o.negative_prompt;
  if (o.negative_prompt && !IsUtf8(*o.negative_prompt))
    Fail(ErrorKind::kUsage, "the negative prompt is not valid UTF-8: {}", Quoted(*o.negative_prompt));
  request.width = o.width;
  request.height = o.height;
  if (!o.size.empty()) {
    if (o.width || o.height) Fail(ErrorKind::kUsage, "give either --size or --width and --height, not both");
    std::tie(request.width, request.height) = ParseSize(o.size);
  }
  request.steps = o.steps;
  request.cfg = o.cfg;
  request.seed = o.seed.empty() ? 0 : ParseSeed(o.seed);
  request.max_sequence_length = o.MaxSequenceLength();
  request.reference_special_tokens = o.reference_special_tokens;
  request.vae_tiling = o.vae_tiling == "on"    ? GenerateRequest::Tiling::kOn
                       : o.vae_tiling == "off" ? GenerateRequest::Tiling::kOff
                                               : GenerateRequest::Tiling::kAuto;
  if (!o.latents.empty()) {
    const Tensor latents = ReadNpyFloat(o.latents);
    request.latents = InitialLatents{latents.shape(), {latents.data(), latents.data() + latents.size()}};
  }
  return request;
}

std::filesystem::path DefaultOutput() {
  const std::time_t now = std::time(nullptr);
  const std::string stem = fmt::format("picture-{:%Y%m%d-%H%M%S}", fmt::localtime(now));
  std::string name = stem + ".png";
  std::error_code error;
  for (int i = 2; std::filesystem::exists(name, error); ++i) name = fmt::format("{}-{}.png", stem, i);
  return name;
}

// Checked before anything is computed: nobody wants to hear after an hour that a PNG cannot be called
// out.jpg.
std::filesystem::path CheckedOutput(const GenerateOptions& o) {
  if (o.output.empty()) return DefaultOutput();
  std::string extension = o.output.extension().string();
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (extension != ".png" && !extension.empty()) {
    Fail(ErrorKind::kUsage, "{}: pictures are written as PNG; choose a name that ends in .png",
         o.output.string());
  }
  return o.output;
}

// One picture keeps the name; several are numbered: out-001.png.
std::filesystem::path NumberedOutput(const std::filesystem::path& output, size_t index, size_t total) {
  if (total == 1) return output;
  std::filesystem::path name = output.stem();
  name += fmt::format("-{:03}", index + 1);
  name += output.extension();
  return output.parent_path() / name;
}

std::vector<Job> PlanJobs(const GenerateOptions& o) {
  const GenerateRequest base = MakeRequest(o);
  const std::vector<std::string> prompts = ReadPrompts(o);
  const std::filesystem::path output = CheckedOutput(o);
  if (!o.latents.empty() && o.count > 1)
    Fail(ErrorKind::kUsage,
         "--count would draw the same picture again and again: --latents replaces the seed");
  const size_t total = prompts.size() * static_cast<size_t>(o.count);
  if (total > static_cast<size_t>(kMaxPictures))
    Fail(ErrorKind::kUsage, "{} pictures are too many for one run; at most {} are drawn", total,
         kMaxPictures);
  std::vector<Job> jobs;
  for (const std::string& prompt : prompts) {
    for (int64_t i = 0; i < o.count; ++i) {
      Job job{base, NumberedOutput(output, jobs.size(), total)};
      job.request.prompt = prompt;
      job.request.seed += static_cast<uint64_t>(i);
      CheckWritable(job.output);
      jobs.push_back(std::move(job));
    }
  }
  return jobs;
}

double PeakMemoryMegabytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024 / 1e6;
}

void PrintSummary(const Job& job, const Picture& p) {
  if (p.prompt_truncated) {
    Print(stderr, "note: the prompt has {} tokens; the end was cut off (see --max-sequence-length)\n",
          p.prompt_tokens);
  }
  Print(stdout, "{}: {}x{}, {} step{}, cfg {}, seed {}\n", job.output.string(), p.width, p.height, p.steps,
        p.steps == 1 ? "" : "s", p.cfg, p.seed);
  Print(stdout, "  prompt {} + denoise {} ({}/step) + decode {}; peak memory {:.0f} MB\n",
        HumanSeconds(p.seconds.encode_prompt), HumanSeconds(p.seconds.denoise),
        HumanSeconds(p.seconds.denoise / static_cast<double>(p.steps)), HumanSeconds(p.seconds.decode),
        PeakMemoryMegabytes());
}

void PrintJson(const Job& job, const Picture& p, Json record, double load_seconds, int threads) {
  record["file"] = job.output.string();
  record["prompt_tokens"] = p.prompt_tokens;
  record["prompt_truncated"] = p.prompt_truncated;
  record["threads"] = threads;
  record["seconds"] = {{"load", load_seconds},
                       {"encode_prompt", p.seconds.encode_prompt},
                       {"denoise", p.seconds.denoise},
                       {"decode", p.seconds.decode}};
  record["peak_memory_mb"] = PeakMemoryMegabytes();
  Print(stdout, "{}\n", RecordText(record));
}

}  // namespace

int RunGenerate(GenerateOptions options, const DebugOptions& debug_options, const CancelFlag& cancel) {
  // 1. Collect the settings: the command line, then the picture or the reference run to repeat.
  std::optional<DebugRun> debug;
  if (!debug_options.run_id.empty()) debug.emplace(debug_options);
  if (debug) debug->FillFromReference(options);
  if (!options.from.empty()) FillFromPicture(options.from, options);
  const std::vector<Job> jobs = PlanJobs(options);
  if (debug && jobs.size() != 1)
    Fail(ErrorKind::kUsage, "--debug records one picture; leave out --count and --prompts");

  // 2. Load the model and check all requests before the first is drawn.
  const std::filesystem::path model = FindModel(options.model);
  const auto load_start = std::chrono::steady_clock::now();
  const Pipeline pipeline(model, {.threads = options.threads, .check_memory = !options.ignore_memory});
  const double load_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - load_start).count();
  for (const Job& job : jobs) pipeline.Check(job.request);

  // 3. Draw and write.
  bool passed = true;
  const auto style = ProgressPrinter::StyleFor(options.quiet);
  for (size_t i = 0; i < jobs.size(); ++i) {
    const Job& job = jobs[i];
    ProgressPrinter progress(style, jobs.size() > 1 ? fmt::format("[{}/{}] ", i + 1, jobs.size()) : "");
    const Picture picture =
        pipeline.Generate(job.request, {.on_progress = [&](const Progress& p) { progress.Update(p); },
                                        .cancel = &cancel,
                                        .checkpoints = debug ? debug->sink() : nullptr});
    progress.Clear();
    const Json record = PictureRecord(picture, options, ModelName(model));
    WritePng(job.output, {picture.width, picture.height, picture.rgb}, PngText(record));
    if (options.json) {
      PrintJson(job, picture, record, load_seconds, pipeline.threads());
    } else if (!options.quiet) {
      PrintSummary(job, picture);
    }
    if (debug) passed = debug->Finish(picture, options, pipeline.threads());
  }
  return passed ? 0 : 1;
}

}  // namespace qwen_image
