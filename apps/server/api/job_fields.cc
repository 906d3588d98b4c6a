#include "server/api/job_fields.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <tuple>

#include "core/fail.h"
#include "files/numbers.h"
#include "options/json_form.h"
#include "qwen_image/image_file.h"

namespace qwen_image::api {
namespace {

options::JsonRules RulesFor(const options::Field& field, const RequestLimits& limits) {
  options::JsonRules rules{.seed_may_be_drawn = true, .most_undeclared = kHugeSide};
  const bool is_list = std::holds_alternative<std::vector<double> GenerateRequest::*>(field.member);
  if (is_list || field.name == std::string_view("steps")) rules.most = limits.steps;
  return rules;
}

// All settings but data, and but "size".
void ReadSettings(const Fields& fields, const RequestLimits& limits, GenerateRequest& request) {
  if (!fields.Find("prompt"))
    throw FieldError("prompt", "the prompt is missing: say in \"prompt\" what to draw");
  if (!fields.Find("seed")) request.seed = std::random_device{}();
  for (const options::Field& field : options::Fields()) {
    const Json* value = fields.Find(field.name);
    if (!value || options::IsData(field) || field.not_in.http) continue;
    if (value->is_string()) CheckText(field.name, value->get_ref<const std::string&>(), limits.prompt_bytes);
    const std::string allowed = options::SetFromJson(field, *value, RulesFor(field, limits), request);
    if (!allowed.empty()) fields.Refuse(field.name, allowed);
  }
}

void ReadSize(const Fields& fields, GenerateRequest& request) {
  constexpr size_t kMaxBytes = 40;
  const auto size = fields.Text(options::kSizeName, kMaxBytes);
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
                  jobs::Request& job) {
  ReadFiles(pictures, pipeline, limits, job);
  if (pictures.invert_mask && job.request.mask) {
    for (uint8_t& value : job.request.mask->pixels) value = static_cast<uint8_t>(255 - value);
  }
  if (pictures.crop_to_size) CropToSize(job.request);
  const bool repairs = job.request.mask || job.request.outpaint.any();
  if (repairs && !job.request.init_image && job.request.input_images.empty())
    throw FieldError(job.request.mask ? "mask" : "outpaint",
                     fmt::format("{} changes a picture, but the request has none; send one in {} or {}",
                                 job.request.mask ? "mask" : "outpaint", pictures.NameOf("init_image"),
                                 pictures.NameOf("input_images")));
}

// What Pipeline::Check says of a request, or nothing.
std::optional<Error> Objection(const Pipeline& pipeline, const GenerateRequest& request) {
  try {
    pipeline.Check(request);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kOutOfMemory) return error;  // jobs::Queue::Submit knows more of memory
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
  const int64_t multiple = pipeline.side_multiple();
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
    const bool to_blame = asked && !fields.Find(options::kSizeName) && !Objection(pipeline, request);
    *side = asked;
    if (to_blame) return name;
  }
  const auto changes_without = [&](auto&&... left_out) {
    (options::Reset(left_out, request), ...);
    const auto other = Objection(pipeline, request);
    return !other || other->message() != objection;
  };
  const std::string size = SizeField(fields, request);
  if (changes_without(*options::FindField("width"), *options::FindField("height"))) return size;
  // Pictures last, the latest first: what is wrong with a setting may not show without them.
  std::vector<const options::Field*> order, of_pictures;
  for (const options::Field& field : options::Fields())
    (options::ConcernsPictures(field) ? of_pictures : order).push_back(&field);
  order.insert(order.end(), of_pictures.rbegin(), of_pictures.rend());
  for (const options::Field* field : order) {
    if (options::IsDefault(*field, request)) continue;
    if (changes_without(*field)) return pictures.NameOf(field->name);
  }
  return "";
}

Json TimeOrNull(int64_t milliseconds) { return milliseconds == 0 ? Json() : Json(milliseconds); }

}  // namespace

jobs::Request MakeJobRequest(const Fields& settings, const JobPictures& pictures, const Pipeline& pipeline,
                             const RequestLimits& limits) {
  jobs::Request job;
  GenerateRequest& request = job.request;
  ReadSettings(settings, limits, request);
  ReadSize(settings, request);
  job.count = settings.Whole("n", 1, limits.n).value_or(1);
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

jobs::Request ParseJobRequest(const Json& body, const Pipeline& pipeline, const RequestLimits& limits) {
  const Fields fields(body);
  const auto here = [](const options::Field& field) { return !field.not_in.http; };
  std::vector<std::string_view> known = {options::kSizeName, "n"};
  for (const options::Field& field : options::Fields()) {
    if (here(field)) known.insert(known.end() - 2, field.name);
  }
  fields.RefuseUnknown(known);
  return MakeJobRequest(fields, PicturesIn(fields, limits, here), pipeline, limits);
}

Json JobJson(const jobs::Job& job) {
  Json images = Json::array();
  for (size_t i = 0; i < job.images.size(); ++i) {
    const jobs::JobImage& image = job.images[i];
    images.push_back({{"url", fmt::format("/jobs/{}/images/{}.png", job.id, i)},
                      {"width", image.width},
                      {"height", image.height},
                      {"seed", image.seed}});
    if (image.channels == 4) images.back()["alpha"] = true;
  }
  const jobs::JobProgress& p = job.progress;
  Json json{{"id", job.id},
            {"state", Name(job.state)},
            {"created", job.created},
            {"started", TimeOrNull(job.started)},
            {"finished", TimeOrNull(job.finished)},
            {"n", job.count},
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
  for (const options::Field& field : options::Fields()) {
    if (options::IsData(field) || field.not_in.http) continue;
    Json value = options::ToJson(field, job.settings);
    // An empty list or text says that the setting was not given, except where it must be given.
    const bool empty = value.is_string() ? value.get_ref<const std::string&>().empty() : value.empty();
    const bool not_given = field.recorded == options::Recorded::kIfSet && empty;
    json[field.name] = not_given ? Json() : std::move(value);
  }
  return json;
}

}  // namespace qwen_image::api
