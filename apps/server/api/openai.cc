#include "server/api/openai.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/fail.h"
#include "draw/opened_model.h"
#include "files/text.h"
#include "model/scheduler.h"
#include "server/api/drawn_reply.h"
#include "server/api/openai_form.h"
#include "server/api/replies.h"
#include "server/http/multipart.h"

namespace qwen_image::api {
namespace {

constexpr std::string_view kEdits = "/v1/images/edits";

// OpenAI's own fields; those that a client may add (extra_body in the official one) are our settings.
const std::vector<std::string_view> kTheirs = {"prompt",
                                               "model",
                                               "n",
                                               "size",
                                               "response_format",
                                               "user",
                                               "quality",
                                               "style",
                                               "moderation",
                                               "input_fidelity",
                                               "background",
                                               "output_format",
                                               "output_compression",
                                               "stream",
                                               "partial_images"};
// Fields of a form are all text; these of OpenAI's are meant as JSON.
const std::vector<std::string_view> kTheirNumbers = {"n", "output_compression", "stream", "partial_images"};

bool Contains(const std::vector<std::string_view>& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

bool IsHere(const options::Field& field) { return !field.not_in.http && !field.not_in.openai; }

std::vector<std::string_view> KnownFields() {
  std::vector<std::string_view> known = kTheirs;
  for (const options::Field& field : options::Fields()) {
    if (IsHere(field) && !Contains(known, field.name)) known.push_back(field.name);
  }
  return known;
}

// What the field of a form is meant as.
enum class FormKind { kText, kScalar, kList };

FormKind KindOf(std::string_view name) {
  const options::Field* field = options::FindField(name);
  if (!field) return Contains(kTheirNumbers, name) ? FormKind::kScalar : FormKind::kText;
  const GenerateRequest request;
  return options::VisitValue(*field, request, [](const auto& value) {
    using Value = std::decay_t<decltype(value)>;
    if (std::is_same_v<Value, std::vector<double>> || std::is_same_v<Value, Margins>) return FormKind::kList;
    const bool scalar = std::is_arithmetic_v<Value> || std::is_same_v<Value, std::optional<int64_t>> ||
                        std::is_same_v<Value, std::optional<double>>;
    return scalar ? FormKind::kScalar : FormKind::kText;
  });
}

// What is asked for but does not exist here must not be passed over; what has no bearing on the picture may.
void CheckOpenAiFields(const Fields& fields, const Pipeline& pipeline) {
  constexpr size_t kMaxBytes = 1000;
  const std::string id = ModelId(pipeline);
  const std::string model = fields.Text("model", kMaxBytes).value_or("");
  if (!model.empty() && model != id)
    throw FieldError(
        "model",
        fmt::format(
            "the model {} is not here; this server draws with \"{}\": leave out model, or name that one",
            Quoted(model), id));
  fields.Text("user", kMaxBytes);
  fields.OneOf("style", {"vivid", "natural"});
  fields.OneOf("moderation", {"auto", "low"});
  fields.OneOf("input_fidelity", {"low", "high"});
  if (fields.OneOf("background", {"auto", "opaque", "transparent"}) == "transparent" &&
      pipeline.channels() == 3)
    throw FieldError(
        "background",
        "background must be auto or opaque, not \"transparent\": this model draws no transparent "
        "pictures");
}

// The settings with our word for OpenAI's background; "auto" is what the model draws.
Json WithOurBackground(Json settings, const Pipeline& pipeline) {
  const Json theirs = settings.value("background", Json());
  settings.erase("background");
  if (theirs == "transparent") settings["background"] = theirs;
  if (theirs == "opaque" && pipeline.channels() == 4) settings["background"] = "white";
  return settings;
}

// How many of a model's own steps a quality is. Distilled models are made for their noise levels alone, and
// what the request says of steps itself counts more.
void AddStepsOfQuality(const OpenAiForm& form, const Pipeline& pipeline, Json& settings) {
  constexpr std::pair<std::string_view, double> kShares[] = {{"low", 0.4}, {"medium", 0.7}};
  const ModelTraits& traits = draw::ModelOf(pipeline).model->traits();
  const bool fixed = !traits.sigmas.empty() || traits.defaults.lightning || IsDistilled(traits.scheduler);
  const auto given = [&](const char* name) { return settings.contains(name) && !settings[name].is_null(); };
  if (fixed || given("steps") || given("sigmas")) return;
  for (const auto& [quality, share] : kShares) {
    if (form.quality == quality)
      settings["steps"] = static_cast<int64_t>(std::ceil(share * static_cast<double>(traits.defaults.steps)));
  }
}

http::Reply Draw(const http::Request& request, const Json& settings, JobPictures pictures,
                 const Pipeline& pipeline, jobs::Queue& queue) {
  const Fields fields(settings);
  fields.RefuseUnknown(KnownFields());
  CheckOpenAiFields(fields, pipeline);
  const OpenAiForm form = OpenAiFormOf(fields, request.path == kEdits);
  pictures.files.merge(PicturesIn(fields, RequestLimits(), IsHere).files);
  Json ours = WithOurBackground(settings, pipeline);
  AddStepsOfQuality(form, pipeline, ours);
  jobs::Request job = MakeJobRequest(Fields(ours), pictures, pipeline);
  if (form.stream) return OpenAiStream(request, queue, queue.Submit(std::move(job)), form);
  return DrawAndReply(request, queue, std::move(job),
                      [&queue, form](const http::Request& asked, const jobs::Job& drawn) {
                        return OpenAiReply(asked, queue, drawn, form);
                      });
}

// A form's field as JSON. What cannot be read as that stays text, and is refused as such by its name.
Json FieldValue(const http::FormPart& part) {
  const FormKind kind = KindOf(part.name);
  if (kind == FormKind::kText) return std::string(part.contents);
  constexpr size_t kMaxBytes = 40, kMaxListBytes = 4000;
  const bool is_list = kind == FormKind::kList;
  const Json value = part.contents.size() > (is_list ? kMaxListBytes : kMaxBytes)
                         ? Json()
                         : Json::parse(part.contents, nullptr, false);
  const bool meant = is_list ? value.is_array() : value.is_number() || value.is_boolean();
  return meant ? value : Json(std::string(part.contents));
}

http::Reply Edit(const http::Request& request, const Pipeline& pipeline, jobs::Queue& queue) {
  if (!http::IsMultipart(request.content_type))
    Fail(ErrorKind::kUsage,
         "the request's Content-Type is {}; multipart/form-data is expected, with the picture in it",
         Quoted(request.content_type));
  Json settings = Json::object();
  JobPictures pictures;
  pictures.names = {{"input_images", "image"}, {"init_image", "image"}};
  std::vector<std::string>& images = pictures.files["input_images"];
  pictures.mask_is_hole = true;
  for (const http::FormPart& part : http::ParseMultipart(request.content_type, request.body)) {
    const bool is_image = part.name == "image" || part.name == "image[]";
    if (is_image) {
      images.emplace_back(part.contents);
    } else if (part.name == "mask" && !pictures.files.contains("mask")) {
      pictures.files["mask"].emplace_back(part.contents);
    } else if (settings.contains(part.name) || part.name == "mask") {
      Fail(ErrorKind::kUsage, "the form has the field {} twice", Quoted(part.name));
    } else {
      CheckText("the name of a field", part.name, 100);
      settings[part.name] = FieldValue(part);
    }
  }
  if (images.empty())
    Fail(ErrorKind::kUsage, "there is nothing to edit: send a picture in the form's field \"image\"");
  // A model that was not made for editing can still begin with a picture.
  if (!pipeline.edits() && images.size() == 1) pictures.files["init_image"] = std::exchange(images, {});
  return Draw(request, settings, pictures, pipeline, queue);
}

Json ModelJson(const Pipeline& pipeline) {
  return {{"id", ModelId(pipeline)}, {"object", "model"}, {"created", 0}, {"owned_by", "qwen-image.cpp"}};
}

http::Reply RouteOfOpenAi(const http::Request& request, const Pipeline& pipeline, jobs::Queue& queue) {
  constexpr std::string_view kModels = "/v1/models";
  const bool is_drawing = !request.path.starts_with(kModels);
  const char* method = is_drawing ? "POST" : "GET";
  if (auto other = OtherMethod(request, {method})) return *other;
  if (request.path == "/v1/images/generations")
    return Draw(request, ParseBody(request.body), {}, pipeline, queue);
  if (request.path == kEdits) return Edit(request, pipeline, queue);
  if (request.path == kModels) return JsonResponse({{"object", "list"}, {"data", {ModelJson(pipeline)}}});
  if (request.path.substr(kModels.size()) == fmt::format("/{}", ModelId(pipeline)))
    return JsonResponse(ModelJson(pipeline));
  return ErrorResponse(request, 404, ErrorType(404),
                       fmt::format("there is no model {}; this server draws with \"{}\"",
                                   Quoted(request.path.substr(kModels.size() + 1)), ModelId(pipeline)),
                       "model_not_found");
}

}  // namespace

std::optional<http::Reply> OpenAiRoute(const http::Request& request, const Pipeline& pipeline,
                                       jobs::Queue& queue) {
  const bool ours = request.path == "/v1/images/generations" || request.path == kEdits ||
                    request.path == "/v1/models" || request.path.starts_with("/v1/models/");
  if (!ours) return std::nullopt;
  return RouteOfOpenAi(request, pipeline, queue);
}

}  // namespace qwen_image::api
