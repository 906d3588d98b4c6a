#include "job_fields.h"

#include <random>
#include <tuple>

#include "core/fail.h"
#include "files/base64.h"
#include "files/numbers.h"
#include "files/text.h"
#include "qwen_image/image_file.h"

namespace qwen_image::server {
namespace {

// Decodes the pictures of a request within its budget of pixels.
class PictureReader {
 public:
  PictureReader(int64_t pixels, std::vector<std::string>& notes) : pixels_(pixels), notes_(notes) {}

  RgbImage Image(const std::string& name, const std::string& file);
  GreyImage Mask(const std::string& name, const std::string& file, bool is_hole);

 private:
  template <typename Decode>
  auto Read(const std::string& name, const Decode& decode) {
    try {
      auto file = decode();
      pixels_ -= file.image.width * file.image.height;
      for (const std::string& note : file.notes) notes_.push_back(name + ": " + note);
      return std::move(file.image);
    } catch (const Error& error) {
      throw Error(error.kind() == ErrorKind::kBadInput ? ErrorKind::kUsage : error.kind(), error.message());
    }
  }

  int64_t pixels_;  // left
  std::vector<std::string>& notes_;
};

RgbImage PictureReader::Image(const std::string& name, const std::string& file) {
  return Read(name, [&] { return DecodeImage(file, name, {.max_pixels = pixels_}); });
}

GreyImage PictureReader::Mask(const std::string& name, const std::string& file, bool is_hole) {
  const MaskRule rule = is_hole ? MaskRule::kHole : MaskRule::kByColours;
  return Read(name, [&] { return DecodeMask(file, name, {.max_pixels = pixels_}, rule); });
}

Margins ReadMargins(const Fields& fields) {
  const char* name = "outpaint";
  const char* allowed = "a list of four whole numbers: pixels to add at the left, top, right, bottom";
  const Json* list = fields.Find(name);
  if (!list) return {};
  if (!list->is_array() || list->size() != 4) fields.Refuse(name, allowed);
  int64_t sides[4];
  for (size_t i = 0; i < 4; ++i) {
    const Json& side = (*list)[i];
    if (!side.is_number_integer() || side > kHugeSide || side < 0) fields.Refuse(name, allowed);
    sides[i] = side.get<int64_t>();
  }
  return {sides[0], sides[1], sides[2], sides[3]};
}

void ReadSize(const Fields& fields, GenerateRequest& request) {
  constexpr int64_t kMost = kHugeSide;  // what is possible Pipeline::Check knows
  request.width = fields.Whole("width", 0, kMost);
  request.height = fields.Whole("height", 0, kMost);
  constexpr size_t kMaxBytes = 40;
  const auto size = fields.Text("size", kMaxBytes);
  if (!size || *size == "auto") return;
  if (request.width || request.height)
    Fail(ErrorKind::kUsage, "give either size or width and height, not both");
  try {
    std::tie(request.width, request.height) = ParseSize(*size);
  } catch (const Error&) {
    fields.Refuse("size", "WIDTHxHEIGHT, for example 1024x768, or auto");
  }
}

void ReadPictures(const JobPictures& pictures, const RequestLimits& limits, JobRequest& job) {
  if (static_cast<int64_t>(pictures.input_images.size()) > limits.images)
    Fail(ErrorKind::kUsage, "{} input images are too many; at most {} are taken",
         pictures.input_images.size(), limits.images);
  PictureReader reader(limits.image_pixels, job.notes);
  for (size_t i = 0; i < pictures.input_images.size(); ++i) {
    job.request.input_images.push_back(
        reader.Image(fmt::format("{}[{}]", pictures.input_name, i), pictures.input_images[i]));
  }
  if (pictures.init_image) job.request.init_image = reader.Image(pictures.init_name, *pictures.init_image);
  if (pictures.mask) job.request.mask = reader.Mask("mask", *pictures.mask, pictures.mask_is_hole);
}

// Limits of the server, not of the pipeline: what was asked for is possible.
void CheckPixels(const GenerateRequest& request, const Pipeline& pipeline, const RequestLimits& limits) {
  const int64_t width = request.width.value_or(pipeline.defaults().width);
  const int64_t height = request.height.value_or(pipeline.defaults().height);
  if ((request.width || request.height) && width * height > limits.pixels)
    Fail(ErrorKind::kUsage, "a picture of {}x{} has {} pixels; this server draws at most {}", width, height,
         width * height, limits.pixels);
  if (!request.outpaint.any()) return;
  const RgbImage& source = request.init_image ? *request.init_image : request.input_images.front();
  const int64_t wide = source.width + request.outpaint.left + request.outpaint.right;
  const int64_t high = source.height + request.outpaint.top + request.outpaint.bottom;
  if (wide * high > limits.image_pixels)
    Fail(ErrorKind::kUsage, "with outpaint the picture would have {}x{} pixels; at most {} in all are taken",
         wide, high, limits.image_pixels);
}

Json TimeOrNull(int64_t milliseconds) { return milliseconds == 0 ? Json() : Json(milliseconds); }

}  // namespace

std::string DecodePictureText(const std::string& name, const Json& value) {
  if (!value.is_string())
    Fail(ErrorKind::kUsage, "{} must be a picture: its file as base64, or a data: URL with it", name);
  std::string_view text = value.get_ref<const std::string&>();
  if (text.starts_with("data:")) {
    const size_t comma = text.substr(0, 200).find(',');
    if (comma == text.npos || !text.substr(0, comma).ends_with(";base64"))
      Fail(ErrorKind::kUsage, "{} is a data: URL without \";base64,\" at its start: {}", name,
           Quoted(text.substr(0, 60)));
    text.remove_prefix(comma + 1);
  } else if (text.substr(0, 40).find("://") != text.npos) {
    Fail(ErrorKind::kUsage,
         "{} is a URL, {}; this server fetches nothing: send the picture itself, as base64 or a data: URL",
         name, Quoted(text.substr(0, 60)));
  }
  std::optional<std::string> file = DecodeBase64(text);
  if (!file || file->empty())
    Fail(ErrorKind::kUsage,
         "{} is not base64 of a picture (letters, digits, + and /, padded with =, no "
         "line breaks): {}",
         name, text.empty() ? "it is empty" : Quoted(text.substr(0, 40)));
  return *std::move(file);
}

uint64_t SeedOf(const Fields& fields) {
  const Json* seed = fields.Find("seed");
  const bool is_signed = seed && seed->is_number_integer() && !seed->is_number_unsigned();
  if (!seed || *seed == "random" || (is_signed && seed->get<int64_t>() == -1)) return std::random_device{}();
  if (!seed->is_number_integer() || (is_signed && seed->get<int64_t>() < 0))
    fields.Refuse("seed", "a whole number from 0 to 2^64 - 1, or -1 or \"random\"");
  return seed->get<uint64_t>();
}

JobRequest MakeJobRequest(const Fields& settings, const JobPictures& pictures, const Pipeline& pipeline,
                          const RequestLimits& limits) {
  JobRequest job;
  GenerateRequest& request = job.request;
  const auto prompt = settings.Text("prompt", limits.prompt_bytes);
  if (!prompt) Fail(ErrorKind::kUsage, "the prompt is missing: say in \"prompt\" what to draw");
  request.prompt = *prompt;
  request.negative_prompt = settings.Text("negative_prompt", limits.prompt_bytes);
  ReadSize(settings, request);
  request.steps = settings.Whole("steps", 1, limits.steps);
  request.cfg = settings.Number("cfg");
  request.seed = SeedOf(settings);
  job.count = settings.Whole("n", 1, limits.n).value_or(1);
  request.strength = settings.Number("strength");
  request.outpaint = ReadMargins(settings);
  request.keep_size = settings.Flag("keep_size").value_or(false);
  request.blend = settings.Flag("blend").value_or(true);
  request.step_cache = settings.Number("step_cache").value_or(0);
  const std::string tiling = settings.OneOf("vae_tiling", {"auto", "on", "off"}).value_or("auto");
  request.vae_tiling = tiling == "on"    ? GenerateRequest::Tiling::kOn
                       : tiling == "off" ? GenerateRequest::Tiling::kOff
                                         : GenerateRequest::Tiling::kAuto;
  ReadPictures(pictures, limits, job);
  if (!request.blend && !request.mask && !request.outpaint.any())
    Fail(ErrorKind::kUsage,
         "blend says how a mask is used; give one in \"mask\", or margins in \"outpaint\"");
  try {
    pipeline.Check(request);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kOutOfMemory) throw;  // of memory Jobs::Submit knows more
  }
  CheckPixels(request, pipeline, limits);
  return job;
}

