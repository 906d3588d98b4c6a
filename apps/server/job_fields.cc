#include "job_fields.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <tuple>

#include "core/fail.h"
#include "files/base64.h"
#include "files/numbers.h"
#include "files/text.h"
#include "pipeline/pipeline_impl.h"
#include "qwen_image/image_file.h"

namespace qwen_image::server {
namespace {

// Decodes the pictures of a request within its budget of pixels.
class PictureReader {
 public:
  // The channels are the model's: what it cannot use is not kept while a job waits.
  PictureReader(int64_t pixels, int64_t channels, std::vector<std::string>& notes)
      : most_(pixels),
        pixels_(pixels),
        transparency_(channels == 4 ? Transparency::kKept : Transparency::kOnWhite),
        notes_(notes) {}

  Image Picture(const std::string& name, const std::string& file);
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
      if (error.kind() != ErrorKind::kBadInput) throw;
      std::string message = error.message();
      const std::string left = std::to_string(pixels_);
      if (pixels_ < most_ && message.find(left) != message.npos)
        message += fmt::format(": all pictures of a request may have {} together, and {} of these are left",
                               most_, left);
      throw FieldError(name, message);
    }
  }

  const int64_t most_;
  int64_t pixels_;  // left
  const Transparency transparency_;
  std::vector<std::string>& notes_;
};

Image PictureReader::Picture(const std::string& name, const std::string& file) {
  return Read(name, [&] { return DecodeImage(file, name, {.max_pixels = pixels_}, transparency_); });
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
    throw FieldError("size", "give either size or width and height, not both");
  try {
    std::tie(request.width, request.height) = ParseSize(*size);
  } catch (const Error&) {
    fields.Refuse("size", "WIDTHxHEIGHT, for example 1024x768, or auto");
  }
}

// The largest part in the middle that has the shape of `width` and `height`.
template <typename Image>
Image Middle(const Image& image, int64_t channels, int64_t width, int64_t height) {
  Image part{std::min(image.width, image.height * width / height),
             std::min(image.height, image.width * height / width),
             {}};
  part.width = std::max<int64_t>(part.width, 1);
  part.height = std::max<int64_t>(part.height, 1);
  const int64_t left = (image.width - part.width) / 2, top = (image.height - part.height) / 2;
  for (int64_t y = top; y < top + part.height; ++y) {
    const auto row = image.pixels.begin() + (y * image.width + left) * channels;
    part.pixels.insert(part.pixels.end(), row, row + part.width * channels);
  }
  return part;
}

void CropToSize(GenerateRequest& request) {
  if (request.width.value_or(0) < 1 || request.height.value_or(0) < 1)
    throw FieldError("width", "a picture is cropped to the shape of width and height; both are needed");
  const auto [width, height] = std::pair(*request.width, *request.height);
  if (request.init_image) {
    const int64_t channels = request.init_image->channels;
    request.init_image = Middle(*request.init_image, channels, width, height);
    request.init_image->channels = channels;
  }
  if (request.mask) request.mask = Middle(*request.mask, 1, width, height);
}

// What to name when a size is wrong.
std::string SizeField(const Fields& fields, const GenerateRequest& request) {
  if (fields.Find("size")) return "size";
  return request.width ? "width" : "height";
}

void ReadPictures(const JobPictures& pictures, const Pipeline& pipeline, const RequestLimits& limits,
                  JobRequest& job) {
  if (static_cast<int64_t>(pictures.input_images.size()) > limits.images)
    throw FieldError(pictures.input_name, fmt::format("{} input images are too many; at most {} are taken",
                                                      pictures.input_images.size(), limits.images));
  PictureReader reader(limits.image_pixels, pipeline.channels(), job.notes);
  for (size_t i = 0; i < pictures.input_images.size(); ++i) {
    job.request.input_images.push_back(
        reader.Picture(fmt::format("{}[{}]", pictures.input_name, i), pictures.input_images[i]));
  }
  if (pictures.init_image) job.request.init_image = reader.Picture(pictures.init_name, *pictures.init_image);
  if (pictures.mask) job.request.mask = reader.Mask("mask", *pictures.mask, pictures.mask_is_hole);
  if (pictures.invert_mask && job.request.mask) {
    for (uint8_t& value : job.request.mask->pixels) value = static_cast<uint8_t>(255 - value);
  }
  if (pictures.crop_to_size) CropToSize(job.request);
  const bool repairs = job.request.mask || job.request.outpaint.any();
  if (repairs && !job.request.init_image && job.request.input_images.empty())
    throw FieldError(
        job.request.mask ? "mask" : "outpaint",
        fmt::format("{} changes a picture, and none came with it; send one in {} or {}",
                    job.request.mask ? "mask" : "outpaint", pictures.init_name, pictures.input_name));
}

