// Hypotheses about norms and activations. Their input is looked for among the reference's tensors before
// them: it is the one from which the operation gives the reference's tensor.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "parity/hints/search.h"

namespace qwen_image::hints {
namespace {

double ElementOf(const HintTensor& t, int64_t i) { return t.values[static_cast<size_t>(i)]; }

// The tensors that may be the operation's input, the nearest first.
std::vector<std::string> InputsBefore(const HintSearch& s, std::ptrdiff_t most) {
  const auto& all = s.context().names;
  std::vector<std::string> names;
  auto here = std::find(all.begin(), all.end(), s.name());
  if (here == all.end()) return names;
  const auto begin = here - std::min(most, here - all.begin());
  while (here != begin) names.push_back(*--here);
  names.emplace_back(s.name().find(".neg/") == std::string::npos ? "prompt_embeds"
                                                                 : "negative_prompt_embeds");
  return names;
}

// ── Norms ──

// x / sqrt(mean square + epsilon), or the same of x − mean, over groups of `width` elements.
struct NormalizedRows {
  std::vector<double> mean, square;  // of each group
  int64_t width = 0;

  NormalizedRows(const HintTensor& x, int64_t group, bool centred) : width(group) {
    const auto groups = static_cast<int64_t>(x.values.size()) / width;
    for (int64_t g = 0; g < groups; ++g) {
      double sum = 0, squares = 0;
      for (int64_t i = g * width; i < (g + 1) * width; ++i)
        sum += ElementOf(x, i), squares += ElementOf(x, i) * ElementOf(x, i);
      const double n = static_cast<double>(width), m = centred ? sum / n : 0;
      mean.push_back(m);
      square.push_back(squares / n - m * m);
    }
  }
  double Value(const HintTensor& x, int64_t i, double epsilon) const {
    const auto g = static_cast<size_t>(i / width);
    return (ElementOf(x, i) - mean[g]) / std::sqrt(std::max(square[g], 0.0) + epsilon);
  }
};

constexpr double kRightEpsilon = 1e-6;  // of all norms of these models

class Norm {
 public:
  Norm(const HintSearch& s, HintTensor x, bool centred)
      : x_(std::move(x)),
        width_(s.ref().shape.back()),
        centred_(centred),
        normalized_(x_, width_, centred),
        weight_(static_cast<size_t>(width_)) {
    std::vector<double> squares(weight_.size());
    for (int64_t i = 0; i < s.count(); ++i) {
      const auto c = static_cast<size_t>(i % width_);
      const double value = normalized_.Value(x_, i, kRightEpsilon);
      weight_[c] += value * s.RefAt(i);
      squares[c] += value * value;
    }
    for (size_t c = 0; c < weight_.size(); ++c) weight_[c] = squares[c] > 0 ? weight_[c] / squares[c] : 0;
  }

  double X(int64_t i) const { return ElementOf(x_, i); }
  double Weight(int64_t i) const { return weight_[static_cast<size_t>(i % width_)]; }
  double Right(int64_t i) const { return WithEpsilon(i, kRightEpsilon); }
  double WithEpsilon(int64_t i, double epsilon) const {
    return normalized_.Value(x_, i, epsilon) * Weight(i);
  }
  double Other(const NormalizedRows& other, int64_t i) const {
    return other.Value(x_, i, kRightEpsilon) * Weight(i);
  }
  NormalizedRows Over(int64_t width) const { return {x_, width, centred_}; }
  NormalizedRows OtherKind() const { return {x_, width_, !centred_}; }
  bool centred() const { return centred_; }

  // The epsilon that explains how much smaller each group of the run is.
  double EpsilonOf(const HintSearch& s) const {
    double weighed = 0, weights = 0;
    for (size_t g = 0; g < normalized_.square.size(); ++g) {
      double along = 0, square = 0;
      for (int64_t i = static_cast<int64_t>(g) * width_; i < static_cast<int64_t>(g + 1) * width_; ++i) {
        along += s.RunAt(i) * Right(i);
        square += Right(i) * Right(i);
      }
      if (!(along > 0 && square > 0)) continue;
      const double smaller = square / along, share = 1 / std::max(normalized_.square[g], 1e-30);
      weighed +=
          share * ((normalized_.square[g] + kRightEpsilon) * smaller * smaller - normalized_.square[g]);
      weights += share;
    }
    return weights > 0 ? weighed / weights : 0;
  }

