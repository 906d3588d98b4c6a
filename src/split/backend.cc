#include "split/backend.h"

#include <utility>

#include "split/row_ops.h"
#include "split/split_ops.h"

namespace qwen_image::split {
namespace {

class Wrapping final : public Backend {
 public:
  explicit Wrapping(std::shared_ptr<Backend> inner) : inner_(std::move(inner)) {}
  std::unique_ptr<Ops> Start(const Compute& compute) override {
    std::unique_ptr<Ops> ops = inner_->Start(compute);
    if (!compute.group || compute.group->size() == 1) return ops;
    if (compute.split == Split::kLayers)
      return std::make_unique<RowOps>(std::move(ops), *compute.group, compute.profile);
    return std::make_unique<SplitOps>(std::move(ops), *compute.group, compute.profile);
  }
  bool copies_weights() const override { return inner_->copies_weights(); }
  void Release() override { inner_->Release(); }

 private:
  const std::shared_ptr<Backend> inner_;
};

}  // namespace

std::shared_ptr<Backend> SplitBackend(std::shared_ptr<Backend> inner) {
  return std::make_shared<Wrapping>(std::move(inner));
}

}  // namespace qwen_image::split
