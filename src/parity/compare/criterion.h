// Criteria: what a checkpoint is held to, and whether it meets that.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "parity/compare/result.h"

namespace qwen_image::compare {

enum class ErrorMode {
  kAccumulated,  // the run computed everything itself
  kIsolated,     // inputs were substituted from the reference
};

// The criterion for a run that is compared while it goes on. Ids and masks are exact. Sigmas may differ by
// 1e-6, timesteps by 1e-6 relative, seeded latents by 2e-6. NMSE may be 1e-10 for isolated modules, 1e-8 for
// isolated blocks, 1e-6 for accumulated runs. The final picture of an accumulated run may be half a level of
// 255 off.
Criterion LiveCriterion(std::string_view checkpoint, ErrorMode mode);

struct CriterionOptions {
  std::optional<double> atol, rtol;  // as in numpy.allclose; if only one is given, the other is 0
  double floor_factor = 2;
};

// What is known about the two sides of a checkpoint.
struct PrecisionFacts {
  bool is_float = true;
  bool is_low = false;          // one side was computed in bfloat16 or float16
  std::optional<double> floor;  // NMSE of the reference's own bfloat16 run
  double floor_max_abs = 0;     // and its largest error
  double max_ref = 0;           // largest |reference|
};

// The criterion for two recorded runs. Integers, ids and masks are exact, and names with fixed limits keep
// them. For all others the first of these applies:
//  1. the given atol and rtol;
//  2. at low precision the floor, if the reference has one;
//  3. |error| ≤ t · max(1, max|ref|) + t · |ref| with t = 1e-5, or 1e-2 at low precision.
// The first term of 3 grows with max|ref|: a sum of large terms (values reach 4.5e7 in this model) leaves
// errors of their size in elements that happen to be small. At fp32 a thousandth of the floor's largest error
// is added: noise grows along the network at both precisions, but is 2^16 times smaller at fp32.
Criterion RecordedCriterion(std::string_view checkpoint, const PrecisionFacts& facts,
                            const CriterionOptions& options);

std::string_view NameOf(Criterion::Kind kind);  // "exact", "max_abs", "max_rel", "nmse", "allclose", "floor"
// The figure that the criterion looks at, and its limit. For kAllClose: ErrorStats::allclose, and 1.
double Measured(const Criterion& criterion, const ErrorStats& error, const TensorStats& ref);
double LimitOf(const Criterion& criterion);
// For people: "|error| <= 1e-05 + 1e-05 |ref|".
std::string Describe(const Criterion& criterion);

// Whether the criterion is met. A NaN never passes, even if both sides have it.
bool Judge(const Criterion& criterion, const ErrorStats& error, const TensorStats& ref,
           const TensorStats& run);

// Judges the tensor again by this NMSE, unless its values have to be equal.
void HoldToNmse(double limit, TensorComparison& tensor);

// The most that a block may be off that is computed from the right inputs with activations of 8 bits or
// bfloat16. With those every product rounds its inputs to 8 bits, which alone is an NMSE of 1e-6 to 3e-5;
// attention in 8 bits may be off by 1e-3 itself. About ten times what MLX's CPU device shows with the
// embedded model in bfloat16 (1.1e-4 in a block).
inline constexpr double kRoundedBlockNmse = 1e-3;

double MaxAbs(const TensorStats& stats);

}  // namespace qwen_image::compare
