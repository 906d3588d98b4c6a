// HintSearch: what all hypotheses share. It holds the two tensors, the test and the list of hints. Internal
// to this folder.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parity/hints/causes.h"

namespace qwen_image::hints {

// A hypothesis says nothing about an element for which it returns this.
inline constexpr double kNoOpinion = std::numeric_limits<double>::quiet_NaN();

inline constexpr double kLargestF16 = 65504;

class HintSearch {
 public:
  HintSearch(const compare::TensorComparison& failed, const HintContext& context, HintTensor ref,
             HintTensor run);

  const std::string& name() const { return failed_.name; }
  const HintTensor& ref() const { return ref_; }
  const HintTensor& run() const { return run_; }
  const HintContext& context() const { return context_; }
  const CheckpointNames& family() const { return *family_; }
  bool same_shape() const { return ref_.shape == run_.shape; }
  int64_t count() const { return static_cast<int64_t>(run_.values.size()); }
  double RefAt(int64_t i) const { return ref_.values[static_cast<size_t>(i)]; }
  double RunAt(int64_t i) const { return run_.values[static_cast<size_t>(i)]; }

  // Another tensor of the reference, if it has this many elements.
  std::optional<HintTensor> OtherRef(const std::string& name, int64_t elements) const;

  struct Fit {
    double before = 0, after = 0;  // NMSE over the elements that the hypothesis speaks of
  };
  struct Terms {
    int64_t fitted = 0;         // numbers that were fitted to the run's tensor
    double least_share = 0.49;  // of the elements must be judged; an off-by-one in a pair judges half of them
  };

  // `value(i)` is what the hypothesis expects of the run's element i. Returns nothing unless the error
  // collapses.
  template <typename Value>
  std::optional<Fit> Test(const Value& value, Terms terms) const;
  template <typename Value>
  std::optional<Fit> Test(const Value& value) const {
    return Test(value, Terms());
  }

  // Whether `value` computes the reference's own tensor. If not, the inputs are not those of the operation.
  template <typename Value>
  bool ExplainsReference(const Value& value) const;

  void Add(std::string kind, Fit fit, std::string text);  // appends the figures to the text
  std::vector<compare::Hint> TakeHints();                 // the best first
  bool found() const { return !hints_.empty(); }
  bool explained() const;  // some hint leaves nothing but rounding: no need to look further

 private:
  struct Energy {
    double before = 0, after = 0, ref = 0, run = 0, expected = 0;
    int64_t judged = 0;
    bool broken = false;  // the hypothesis expects a number where the run has none

    template <typename Value>
    void Take(const HintSearch& search, const Value& value, int64_t i) {
      const double expected_value = value(i), got = search.RunAt(i);
      if (std::isnan(expected_value)) return;
      if (!std::isfinite(got) || !std::isfinite(expected_value)) {
        broken = broken || got != expected_value;
        return;
      }
      ++judged;
      after += (got - expected_value) * (got - expected_value);
      expected += expected_value * expected_value;
      run += got * got;
      if (!search.same_shape()) return;
      const double want = search.RefAt(i);
      if (!std::isfinite(want)) return;
      before += (got - want) * (got - want);
      ref += want * want;
    }
  };

  std::optional<Fit> Judge(const Energy& energy, Terms terms) const;

  const compare::TensorComparison& failed_;
  const HintContext& context_;
  const CheckpointNames* family_;
  HintTensor ref_, run_;
  double mean_square_before_ = 0;  // of the error; of the run's values where the shapes differ
  std::vector<compare::Hint> hints_;
};

template <typename Value>
std::optional<HintSearch::Fit> HintSearch::Test(const Value& value, Terms terms) const {
  // Most hypotheses are far off. A thousand elements, spread over the tensor, show that quickly.
  constexpr int64_t kSample = 1024;
  const int64_t n = count();
  if (n > 4 * kSample) {
    Energy sample;
    const int64_t stride = n / kSample;
    // The second term walks through all remainders, so that no axis is sampled at one index only.
    for (int64_t k = 0; k < kSample; ++k) sample.Take(*this, value, k * stride + k * 7919 % stride);
    if (sample.broken || sample.after > 0.25 * mean_square_before_ * static_cast<double>(sample.judged))
      return {};
  }
  Energy all;
  for (int64_t i = 0; i < n; ++i) all.Take(*this, value, i);
  return Judge(all, terms);
}

template <typename Value>
bool HintSearch::ExplainsReference(const Value& value) const {
  double error = 0, energy = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(ref_.values.size()); ++i) {
    const double expected = value(i), want = RefAt(i);
    if (std::isnan(expected) || !std::isfinite(want)) continue;
    error += (expected - want) * (expected - want);
    energy += want * want;
  }
  return error <= 1e-4 * energy;  // a bf16 reference must pass
}

// Hypotheses about a denoiser's block and its inputs. Each function is in the file of its name.
bool TestRopeHints(HintSearch& search, const BlockName& block);
bool TestAttentionHints(HintSearch& search, const BlockName& block);
bool TestOneStreamHints(HintSearch& search, const BlockName& block);  // modulation, gates and residuals
bool TestOneStreamHeadNorm(HintSearch& search);                       // the norm before the velocity
bool TestScheduleHints(HintSearch& search);      // noise levels, times and their embedding
bool TestPictureHints(HintSearch& search);       // unpacked latents, the decoder's padding, the last clamp
bool TestConditioningHints(HintSearch& search);  // the text encoder, and the norm that reads its embeddings

// The kinds of hypotheses. Each function stops at its first hypothesis that fits.
void TestModelHints(HintSearch& search);      // RoPE, attention, modulation, residuals, guidance, Euler steps
void TestNormHints(HintSearch& search);       // norms, activations
void TestPrecisionHints(HintSearch& search);  // rounding, clamping
void TestValueHints(HintSearch& search);      // zero, sign, factors and offsets, whole or per channel
void TestLayoutHints(HintSearch& search);     // transposed, strided, regrouped, flipped, swapped parts
void TestSequenceHints(HintSearch& search);   // shifted or rotated tokens, another window of tokens
void TestOtherTensorHints(HintSearch& search);  // another step's tensor, a neighbour's tensor

}  // namespace qwen_image::hints