// What Pipeline::Check says of a request, or nothing.
std::optional<Error> Objection(const Pipeline& pipeline, const GenerateRequest& request) {
  try {
    pipeline.Check(request);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kOutOfMemory) return error;  // of memory Jobs::Submit knows more
  }
  return std::nullopt;
}

// A limit of the server, not of the pipeline; before Pipeline::Check, which would suggest a size beyond it.
void CheckPixels(const Fields& fields, GenerateRequest& request, const Pipeline& pipeline,
                 const RequestLimits& limits) {
  const int64_t width = request.width.value_or(pipeline.defaults().width);
  const int64_t height = request.height.value_or(pipeline.defaults().height);
  if ((!request.width && !request.height) || width * height <= limits.pixels) return;
  std::string message = fmt::format("a picture of {}x{} has {} pixels; this server draws at most {}", width,
                                    height, width * height, limits.pixels);
  const double factor = std::sqrt(static_cast<double>(limits.pixels) / static_cast<double>(width * height));
  const int64_t multiple = pipeline.impl().geometry().side_multiple;
  const auto side = [&](int64_t asked) {
    return static_cast<int64_t>(static_cast<double>(asked) * factor) / multiple * multiple;
  };
  const std::string field = SizeField(fields, request);
  request.width = side(width);
  request.height = side(height);
  if (!Objection(pipeline, request))
    message += fmt::format(", for example {}x{}", *request.width, *request.height);
  throw FieldError(field, message);
}

void CheckMargins(const GenerateRequest& request, const RequestLimits& limits) {
  if (!request.outpaint.any()) return;
  const Image& source = request.init_image ? *request.init_image : request.input_images.front();
  const int64_t wide = source.width + request.outpaint.left + request.outpaint.right;
  const int64_t high = source.height + request.outpaint.top + request.outpaint.bottom;
  if (wide * high > limits.image_pixels)
    throw FieldError(
        "outpaint",
        fmt::format("with outpaint the picture would have {}x{} pixels; at most {} in all are taken", wide,
                    high, limits.image_pixels));
}

// The library knows values, not fields. The field to blame is the one without which it would not say the
// same. Ends with a request that has none of the fields.
std::string FieldToBlame(const Fields& fields, const Pipeline& pipeline, GenerateRequest& request,
                         const std::string& objection, const JobPictures& pictures) {
  for (auto [name, side] : {std::pair("width", &request.width), std::pair("height", &request.height)}) {
    const auto asked = std::exchange(*side, std::nullopt);
    const bool to_blame = asked && !fields.Find("size") && !Objection(pipeline, request);
    *side = asked;
    if (to_blame) return name;
  }
  const std::pair<std::string, std::function<void()>> without[] = {
      {SizeField(fields, request), [&] { request.width = request.height = {}; }},
      {"steps", [&] { request.steps = {}; }},
      {"sigmas", [&] { request.sigmas = {}; }},
      {"cfg", [&] { request.cfg = {}; }},
      {"strength", [&] { request.strength = {}; }},
      {"step_cache", [&] { request.step_cache = 0; }},
      {"keep_size", [&] { request.keep_size = false; }},
      {"background", [&] { request.background = {}; }},
      {"outpaint", [&] { request.outpaint = {}; }},
      {"mask", [&] { request.mask = {}; }},
      {pictures.init_name, [&] { request.init_image = {}; }},
      {pictures.input_name, [&] { request.input_images.clear(); }}};
  for (const auto& [name, leave_out] : without) {
    leave_out();
    const auto other = Objection(pipeline, request);
    if (!other || other->message() != objection) return name;
  }
  return "";
}

