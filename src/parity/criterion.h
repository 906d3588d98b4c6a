// What a checkpoint is held to, and whether it holds.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "parity/comparison.h"

namespace qwen_image {

enum class ErrorMode {
  kAccumulated,  // the run computed everything itself
  kIsolated,     // inputs were substituted from the reference
};

// For a run that is compared while it goes. Exact ids and masks, sigmas 1e-6, timesteps 1e-6
// relative, seeded latents 2e-6; isolated modules NMSE 1e-10, isolated blocks 1e-8; accumulated 1e-6; the
// final picture in accumulated runs half a level of 255.
Criterion LiveCriterion(std::string_view checkpoint, ErrorMode mode);

struct CriterionOptions {
  std::optional<double> atol, rtol;  // one given: numpy.allclose with it, literally; the other is then 0
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

// For two recorded runs. Integers, ids and masks are exact; the names with fixed limits keep them. Then, the
// first that applies: the given atol and rtol; at low precision the floor, where the reference has one;
// |error| ≤ t · max(1, max|ref|) + t · |ref| with t = 1e-5, or 1e-2 at low precision. The scale is in the
// first term because a sum of large terms (values reach 4.5e7 in this model) leaves errors of their size in
// elements that happen to be small. At fp32 a thousandth of the floor's largest error is added: noise that
// grows along the network does so at both precisions, 2^16 times less at fp32.
Criterion RecordedCriterion(std::string_view checkpoint, const PrecisionFacts& facts,
                            const CriterionOptions& options);

std::string_view NameOf(Criterion::Kind kind);  // "exact", "max_abs", "max_rel", "nmse", "allclose", "floor"
// What the criterion looks at, and how much it allows. For kAllClose: ErrorStats::allclose, and 1.
double Measured(const Criterion& criterion, const ErrorStats& error, const TensorStats& ref);
double LimitOf(const Criterion& criterion);
// For people: "|error| <= 1e-05 + 1e-05 |ref|".
std::string Describe(const Criterion& criterion);

// False wherever a NaN is involved, also where both sides have it.
bool Judge(const Criterion& criterion, const ErrorStats& error, const TensorStats& ref,
           const TensorStats& run);

double MaxAbs(const TensorStats& stats);

}  // namespace qwen_image
