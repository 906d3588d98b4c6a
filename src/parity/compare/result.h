// Comparison: what a comparison of two runs found. Every report of `compare` and `--debug` is made from it:
// the table, JSON, JUnit and HTML.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "files/json.h"

namespace qwen_image::compare {

// One side of a checkpoint. Figures are over the finite values.
struct TensorStats {
  Shape shape;
  std::string dtype;  // NumPy's name: "float32", "int64"; "bfloat16" where a safetensors file holds it
  double min = 0, max = 0, mean = 0, std = 0, sum = 0;
  int64_t nan = 0, inf = 0;
  std::vector<double> first;  // the first values, at most 10
};

// run − ref. A NaN or an infinity on one side only makes every figure NaN.
struct ErrorStats {
  double max_abs = 0, mean_abs = 0;
  double max_rel = 0;  // largest |error| / max(|ref|, 1e-6 · max|ref|)
  double nmse = 0;     // Σ error² / Σ ref²; with a zero reference, Σ error²
  double cosine = 1;
  double psnr = 0;                             // dB, peak = max ref − min ref; infinite when equal
  std::optional<double> max_ulp;               // where both sides are float32
  double p50 = 0, p90 = 0, p99 = 0, p999 = 0;  // quantiles of |error|
  double allclose = 0;                         // under kAllClose: largest |error| / (atol + rtol · |ref|)
  int64_t outside = 0;                         // under kAllClose: elements where that is above 1
  int64_t worst = -1;  // flat index of the largest error; of the first NaN or infinity if there is one
  double worst_ref = 0, worst_run = 0;
};

// What a checkpoint is held to. NaN never passes.
struct Criterion {
  enum class Kind {
    kExact,     // equal values
    kMaxAbs,    // max_abs ≤ limit
    kMaxRel,    // max_abs / max|ref| ≤ limit
    kNmse,      // nmse ≤ limit
    kAllClose,  // |error| ≤ atol + rtol · |ref| for every element
    kFloor,     // nmse ≤ factor² · floor: the reference's own error (NMSE) between fp32 and bf16
  } kind = Kind::kNmse;
  double limit = 0;              // kMaxAbs, kMaxRel, kNmse
  double atol = 0, rtol = 0;     // kAllClose
  double factor = 0, floor = 0;  // kFloor
};

// A cause that was tried and fits: if the reference is changed in this way, the error nearly vanishes.
struct Hint {
  std::string kind;  // "transposed_axes", "constant_factor", …: see docs/debugging.md
  std::string text;  // for people, with the figures
  double nmse_before = 0, nmse_after = 0;
};

struct TensorComparison {
  std::string name;      // the reference's
  std::string run_name;  // the run's, where a map gave another
  // The lines of the programs that made it, where their recorders tell.
  std::string ref_source, run_source;
  TensorStats ref, run;
  std::optional<ErrorStats> error;  // none: the two cannot be compared
  Criterion criterion;
  std::string problem;  // why they cannot be compared: another shape or type
  bool passed = false;
  std::vector<Hint> hints;
};

struct ImageComparison {
  std::string what;  // "tensor, before the clamp" or "PNG"
  double psnr = 0, ssim = 0;
  double rmse = 0, max_levels = 0;                           // in 8-bit levels
  std::vector<double> ref_mean, ref_std, run_mean, run_std;  // per channel, in the picture's own values
  std::string problem;                                       // why they cannot be compared: another size
  std::string note;                                          // that only one of them has alpha
  std::optional<bool> passed;                                // where pictures are all there is to judge
};

struct ManifestDifference {
  std::string key, ref, run;
  bool fatal = false;  // prompt, size, steps, …: runs that cannot be compared unless forced
};

// What tells which of the tensors that failed was computed first.
enum class Order {
  kReference,  // its manifest, or its file
  kRun,        // the same of the run
  kNames,      // they are a family's, or differ in their numbers only
  kUnknown,    // nothing
};

struct Comparison {
  std::filesystem::path ref_path, run_path;
  Json ref_manifest, run_manifest;  // null where there is none
  std::vector<ManifestDifference> manifest_differences;
  std::vector<TensorComparison> tensors;  // in the order in which they were computed, as far as it is known
  Order order = Order::kReference;
  // What the reference has between the run's last right tensor and its first wrong one, and the run lacks.
  std::vector<std::string> undumped;
  std::vector<std::string> missing;  // in the reference only
  std::vector<std::string> extra;    // in the run only
  std::vector<ImageComparison> pictures;
  std::vector<std::string> notes;  // what was left out, and why

  // Null if every tensor passed, and if several failed whose order is unknown.
  const TensorComparison* first_divergence() const;
  int64_t failed() const;  // tensors
  bool passed() const;     // something was compared, nothing failed, nothing is missing or extra
};

std::string_view NameOf(Order order);  // "reference", "run", "names", "unknown"

}  // namespace qwen_image::compare
