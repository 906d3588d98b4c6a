#include "mlx/backend.h"

#include "mlx/operations.h"

namespace qwen_image::on_mlx {

std::unique_ptr<Ops> MlxBackend::Start(const Compute& compute) {
  return std::make_unique<MlxOps>(*this, &compute);
}

void MlxBackend::Release() {
  if (placement_.keep_weights) return;
  compiled_.clear();
  layers_.clear();
  vectors_.clear();
  mx::clear_cache();
}

Linear& MlxBackend::Get(const qwen_image::Linear& layer) {
  const auto found = layers_.find(&layer);
  return found != layers_.end() ? found->second : layers_.emplace(&layer, Linear(layer)).first->second;
}

array& MlxBackend::Get(const std::vector<float>& vector) {
  const auto found = vectors_.find(&vector);
  return found != vectors_.end() ? found->second : vectors_.emplace(&vector, ToDevice(vector)).first->second;
}

}  // namespace qwen_image::on_mlx
