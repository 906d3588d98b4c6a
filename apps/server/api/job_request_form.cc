#include "server/api/job_request_form.h"

#include "files/base64.h"
#include "files/npy.h"
#include "options/json_form.h"
#include "qwen_image/image_file.h"

namespace qwen_image::api {
namespace {

Json FileJson(const Image& image) { return EncodeBase64(EncodePng(image)); }

Json FileJson(const GreyImage& mask) {
  Image image{mask.width, mask.height, {}};
  image.pixels.reserve(mask.pixels.size() * 3);
  for (const uint8_t value : mask.pixels) image.pixels.insert(image.pixels.end(), 3, value);
  return FileJson(image);
}

Json DataJson(const options::Field& field, const GenerateRequest& request) {
  return options::VisitValue(
      field, request,
      options::ByType{[](const std::vector<Image>& images) {
                        Json files = Json::array();
                        for (const Image& image : images) files.push_back(FileJson(image));
                        return files;
                      },
                      [](const std::optional<Image>& image) { return FileJson(*image); },
                      [](const std::optional<GreyImage>& mask) { return FileJson(*mask); },
                      [](const std::optional<InitialLatents>& latents) {
                        return Json(EncodeBase64(EncodeNpy(latents->values, latents->shape)));
                      },
                      [](const auto&) { return Json(); }});
}

}  // namespace

Json JobRequestJson(const jobs::Request& job) {
  const GenerateRequest& request = job.request;
  Json json = {{"n", job.count}};
  for (const options::Field& field : options::Fields()) {
    if (field.not_in.http) continue;
    // A prompt must be there, and without a seed one would be drawn anew.
    const bool needed = field.recorded == options::Recorded::kRequired;
    if (!needed && options::IsDefault(field, request)) continue;
    json[field.name] = options::IsData(field) ? DataJson(field, request) : options::ToJson(field, request);
  }
  return json;
}

}  // namespace qwen_image::api
