// The operations over several machines that compute one pass together. All of them run the same pass. Of an
// array of tokens, [1, tokens, cols], each machine has a share of the rows: what is computed row by row needs
// no others. Of an attention it computes a share of the heads for all tokens, so that queries, keys and
// values change hands before, and results after it. Everything else is computed by all.
//
// The bits are those of one machine: a row does not depend on its neighbours, nor a head on the others.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "machines/group.h"
#include "ops/wrapped.h"

namespace qwen_image::split {

class SplitOps final : public WrappedOps {
 public:
  // `inner`: this machine's own. `group` must outlive this object.
  SplitOps(std::unique_ptr<Ops> inner, const machines::Group& group, Profile* profile)
      : WrappedOps(std::move(inner)), group_(group), profile_(profile) {}

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

 private:
  // Which rows of an array each machine has.
  struct Shares : DeviceValues {
    std::vector<int64_t> ends;  // of each machine's; the first one's begin at 0
    int64_t Begin(int rank) const { return rank == 0 ? 0 : ends[static_cast<size_t>(rank - 1)]; }
    int64_t Count(int rank) const { return ends[static_cast<size_t>(rank)] - Begin(rank); }
  };
  using SharesPtr = std::shared_ptr<const Shares>;
  struct KeptShare;
  class Listener;
  class HeadsMoved;

  static const Shares* SharesOf(const Array& x) { return static_cast<const Shares*>(x.values.get()); }
  SharesPtr EvenShares(int64_t rows) const;
  int64_t OwnBegin(const Array& x) const;
  static Array Split(Array local, const Shape& shape, SharesPtr shares);
  // What this machine has of an array, as an array of its own machine's operations.
  static Array Local(const Array& x);
  Modulation Local(const Modulation& modulation, const Array& x) const;
  Rope Local(const Rope& rope, const Array& x) const;
  // The same values, whose shares are those of an array that New made with as many rows.
  Array Even(const Array& x);
  // All machines' rows of [1, rows, …], of which this one has `own`.
  Tensor Gather(const float* own, const Shape& whole, const Shares& shares) const;
  void ShowWhole(const Tap& tap, std::string_view name, const Shape& whole, const Shares& shares,
                 float* own) const;
  void ShowJoint(const Tap& tap, const char* name, Joint& parts) const;
  Profile::Scope Timed() const { return {profile_, "exchange"}; }

  const machines::Group& group_;
  Profile* const profile_;
  // Of an attention, kept from call to call: this machine's heads of all tokens, and messages.
  std::vector<Array> heads_;
  Tensor messages_;
};

}  // namespace qwen_image::split