JobRequest ParseJobRequest(const Json& body, const Pipeline& pipeline, const RequestLimits& limits) {
  const Fields fields(body);
  fields.RefuseUnknown({"prompt", "negative_prompt", "size", "width", "height", "steps", "cfg", "seed", "n",
                        "strength", "input_images", "init_image", "mask", "outpaint", "keep_size", "blend",
                        "vae_tiling", "step_cache"});
  JobPictures pictures;
  if (const Json* list = fields.Find("input_images")) {
    if (!list->is_array() || static_cast<int64_t>(list->size()) > limits.images)
      fields.Refuse("input_images", fmt::format("a list of at most {} pictures", limits.images));
    for (size_t i = 0; i < list->size(); ++i)
      pictures.input_images.push_back(DecodePictureText(fmt::format("input_images[{}]", i), (*list)[i]));
  }
  if (const Json* picture = fields.Find("init_image"))
    pictures.init_image = DecodePictureText("init_image", *picture);
  if (const Json* picture = fields.Find("mask")) pictures.mask = DecodePictureText("mask", *picture);
  return MakeJobRequest(fields, pictures, pipeline, limits);
}

Json JobJson(const Job& job) {
  Json images = Json::array();
  for (size_t i = 0; i < job.images.size(); ++i) {
    const JobImage& image = job.images[i];
    images.push_back({{"url", fmt::format("/jobs/{}/images/{}.png", job.id, i)},
                      {"width", image.width},
                      {"height", image.height},
                      {"seed", image.seed}});
  }
  const JobProgress& p = job.progress;
  return {{"id", job.id},
          {"state", Name(job.state)},
          {"created", job.created},
          {"started", TimeOrNull(job.started)},
          {"finished", TimeOrNull(job.finished)},
          {"prompt", job.prompt},
          {"negative_prompt", job.negative_prompt},
          {"width", job.width},
          {"height", job.height},
          {"steps", job.steps},
          {"cfg", job.cfg},
          {"seed", job.seed},
          {"n", job.count},
          {"strength", job.strength ? Json(*job.strength) : Json()},
          {"input_images", job.input_images},
          {"init_image", job.has_init_image},
          {"mask", job.has_mask},
          {"progress",
           {{"position", p.position},
            {"stage", p.stage},
            {"step", p.step},
            {"steps", p.steps},
            {"picture", p.picture},
            {"fraction", p.fraction},
            {"seconds_per_step", p.seconds_per_step},
            {"seconds_left", p.seconds_left}}},
          {"images", images},
          {"notes", job.notes},
          {"error", job.error.empty() ? Json() : Json(job.error)}};
}

}  // namespace qwen_image::server