Json TimeOrNull(int64_t milliseconds) { return milliseconds == 0 ? Json() : Json(milliseconds); }

}  // namespace

std::string DecodePictureText(const std::string& name, const Json& value) {
  if (!value.is_string())
    throw FieldError(name,
                     fmt::format("{} must be a picture: its file as base64, or a data: URL with it", name));
  std::string_view text = value.get_ref<const std::string&>();
  if (text.starts_with("data:")) {
    const size_t comma = text.substr(0, 200).find(',');
    if (comma == text.npos || !text.substr(0, comma).ends_with(";base64"))
      throw FieldError(name, fmt::format("{} is a data: URL without \";base64,\" at its start: {}", name,
                                         Quoted(text.substr(0, 60))));
    text.remove_prefix(comma + 1);
  } else if (text.substr(0, 40).find("://") != text.npos) {
    throw FieldError(
        name,
        fmt::format(
            "{} is a URL, {}; this server fetches nothing: send the picture itself, as base64 or a data: URL",
            name, Quoted(text.substr(0, 60))));
  }
  std::optional<std::string> file = DecodeBase64(text);
  if (!file || file->empty())
    throw FieldError(name,
                     fmt::format("{} is not base64 of a picture (letters, digits, + and /, padded with =, no "
                                 "line breaks): {}",
                                 name, text.empty() ? "it is empty" : Quoted(text.substr(0, 40))));
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
  if (!prompt) throw FieldError("prompt", "the prompt is missing: say in \"prompt\" what to draw");
  request.prompt = *prompt;
  request.negative_prompt = settings.Text("negative_prompt", limits.prompt_bytes);
  ReadSize(settings, request);
  request.steps = settings.Whole("steps", 1, limits.steps);
  request.sigmas = settings.Numbers("sigmas", limits.steps);
  request.cfg = settings.Number("cfg");
  request.seed = SeedOf(settings);
  job.count = settings.Whole("n", 1, limits.n).value_or(1);
  request.strength = settings.Number("strength");
  request.outpaint = ReadMargins(settings);
  request.keep_size = settings.Flag("keep_size").value_or(false);
  request.blend = settings.Flag("blend").value_or(true);
  constexpr size_t kMaxColourBytes = 40;
  request.background = settings.Text("background", kMaxColourBytes).value_or("");
  request.step_cache = settings.Number("step_cache").value_or(0);
  const std::string tiling = settings.OneOf("vae_tiling", {"auto", "on", "off"}).value_or("auto");
  request.vae_tiling = tiling == "on"    ? GenerateRequest::Tiling::kOn
                       : tiling == "off" ? GenerateRequest::Tiling::kOff
                                         : GenerateRequest::Tiling::kAuto;
  ReadPictures(pictures, pipeline, limits, job);
  if (!request.blend && !request.mask && !request.outpaint.any())
    throw FieldError("blend",
                     "blend says how a mask is used; give one in \"mask\", or margins in \"outpaint\"");
  CheckPixels(settings, request, pipeline, limits);
  if (const auto objection = Objection(pipeline, request)) {
    if (objection->kind() != ErrorKind::kUsage) throw Error(*objection);
    const std::string& message = objection->message();
    throw FieldError(FieldToBlame(settings, pipeline, request, message, pictures), message);
  }
  CheckMargins(request, limits);
  return job;
}

JobRequest ParseJobRequest(const Json& body, const Pipeline& pipeline, const RequestLimits& limits) {
  const Fields fields(body);
  fields.RefuseUnknown({"prompt",    "negative_prompt", "size",       "width",      "height",
                        "steps",     "sigmas",          "cfg",        "seed",       "n",
                        "strength",  "input_images",    "init_image", "mask",       "outpaint",
                        "keep_size", "blend",           "background", "vae_tiling", "step_cache"});
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
    if (image.channels == 4) images.back()["alpha"] = true;
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
          {"sigmas", job.sigmas.empty() ? Json() : Json(job.sigmas)},
          {"cfg", job.cfg},
          {"seed", job.seed},
          {"n", job.count},
          {"background", job.background.empty() ? Json() : Json(job.background)},
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
