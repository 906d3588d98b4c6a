#include "pipeline/drawn_record.h"

#include <fmt/format.h>

#include "pipeline/pipeline_impl.h"
#include "qwen_image/image_file.h"

namespace qwen_image {
namespace {

const char* TilingName(GenerateRequest::Tiling tiling) {
  switch (tiling) {
    case GenerateRequest::Tiling::kOn:
      return "on";
    case GenerateRequest::Tiling::kOff:
      return "off";
    case GenerateRequest::Tiling::kAuto:
      break;
  }
  return "auto";
}

void AddSource(const Picture& picture, const GenerateRequest& request, Json& record) {
  if (const Margins& m = request.outpaint; m.any())
    record["outpaint"] = fmt::format("{},{},{},{}", m.left, m.top, m.right, m.bottom);
  if (picture.strength) record["strength"] = *picture.strength;
  if (!request.blend) record["no_blend"] = true;
  if (request.keep_size) record["keep_size"] = true;
  // The result may have the size of its input, or another than it was drawn at; what was asked for is this.
  if (!picture.source) return;
  const bool asked = request.width || request.height;
  record["size"] = asked ? fmt::format("{}x{}", picture.source->working_width, picture.source->working_height)
                         : "as the input";
}

}  // namespace

Json DrawnRecord(const Picture& picture, const GenerateRequest& request, const std::string& model_name,
                 const Pipeline::Impl& model) {
  Json record = {{"version", Version()},
                 {"model", model_name},
                 {"prompt", picture.prompt},
                 {"negative_prompt", picture.negative_prompt},
                 {"width", picture.width},
                 {"height", picture.height},
                 {"steps", picture.steps},
                 {"cfg", picture.cfg},
                 {"seed", picture.seed},
                 {"max_sequence_length", request.max_sequence_length},
                 {"reference_special_tokens", request.reference_special_tokens},
                 {"precision", model.precision == Precision::kExact ? "exact" : "fast"},
                 {"device", NameOf(model.device)},  // for those who read it: another draws the same
                 {"vae_tiling", TilingName(request.vae_tiling)}};
  if (!request.sigmas.empty()) record["sigmas"] = request.sigmas;
  if (!request.background.empty()) record["background"] = request.background;
  if (request.step_cache > 0) record["step_cache"] = request.step_cache;
  AddSource(picture, request, record);
  for (const AppliedLora& lora : model.model->loras().applied()) {
    record["loras"].push_back({{"file", lora.name},
                               {"scale", lora.scale},
                               {"layers", lora.layers},
                               {"total_layers", lora.total},
                               {"min_rank", lora.min_rank},
                               {"max_rank", lora.max_rank},
                               {"lightning_steps", lora.lightning_steps}});
  }
  return record;
}

void NameSources(const GenerateRequest& request, const std::string& names, Json& record) {
  for (size_t i = 0; i < request.input_images.size(); ++i)
    record["input_images"].push_back(fmt::format("{}-{}", names, i + 1));
  if (request.init_image) record["init_image"] = names;
  if (request.mask) record["mask"] = names + "-mask";
  if (request.latents) record["latents"] = names + "-latents";
}

std::string RecordText(const Json& record) {
  return record.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::map<std::string, std::string> PngText(const Json& record) {
  return {{kRecordKey, RecordText(record)}, {"Software", std::string("qwen-image.cpp ") + Version()}};
}

void Picture::SavePng(const std::filesystem::path& path) const { WritePng(path, image(), png_text); }

}  // namespace qwen_image
