#include "server/api/openai_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "core/fail.h"
#include "files/base64.h"
#include "server/api/drawn_reply.h"
#include "server/api/replies.h"

namespace qwen_image::api {
namespace {

constexpr int64_t kBest = 100;
constexpr int64_t kMostPartialImages = 3;  // OpenAI's limit

EncodedAs EncodingOf(const Fields& fields) {
  const PictureFormat format =
      FormatNamed(fields.OneOf("output_format", {"png", "jpeg", "webp"}).value_or("png")).value();
  const int64_t compression = fields.Whole("output_compression", 0, kBest).value_or(kBest);
  if (format == PictureFormat::kPng && compression != kBest)
    fields.Refuse("output_compression", "100 for PNG pictures, which keep every pixel");
  return {.format = format, .quality = static_cast<int>(compression)};
}

bool HasAlpha(const jobs::Job& job, const OpenAiForm& form) {
  bool alpha = false;
  for (const jobs::JobImage& image : job.images) alpha = alpha || image.channels == 4;
  return alpha && form.as.format != PictureFormat::kJpeg;
}

// What replies and events say of the pictures.
Json Properties(const jobs::Job& job, const OpenAiForm& form) {
  Json properties = {{"background", HasAlpha(job, form) ? "transparent" : "opaque"},
                     {"output_format", NameOf(form.as.format)},
                     {"size", fmt::format("{}x{}", job.width(), job.height())}};
  if (form.quality) properties["quality"] = *form.quality;
  return properties;
}

std::string EventName(const OpenAiForm& form, const char* what) {
  return fmt::format("{}.{}", form.edit ? "image_edit" : "image_generation", what);
}

Json EventJson(const jobs::Job& job, const OpenAiForm& form, const char* what, const std::string& picture) {
  Json json = Properties(job, form);
  json["type"] = EventName(form, what);
  json["b64_json"] = EncodeBase64(picture);
  json["created_at"] = job.created / 1000;
  return json;
}

std::string CompletedText(const jobs::Queue& queue, const jobs::Job& job, const OpenAiForm& form) {
  Json json = EventJson(job, form, "completed", EncodedPicture(queue, job, 0, form.as));
  json["seed"] = job.images.front().seed;
  // There are no tokens to pay for; OpenAI's clients expect the member.
  json["usage"] = {{"input_tokens", 0},
                   {"output_tokens", 0},
                   {"total_tokens", 0},
                   {"input_tokens_details", {{"text_tokens", 0}, {"image_tokens", 0}}}};
  return JsonText(json);
}

// The last event: the picture, or an error as OpenAI's clients understand it in a stream.
http::Event EndOf(const http::Request& asked, const jobs::Queue& queue, const jobs::Job& job,
                  const OpenAiForm& form) {
  if (job.state != jobs::State::kDone)
    return {http::Event::Kind::kEnd, "error", [asked, job] { return FailedJobResponse(asked, job).body; }};
  return {http::Event::Kind::kEnd, EventName(form, "completed"), [asked, &queue, job, form] {
            try {
              return CompletedText(queue, job, form);
            } catch (const Error& error) {
              return ErrorResponse(asked, error).body;
            }
          }};
}

// Chooses those previews that divide the drawing evenly: at most as many as were asked for.
class PartialImages {
 public:
  explicit PartialImages(const OpenAiForm& form) : form_(form) {}

  std::optional<http::Event> Take(const jobs::Job& job, const std::string& preview_png) {
    const int64_t parts = form_.partial_images + 1, steps = std::max<int64_t>(job.progress.steps, 1);
    if (told_ >= form_.partial_images || job.progress.step * parts < (told_ + 1) * steps) return std::nullopt;
    return http::Event{http::Event::Kind::kKept, EventName(form_, "partial_image"),
                       [job, preview_png, form = form_, index = told_++] {
                         Json json = EventJson(job, form, "partial_image", Reencoded(preview_png, form.as));
                         json["partial_image_index"] = index;
                         return JsonText(json);
                       }};
  }

 private:
  const OpenAiForm form_;
  int64_t told_ = 0;
};

}  // namespace

OpenAiForm OpenAiFormOf(const Fields& fields, bool edit) {
  OpenAiForm form{.as = EncodingOf(fields), .edit = edit};
  if (const auto format = fields.OneOf("response_format", {"b64_json", "url"})) {
    form.base64 = *format == "b64_json";
    form.url = !form.base64;
  }
  form.quality = fields.OneOf("quality", {"auto", "standard", "hd", "low", "medium", "high"});
  form.stream = fields.Flag("stream").value_or(false);
  form.partial_images = fields.Whole("partial_images", 0, kMostPartialImages).value_or(0);
  if (form.as.format == PictureFormat::kJpeg &&
      fields.OneOf("background", {"auto", "opaque", "transparent"}) == "transparent")
    fields.Refuse("background", "auto or opaque for JPEG pictures, which have no alpha");
  if (form.stream && fields.Whole("n", 1, RequestLimits().n).value_or(1) != 1)
    fields.Refuse("n", "1 for a stream, which tells of one picture");
  if (!form.stream && form.partial_images > 0) fields.Refuse("partial_images", "0 without \"stream\": true");
  return form;
}

http::Response OpenAiReply(const http::Request& request, const jobs::Queue& queue, const jobs::Job& job,
                           const OpenAiForm& form) {
  Json data = Json::array();
  for (size_t i = 0; i < job.images.size(); ++i) {
    Json image = {{"seed", job.images[i].seed}};
    if (form.base64) image["b64_json"] = EncodeBase64(EncodedPicture(queue, job, i, form.as));
    if (form.url)
      image["url"] =
          fmt::format("{}/jobs/{}/images/{}.{}{}", request.origin, job.id, i, NameOf(form.as.format),
                      form.as.quality == kBest ? "" : fmt::format("?compression={}", form.as.quality));
    data.push_back(std::move(image));
  }
  Json reply = Properties(job, form);
  reply["created"] = job.created / 1000;
  reply["data"] = std::move(data);
  return JsonResponse(reply);
}

http::EventStream OpenAiStream(const http::Request& request, jobs::Queue& queue, const std::string& id,
                               const OpenAiForm& form) {
  http::Request asked = {.path = request.path, .origin = request.origin, .id = request.id};
  return {.job_id = id,
          .events =
              [&queue, id, form, asked](std::function<void(http::Event)> tell) {
                const auto partial = std::make_shared<PartialImages>(form);
                return queue.Subscribe(id, [&queue, form, asked, partial, tell = std::move(tell)](
                                               const jobs::Job& job, const jobs::Event& event) {
                  if (event.kind == jobs::Event::Kind::kEnd) tell(EndOf(asked, queue, job, form));
                  if (event.kind != jobs::Event::Kind::kPreview) return;
                  if (auto told = partial->Take(job, event.preview_png)) tell(std::move(*told));
                });
              },
          .if_none = Problem(request, 404, "the job was removed"),
          .client_left = [&queue, id] { queue.Cancel(id); }};
}

}  // namespace qwen_image::api
