// How far a tensor is from its reference.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace qwen_image {

struct Difference {
  double max_abs = 0;
  double nmse = 0;     // Σ(got − want)² / Σ want²; with a zero reference, Σ(got − want)²
  double max_rel = 0;  // largest |got − want| / max|want|
  int64_t worst = -1;  // index of the largest difference; of the first NaN if there is one
};

// NaN anywhere makes every figure NaN (equal infinities, and NaN in the same place, are no difference).
Difference Compare(const float* got, const float* want, int64_t count);
Difference Compare(const int64_t* got, const int64_t* want, int64_t count);

// What a checkpoint is held to.
struct Tolerance {
  enum class Measure { kMaxAbs, kMaxRel, kNmse } measure = Measure::kNmse;
  double limit = 0;

  double Value(const Difference& d) const;
  bool Accepts(const Difference& d) const { return Value(d) <= limit; }  // false for NaN
  std::string_view name() const;
};

enum class ErrorMode {
  kAccumulated,  // the run computed everything itself
  kIsolated,     // inputs were substituted from the reference
};

// DESIGN's table: exact ids and masks, sigmas 1e-6, timesteps 1e-6 relative, seeded latents 2e-6; isolated
// modules NMSE 1e-10, isolated blocks 1e-8; accumulated 1e-6; the final picture in accumulated runs half a
// level of 255.
Tolerance ToleranceOf(std::string_view checkpoint, ErrorMode mode);

}  // namespace qwen_image
