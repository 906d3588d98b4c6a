// Operations that do something around another device's, and leave the rest to it.
#pragma once

#include <memory>
#include <utility>

#include "ops/interface.h"

namespace qwen_image {

class WrappedOps : public Ops {
 public:
  explicit WrappedOps(std::unique_ptr<Ops> inner) : inner_(std::move(inner)) {}

  void Run(const std::function<void()>& work) override { inner_->Run(work); }

  Array New(const Shape& shape) override { return inner_->New(shape); }
  Joint PartsOf(const Array& memory, std::span<const int64_t> tokens) override {
    return inner_->PartsOf(memory, tokens);
  }
  Array FromHost(const Tensor& x) override { return inner_->FromHost(x); }
  Tensor ToHost(const Array& x) override { return inner_->ToHost(x); }
  Array Rows(const Array& x, int64_t first, int64_t count) override { return inner_->Rows(x, first, count); }
  Array Cols(const Array& x, int64_t first, int64_t count) override { return inner_->Cols(x, first, count); }
  Array JoinRows(std::span<const Array> parts) override { return inner_->JoinRows(parts); }
  Array JoinCols(std::span<const Array> parts) override { return inner_->JoinCols(parts); }
  Array Reshaped(const Array& x, const Shape& shape) override { return inner_->Reshaped(x, shape); }
  Array Reordered(const Array& x, std::span<const int64_t> order, int64_t unit) override {
    return inner_->Reordered(x, order, unit);
  }
  void Show(const Tap& tap, std::string_view name, Array& x) override { inner_->Show(tap, name, x); }
  Array Keep(const Array& x, Keeping keeping) override { return inner_->Keep(x, keeping); }
  void Restore(const Array& kept, Array& x) override { inner_->Restore(kept, x); }
  void Finish(std::span<Array* const> arrays) override { inner_->Finish(arrays); }

  void Multiply(const Linear& layer, const Array& x, Array& y) override { inner_->Multiply(layer, x, y); }
  void RmsNorm(const std::vector<float>& weight, float eps, Array& x) override {
    inner_->RmsNorm(weight, eps, x);
  }
  void LayerNorm(const std::vector<float>& weight, const std::vector<float>& bias, float eps,
                 Array& x) override {
    inner_->LayerNorm(weight, bias, eps, x);
  }
  void Silu(Array& x) override { inner_->Silu(x); }
  void Tanh(Array& x) override { inner_->Tanh(x); }
  void SiluMul(const Array& up, Array& gate) override { inner_->SiluMul(up, gate); }
  void Add(const Array& x, Array& sum) override { inner_->Add(x, sum); }
  void Project(std::span<const Projection> projections, const Tap& tap) override {
    inner_->Project(projections, tap);
  }
  void AddProjected(std::span<const GatedAddition> additions, const Tap& tap) override {
    inner_->AddProjected(additions, tap);
  }
  void AddGatedMlp(const GatedMlp& mlp, const Tap& tap) override { inner_->AddGatedMlp(mlp, tap); }
  void NormAndRotate(std::span<const NormRope> inputs, const Tap& tap) override {
    inner_->NormAndRotate(inputs, tap);
  }
  void RotateHalves(const Rope& rope, Array& x) override { inner_->RotateHalves(rope, x); }
  void Attend(const AttentionInput& input, Joint& out, const Tap& tap) override {
    inner_->Attend(input, out, tap);
  }

  Array FromPicture(const Tensor& x) override { return inner_->FromPicture(x); }
  Tensor ToPicture(const Array& x, Frames frames) override { return inner_->ToPicture(x, frames); }
  void ShowPicture(const Tap& tap, std::string_view name, Array& x, Frames frames) override {
    inner_->ShowPicture(tap, name, x, frames);
  }
  Array Convolve(const Conv& layer, const Array& x, int64_t stride, int64_t pad_after) override {
    return inner_->Convolve(layer, x, stride, pad_after);
  }
  Array Convolve(const Conv3x3Layer& layer, const Array& x, bool upsample) override {
    return inner_->Convolve(layer, x, upsample);
  }
  Array ChannelNorm(const std::vector<float>& gamma, const Array& x) override {
    return inner_->ChannelNorm(gamma, x);
  }
  Array NormSiluConvolve(const std::vector<float>& gamma, const char* norm, const Conv3x3Layer& layer,
                         const Array& x, const Tap& tap) override {
    return inner_->NormSiluConvolve(gamma, norm, layer, x, tap);
  }
  void AddBranch(const ConvBranch& branch, const Array& x, Array& sum, const Tap& tap) override {
    inner_->AddBranch(branch, x, sum, tap);
  }
  Array FoldedMeans(const Folding& folding, const Array& x, int64_t channels) override {
    return inner_->FoldedMeans(folding, x, channels);
  }
  void AddUnfolded(const Folding& folding, const Array& x, Array& sum, const char* name,
                   const Tap& tap) override {
    inner_->AddUnfolded(folding, x, sum, name, tap);
  }

 protected:
  const std::unique_ptr<Ops> inner_;
};

}  // namespace qwen_image
