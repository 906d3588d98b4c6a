// The operations by this program's own kernels.
#pragma once

#include <deque>

#include "kernels/int8/activations.h"
#include "kernels/int8/matmul.h"
#include "kernels/interface.h"
#include "ops/interface.h"

namespace qwen_image {

class CpuOps : public Ops {
 public:
  CpuOps(const Compute& compute, int64_t band_floats) : compute_(compute), band_floats_(band_floats) {}

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
  void Finish(std::span<Array* const>) override {}

  void Multiply(const Linear& layer, const Array& x, Array& y) override;
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

 private:
  // How a layer wants its input in 8 bits.
  struct Int8Form {
    int group;
    Int8Fineness fineness;
    int64_t rotation;
    bool operator==(const Int8Form&) const = default;
  };
  static Int8Form FormOf(const Linear& layer);
  // The input of a projection's products: as floats, in 8 bits, or both.
  struct PreparedInput {
    ConstView floats;  // no rows: not needed
    struct Quantized {
      Int8Form form;
      const Int8Activations* x;
    };
    std::vector<Quantized> int8;
    const Int8Activations* Find(const Int8Form& form) const;  // null: not there
  };
  // What an operation uses of the memory that all share.
  class Memory;

  // Time until its end is this operation's.
  Profile::Scope Timed(std::string_view operation) const { return {compute_.profile, operation}; }
  void Multiply(ConstView x, const Linear& layer, View y);
  void Multiply(std::span<const Int8Product> products);
  void ShowAs(const Tap& tap, std::string_view name, const Shape& shape, Array& x);
  PreparedInput Prepare(const Projection& projection, Memory& memory, const Tap& tap);
  PreparedInput Prepare(ConstView x, const Linear& layer, Memory& memory);
  const float* ShiftOf(const Modulation& modulation, const ModulatedRows& span, int64_t cols) const;
  void Normalize(const Norm& norm, ConstView x, View to);
  void NormAndModulate(const Projection& projection, View to, const Tap& tap);
  const float* NormedRow(const Projection& projection, int64_t row, float* buffer);
  Int8Activations& Quantize(const Linear& layer, int64_t rows, const RowSource& source, Memory& memory);
  void AddUpdates(const Linear& layer, ConstView x, View y, Memory& memory);
  void AddGate(const GatedAddition& addition, View branch, const Tap& tap);

  Conv3x3Input Normed(const std::vector<float>& gamma, const Array& x, const char* name, Array& seen,
                      const Tap& tap);
  Array RunConv(const Conv3x3Layer& layer, const Conv3x3Shape& shape, const Conv3x3Input& input);
  Array BandMemory(const Shape& shape);

  const Compute& compute_;
  const int64_t band_floats_;
  // Kept from operation to operation: clearing new memory takes as long as a layer.
  std::deque<Tensor> floats_;
  std::deque<Int8Activations> int8_;
  std::vector<float> zeros_;
  Array mlp_gate_, mlp_up_;
  Conv3x3Filter filter1_, filter2_;
  Array band_memory_;
};

}  // namespace qwen_image
