#include "device_report.h"

#include "mlx/weight_forms.h"
#include "pipeline/pipeline_impl.h"

namespace qwen_image {
namespace {

MlxWeightUse UseIn(const Pipeline::Impl& model) {
  const std::lock_guard lock(model.vision_encoder_mutex);
  std::vector<const Linear*> layers = model.text_encoder.weights().AllLayers();
  const auto add = [&](const std::vector<const Linear*>& more) {
    layers.insert(layers.end(), more.begin(), more.end());
  };
  if (model.opened_vision_encoder) add(model.opened_vision_encoder->weights().AllLayers());
  add(model.transformer.weights().AllLayers());
  return UseOfWeights(layers);
}

Json ShareJson(const MlxWeightUse::Share& share) {
  return {{"matrices", share.matrices},
          {"file_bytes", share.file_bytes},
          {"device_bytes", share.device_bytes},
          {"formats", share.formats}};
}

}  // namespace

std::string WeightsNote(const Pipeline& pipeline) {
  const Pipeline::Impl& model = pipeline.impl();
  return model.device == Device::kCpu ? "" : DescribeWeights(UseIn(model));
}

Json WeightsJson(const Pipeline& pipeline) {
  const Pipeline::Impl& model = pipeline.impl();
  if (model.device == Device::kCpu) return nullptr;
  const MlxWeightUse use = UseIn(model);
  return {{"as_in_file", ShareJson(use.as_in_file)},
          {"regrouped", ShareJson(use.regrouped)},
          {"decoded", ShareJson(use.decoded)}};
}

}  // namespace qwen_image
