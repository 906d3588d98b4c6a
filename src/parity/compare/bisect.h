// Bisect finds the first operation that errs. It compares coarse checkpoints first, then looks into the part
// that fails. The caller runs the model: Bisect only says what to run.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "parity/compare/result.h"

namespace qwen_image::compare {

// One run that the search asks for.
struct BisectPlan {
  std::string component;        // "text_encoder", "transformer", "vae" alone on the reference's inputs;
                                // empty: the whole pipeline
  std::optional<int64_t> step;  // of the transformer; none: every step
  std::string checkpoints;      // see CheckpointSelection
  bool isolated = false;        // every operation starts from the reference's tensors
};

using BisectRunner = std::function<Comparison(const BisectPlan&)>;

struct BisectRound {
  BisectPlan plan;
  size_t compared = 0, failed = 0;
  std::string first_bad;  // empty: none
};

// A checkpoint of the failing part with the error it carries and the error it makes.
struct BisectRow {
  std::string name;
  double accumulated = 0;          // NMSE; NaN if it cannot be compared
  std::optional<double> isolated;  // none: not measured alone
  bool accumulated_failed = false, isolated_failed = false;
};

struct BisectResult {
  std::vector<BisectRound> rounds;
  std::vector<BisectRow> rows;  // the failing part at the finest level that the reference holds
  std::string component;        // of the failing part; empty for the pipeline's own arithmetic
  std::optional<int64_t> step;
  std::string first_bad;  // where the run leaves the reference; empty: nowhere
  std::string culprit;    // the operation whose own error is too large; if empty, `conclusion` says why
  std::optional<TensorComparison> evidence;  // of the culprit, or of first_bad
  std::string conclusion;                    // for people
};

BisectResult Bisect(const BisectRunner& run);

std::string BisectText(const BisectResult& result);
Json BisectJson(const BisectResult& result);

}  // namespace qwen_image::compare
