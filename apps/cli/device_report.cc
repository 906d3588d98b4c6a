#include "device_report.h"

#include <fmt/format.h>

#include "draw/opened_model.h"
#include "kernels/int8/tile.h"
#include "kernels/interface.h"
#include "mlx/weight_forms.h"

namespace qwen_image::cli {
namespace {

Json ShareJson(const MlxWeightUse::Share& share) {
  return {{"matrices", share.matrices},
          {"file_bytes", share.file_bytes},
          {"device_bytes", share.device_bytes},
          {"formats", share.formats}};
}

}  // namespace

std::string WeightsNote(const Pipeline& pipeline) {
  const draw::OpenedModel& model = draw::ModelOf(pipeline);
  return model.device == Device::kCpu ? "" : DescribeWeights(model.model->WeightsOnDevice());
}

Json WeightsJson(const Pipeline& pipeline) {
  const draw::OpenedModel& model = draw::ModelOf(pipeline);
  if (model.device == Device::kCpu) return nullptr;
  const MlxWeightUse use = model.model->WeightsOnDevice();
  return {{"as_in_file", ShareJson(use.as_in_file)},
          {"regrouped", ShareJson(use.regrouped)},
          {"decoded", ShareJson(use.decoded)}};
}

std::string KernelsNote(const Pipeline& pipeline) {
  if (pipeline.device() != Device::kCpu) return "";
  return fmt::format(" ({}, 8-bit products {})", InstructionSet(), ChosenInt8Kernel().name);
}

Json KernelsJson(const Pipeline& pipeline) {
  if (pipeline.device() != Device::kCpu) return nullptr;
  return {{"floats", InstructionSet()}, {"int8", ChosenInt8Kernel().name}};
}

}  // namespace qwen_image::cli