 private:
  HintTensor x_;
  int64_t width_;
  bool centred_;
  NormalizedRows normalized_;
  std::vector<double> weight_;  // that of the reference
};

bool TestNorm(HintSearch& s, const Norm& norm) {
  if (const auto fit = s.Test([&](int64_t i) { return norm.X(i); })) {
    s.Add("missing_norm", *fit, "The norm was skipped: the run holds its input.");
    return true;
  }
  const Shape& shape = s.ref().shape;
  if (shape.size() == 4 && shape[2] > 1) {
    const NormalizedRows all_heads = norm.Over(shape[2] * shape[3]);
    if (const auto fit = s.Test([&](int64_t i) { return norm.Other(all_heads, i); })) {
      s.Add("norm_over_all_heads", *fit,
            "The norm was taken over all heads of a token at once; it is over each head by itself.");
      return true;
    }
  }
  const NormalizedRows other = norm.OtherKind();
  if (const auto fit = s.Test([&](int64_t i) { return norm.Other(other, i); })) {
    s.Add("wrong_norm", *fit,
          norm.centred() ? "An RMSNorm took the place of a LayerNorm: the mean was not subtracted."
                         : "A LayerNorm took the place of an RMSNorm: the mean was subtracted.");
    return true;
  }
  if (const auto fit =
          s.Test([&](int64_t i) { return norm.Weight(i) != 0 ? norm.Right(i) / norm.Weight(i) : 0; })) {
    s.Add("missing_norm_weight", *fit, "The norm's weight is missing: the run is normalized only.");
    return true;
  }
  const double epsilon = norm.EpsilonOf(s);
  if (!(epsilon >= 0) || std::abs(epsilon / kRightEpsilon - 1) < 0.5) return false;
  const auto fit = s.Test([&](int64_t i) { return norm.WithEpsilon(i, epsilon); }, {.fitted = 1});
  if (!fit) return false;
  s.Add("norm_epsilon", *fit,
        fmt::format("The norm's epsilon is {:.2g} instead of {:.0e}.", epsilon, kRightEpsilon));
  return true;
}

// Whether a tensor is the norm of another: fitted weights must leave little, and much fewer of them than
// elements.
bool TestNorms(HintSearch& s) {
  const Shape& shape = s.ref().shape;
  if (shape.empty() || shape.back() < 8 || s.count() < 4 * shape.back()) return false;
  constexpr std::ptrdiff_t kMost = 12;  // the norms of queries stand behind all projections
  for (const std::string& name : InputsBefore(s, kMost)) {
    const auto x = s.OtherRef(name, s.count());
    if (!x || x->values == s.ref().values) continue;
    for (const bool centred : {false, true}) {
      const Norm norm(s, *x, centred);
      if (s.ExplainsReference([&](int64_t i) { return norm.Right(i); })) return TestNorm(s, norm);
    }
  }
  return false;
}

// ── Activations ──

struct Activation {
  const char* name;
  double (*value)(double x);
};
constexpr std::array<Activation, 6> kActivations = {{
    {"gelu (tanh)",
     [](double x) { return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }},
    {"gelu (exact)", [](double x) { return 0.5 * x * (1 + std::erf(x * 0.7071067811865476)); }},
    {"SiLU", [](double x) { return x / (1 + std::exp(-x)); }},
    {"gelu (sigmoid)", [](double x) { return x / (1 + std::exp(-1.702 * x)); }},
    {"ReLU", [](double x) { return std::max(x, 0.0); }},
    {"no activation", [](double x) { return x; }},
}};

// The activation that makes the reference's tensor of `x`; null if none does.
const Activation* OfReference(const HintSearch& s, const HintTensor& x) {
  const Activation* best = nullptr;
  double least = 0;
  for (const Activation& a : kActivations) {
    if (!s.ExplainsReference([&](int64_t i) { return a.value(ElementOf(x, i)); })) continue;
    double error = 0;
    for (int64_t i = 0; i < s.count(); ++i) {
      const double difference = a.value(ElementOf(x, i)) - s.RefAt(i);
      error += difference * difference;
    }
    if (best && error >= least) continue;
    best = &a;
    least = error;
  }
  return best;
}

bool TestActivations(HintSearch& s) {
  for (const std::string& name : InputsBefore(s, 2)) {
    const auto x = s.OtherRef(name, s.count());
    const Activation* right = x && x->values != s.ref().values ? OfReference(s, *x) : nullptr;
    if (!right || right == &kActivations.back()) continue;
    for (const Activation& wrong : kActivations) {
      if (&wrong == right) continue;
      const auto fit = s.Test([&](int64_t i) { return wrong.value(ElementOf(*x, i)); });
      if (!fit) continue;
      s.Add("wrong_activation", *fit,
            fmt::format("The activation is {}, and the reference's is {}.", wrong.name, right->name));
      return true;
    }
    return false;
  }
  return false;
}

}  // namespace

void TestNormHints(HintSearch& s) {
  if (!s.same_shape() || s.name().find('/') == std::string::npos) return;
  if (ModuleOf(s.name()).find("norm") != std::string_view::npos) {
    TestNorms(s);
  } else {
    TestActivations(s);
  }
}

}  // namespace qwen_image::hints
