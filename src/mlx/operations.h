// The operations on MLX. Arrays are lazy: nothing is computed before Finish, a listener or a result asks for
// it.
#pragma once

#include <map>

#include "mlx/backend.h"

namespace qwen_image::on_mlx {

class MlxOps : public Ops {
 public:
  // `compute` is null while a part is being compiled: there are no listeners then.
  MlxOps(MlxBackend& backend, const Compute* compute) : backend_(backend), compute_(compute) {}

  void Run(const std::function<void()>& work) override;

  Array New(const Shape& shape) override;
  Joint PartsOf(const Array& memory, std::span<const int64_t> tokens) override;
  Array FromHost(const Tensor& x) override;
  Tensor ToHost(const Array& x) override;
  Array Rows(const Array& x, int64_t first, int64_t count) override;
  Array Cols(const Array& x, int64_t first, int64_t count) override;
  Array JoinRows(std::span<const Array> parts) override;
  Array JoinCols(std::span<const Array> parts) override;
  Array Reshaped(const Array& x, const Shape& shape) override;
  Array Reordered(const Array& x, std::span<const int64_t> order, int64_t unit) override;
  void Show(const Tap& tap, std::string_view name, Array& x) override;
  Array Keep(const Array& x, Keeping keeping) override;
  void Restore(const Array& kept, Array& x) override;
  void Finish(std::span<Array* const> arrays) override;

  void Multiply(const qwen_image::Linear& layer, const Array& x, Array& y) override;
  void RmsNorm(const std::vector<float>& weight, float eps, Array& x) override;
  void LayerNorm(const std::vector<float>& weight, const std::vector<float>& bias, float eps,
                 Array& x) override;
  void Silu(Array& x) override;
  void Tanh(Array& x) override;
  void SiluMul(const Array& up, Array& gate) override;
  void Add(const Array& x, Array& sum) override;
  void Project(std::span<const Projection> projections, const Tap& tap) override;
  void AddProjected(std::span<const GatedAddition> additions, const Tap& tap) override;
  void AddGatedMlp(const GatedMlp& mlp, const Tap& tap) override;
  void NormAndRotate(std::span<const NormRope> inputs, const Tap& tap) override;
  void RotateHalves(const Rope& rope, Array& x) override;
  void Attend(const AttentionInput& input, Joint& out, const Tap& tap) override;

  Array FromPicture(const Tensor& x) override;
  Tensor ToPicture(const Array& x, Frames frames) override;
  void ShowPicture(const Tap& tap, std::string_view name, Array& x, Frames frames) override;
  Array Convolve(const Conv& layer, const Array& x, int64_t stride, int64_t pad_after) override;
  Array Convolve(const Conv3x3Layer& layer, const Array& x, bool upsample) override;
  Array ChannelNorm(const std::vector<float>& gamma, const Array& x) override;
  Array NormSiluConvolve(const std::vector<float>& gamma, const char* norm, const Conv3x3Layer& layer,
                         const Array& x, const Tap& tap) override;
  void AddBranch(const ConvBranch& branch, const Array& x, Array& sum, const Tap& tap) override;
  Array FoldedMeans(const Folding& folding, const Array& x, int64_t channels) override;
  void AddUnfolded(const Folding& folding, const Array& x, Array& sum, const char* name,
                   const Tap& tap) override;

  bool compiles() const override { return backend_.placement().compile; }
  void RunCompiled(const CompiledPart& part, std::span<Array> state) override;

 private:
  const Linear& Get(const qwen_image::Linear& layer);
  const array& Get(const std::vector<float>& vector);
  void Project(const Projection& p, const Tap& tap);
  void AddProjected(const GatedAddition& a, const Tap& tap);

  MlxBackend& backend_;
  const Compute* const compute_;
  // While a part is compiled, its weights are the function's arguments.
  std::map<const qwen_image::Linear*, Linear> layer_arguments_;
  std::map<const std::vector<float>*, array> vector_arguments_;
  bool compiling_ = false;
};

}  // namespace qwen_image::on_mlx
