#include "parity/compare/criterion.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "families/checkpoint_names.h"
#include "families/vocabulary.h"
#include "parity/record/level.h"

namespace qwen_image::compare {
namespace {

using Kind = Criterion::Kind;

// A floor below the noise of fp32 only says that bfloat16 happened to be exact here.
constexpr double kSmallestFloor = 1e-10;
constexpr double kFloat32Tolerance = 1e-5;
constexpr double kLowPrecisionTolerance = 1e-2;
constexpr double kFloat32ShareOfFloor = 1e-3;

bool IsExactByName(std::string_view checkpoint) {
  return checkpoint.ends_with("input_ids") || checkpoint.ends_with("_mask") || checkpoint == "mask_packed" ||
         checkpoint.ends_with("position_ids") || checkpoint == "image_grid_thw";
}

// Schedules are computed in fp32 at every precision.
std::optional<Criterion> ScheduleCriterion(std::string_view checkpoint) {
  if (checkpoint == "sigmas") return Criterion{.kind = Kind::kMaxAbs, .limit = 1e-6};
  if (checkpoint == "timesteps") return Criterion{.kind = Kind::kMaxRel, .limit = 1e-6};
  return std::nullopt;
}

bool IsTimeProjection(std::string_view checkpoint) {
  const auto all = Vocabularies();
  return std::any_of(all.begin(), all.end(), [&](const Vocabulary* vocabulary) {
    const std::string_view name = vocabulary->checkpoints->time_projection;
    return !name.empty() && checkpoint.ends_with(name);
  });
}

// True for the pixels that the models get.
bool IsPixels(std::string_view checkpoint) {
  return checkpoint == "pixel_values" || checkpoint.starts_with("vae_image");
}
Criterion PixelsCriterion() { return {.kind = Kind::kMaxAbs, .limit = 1e-5}; }

Criterion InitialLatentsCriterion() { return {.kind = Kind::kMaxAbs, .limit = 2e-6}; }

}  // namespace

double MaxAbs(const TensorStats& stats) { return std::max(std::abs(stats.min), std::abs(stats.max)); }

Criterion LiveCriterion(std::string_view checkpoint, ErrorMode mode) {
  if (IsExactByName(checkpoint)) return {.kind = Kind::kExact};
  if (const auto schedule = ScheduleCriterion(checkpoint)) return *schedule;
  if (IsPixels(checkpoint)) return PixelsCriterion();
  if (checkpoint == "initial_latents_packed" || checkpoint == "noise_packed")
    return InitialLatentsCriterion();
  if (mode == ErrorMode::kAccumulated) {
    // A level of the picture is 2 / 255 of the range −1…1; half of one keeps the rounded pixels within one
    // level.
    if (checkpoint == "image") return {.kind = Kind::kMaxAbs, .limit = 1.0 / 255};
    return {.kind = Kind::kNmse, .limit = 1e-6};
  }
  return {.kind = Kind::kNmse,
          .limit = record::LevelOf(checkpoint) == record::CheckpointLevel::kAll ? 1e-10 : 1e-8};
}

Criterion RecordedCriterion(std::string_view checkpoint, const PrecisionFacts& facts,
                            const CriterionOptions& options) {
  if (!facts.is_float || IsExactByName(checkpoint)) return {.kind = Kind::kExact};
  if (options.atol || options.rtol) {
    return {.kind = Kind::kAllClose, .atol = options.atol.value_or(0), .rtol = options.rtol.value_or(0)};
  }
  if (const auto schedule = ScheduleCriterion(checkpoint)) return *schedule;
  if (IsPixels(checkpoint) && !facts.is_low) return PixelsCriterion();
  if ((checkpoint == "initial_latents_packed" || checkpoint == "noise_packed") && !facts.is_low)
    return InitialLatentsCriterion();
  // Sines of angles up to 1000: half a unit in the last place of the angle is 3e-5.
  if (IsTimeProjection(checkpoint) && !facts.is_low) return {.kind = Kind::kMaxAbs, .limit = 1e-4};
  if (facts.is_low && facts.floor) {
    return {.kind = Kind::kFloor,
            .factor = options.floor_factor,
            .floor = std::max(*facts.floor, kSmallestFloor)};
  }
  const double tolerance = facts.is_low ? kLowPrecisionTolerance : kFloat32Tolerance;
  const double grown = facts.is_low ? 0 : kFloat32ShareOfFloor * facts.floor_max_abs;
  return {
      .kind = Kind::kAllClose, .atol = tolerance * std::max(1.0, facts.max_ref) + grown, .rtol = tolerance};
}

std::string_view NameOf(Kind kind) {
  switch (kind) {
    case Kind::kExact:
      return "exact";
    case Kind::kMaxAbs:
      return "max_abs";
    case Kind::kMaxRel:
      return "max_rel";
    case Kind::kNmse:
      return "nmse";
    case Kind::kAllClose:
      return "allclose";
    case Kind::kFloor:
      return "floor";
  }
  return "?";
}

double Measured(const Criterion& criterion, const ErrorStats& error, const TensorStats& ref) {
  switch (criterion.kind) {
    case Kind::kExact:
    case Kind::kMaxAbs:
      return error.max_abs;
    case Kind::kMaxRel:
      return MaxAbs(ref) > 0 ? error.max_abs / MaxAbs(ref) : error.max_abs;
    case Kind::kNmse:
    case Kind::kFloor:
      return error.nmse;
    case Kind::kAllClose:
      return error.allclose;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

double LimitOf(const Criterion& criterion) {
  switch (criterion.kind) {
    case Kind::kExact:
      return 0;
    case Kind::kMaxAbs:
    case Kind::kMaxRel:
    case Kind::kNmse:
      return criterion.limit;
    case Kind::kAllClose:
      return 1;
    case Kind::kFloor:
      return criterion.factor * criterion.factor * criterion.floor;
  }
  return 0;
}

std::string Describe(const Criterion& c) {
  switch (c.kind) {
    case Kind::kExact:
      return "equal values";
    case Kind::kMaxAbs:
      return fmt::format("|error| <= {:.3g}", c.limit);
    case Kind::kMaxRel:
      return fmt::format("|error| <= {:.3g} of the largest |ref|", c.limit);
    case Kind::kNmse:
      return fmt::format("NMSE <= {:.3g}", c.limit);
    case Kind::kAllClose:
      return fmt::format("|error| <= {:.3g} + {:.3g} |ref|", c.atol, c.rtol);
    case Kind::kFloor:
      return fmt::format(
          "NMSE <= {:.3g}: {:.3g} times the error of the reference's own bfloat16 run (NMSE {:.3g})",
          LimitOf(c), c.factor, c.floor);
  }
  return "?";
}

bool Judge(const Criterion& criterion, const ErrorStats& error, const TensorStats& ref,
           const TensorStats& run) {
  return ref.nan == 0 && run.nan == 0 && Measured(criterion, error, ref) <= LimitOf(criterion);
}

void HoldToNmse(double limit, TensorComparison& tensor) {
  if (!tensor.error || tensor.criterion.kind == Kind::kExact) return;
  tensor.criterion = {.kind = Kind::kNmse, .limit = limit};
  tensor.passed = Judge(tensor.criterion, *tensor.error, tensor.ref, tensor.run);
}

}  // namespace qwen_image::compare
