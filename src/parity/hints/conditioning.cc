// Hypotheses about the language model that reads the prompt (ConditionerNames), and about the norm that reads
// its embeddings.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "parity/hints/search.h"

namespace qwen_image::hints {
namespace {

constexpr double kEpsilon = 1e-6;  // of the norms

bool IsNegative(std::string_view name) { return name.find(".neg/") != name.npos; }

// x / √(mean(x²) + ε) of every row.
HintTensor Normalized(HintTensor x) {
  const auto width = static_cast<size_t>(x.shape.back());
  for (size_t row = 0; row + width <= x.values.size(); row += width) {
    double square = 0;
    for (size_t c = 0; c < width; ++c) square += static_cast<double>(x.values[row + c]) * x.values[row + c];
    const double factor = 1 / std::sqrt(square / static_cast<double>(width) + kEpsilon);
    for (size_t c = 0; c < width; ++c) x.values[row + c] = static_cast<float>(x.values[row + c] * factor);
  }
  return x;
}

// For each channel the factor that brings x nearest to y.
std::vector<double> ChannelFactors(const HintTensor& x, const HintTensor& y) {
  const auto width = static_cast<size_t>(x.shape.back());
  std::vector<double> along(width), square(width);
  for (size_t i = 0; i < x.values.size(); ++i) {
    along[i % width] += static_cast<double>(x.values[i]) * y.values[i];
    square[i % width] += static_cast<double>(x.values[i]) * x.values[i];
  }
  for (size_t c = 0; c < width; ++c) along[c] = square[c] > 0 ? along[c] / square[c] : 0;
  return along;
}

// The embeddings were normalised twice. The norm's weight is not among the tensors, so it is fitted.
bool TestFinalNorm(HintSearch& s) {
  const HintTensor normalized = Normalized(s.ref());
  const std::vector<double> weight = ChannelFactors(normalized, s.run());
  const auto value = [&](int64_t i) {
    return weight[static_cast<size_t>(i) % weight.size()] * normalized.values[static_cast<size_t>(i)];
  };
  const auto fit = s.Test(value, {.fitted = s.ref().shape.back()});
  if (!fit) return false;
  s.Add("final_norm_applied", *fit,
        "The language model's final norm was applied: the embeddings are what its last layer returns, before "
        "that norm. (transformers' last hidden state is behind it.)");
  return true;
}

// The norm is x̂ · (1 + weight). Without the 1 the result is smaller by x̂.
bool TestNormFromZero(HintSearch& s) {
  const auto embeds =
      s.OtherRef(IsNegative(s.name()) ? "negative_prompt_embeds" : "prompt_embeds", s.count());
  if (!embeds || embeds->shape.back() != s.ref().shape.back()) return false;
  const HintTensor x = Normalized(*embeds);
  const std::vector<double> scale = ChannelFactors(x, s.ref());
  const auto at = [&](int64_t i) { return static_cast<double>(x.values[static_cast<size_t>(i)]); };
  if (!s.ExplainsReference([&](int64_t i) { return scale[static_cast<size_t>(i) % scale.size()] * at(i); }))
    return false;
  const auto fit = s.Test([&](int64_t i) { return s.RefAt(i) - at(i); });
  if (!fit) return false;
  s.Add("missing_one_plus_weight", *fit,
        "The norm's weight was used as it is stored; it is stored as scale − 1, so x is multiplied by "
        "1 + weight.");
  return true;
}

// ── Features of the pictures, added behind the first layers ──

// The rows that the reference's layer changed.
std::vector<int64_t> ChangedRows(const HintTensor& before, const HintTensor& after) {
  const int64_t width = before.shape.back();
  std::vector<int64_t> rows;
  for (int64_t row = 0; row * width < static_cast<int64_t>(before.values.size()); ++row) {
    const auto begin = before.values.begin() + row * width;
    if (!std::equal(begin, begin + width, after.values.begin() + row * width)) rows.push_back(row);
  }
  return rows;
}

// The layer's output with other features added. Nothing unless these have one row for each changed row.
std::optional<HintTensor> WithFeatures(HintTensor layer, const std::vector<int64_t>& rows,
                                       const HintTensor& features) {
  const int64_t width = layer.shape.back();
  if (static_cast<int64_t>(features.values.size()) != static_cast<int64_t>(rows.size()) * width) return {};
  for (size_t k = 0; k < rows.size(); ++k) {
    for (int64_t c = 0; c < width; ++c)
      layer.values[static_cast<size_t>(rows[k] * width + c)] +=
          features.values[k * static_cast<size_t>(width) + static_cast<size_t>(c)];
  }
  return layer;
}

bool TestDeepstack(HintSearch& s, const BlockName& block) {
  const auto layer = s.OtherRef(block.prefix, s.count());
  if (!layer) return false;
  if (const auto fit = s.Test([&](int64_t i) { return layer->values[static_cast<size_t>(i)]; })) {
    s.Add("missing_deepstack", *fit,
          fmt::format("The pictures' features are missing: after layer {} those of the vision encoder's "
                      "merger {} are added to the pictures' tokens.",
                      block.index, block.index));
    return true;
  }
  const std::vector<int64_t> rows = ChangedRows(*layer, s.ref());
  // The vision encoder runs once, for both prompts.
  const std::string modules = fmt::format("text_encoder/{}", s.family().conditioner.features);
  for (int64_t k = 0;; ++k) {
    const auto features = s.context().ref(fmt::format("{}{}", modules, k));
    if (!features) return false;
    const auto expected = k == block.index ? std::nullopt : WithFeatures(*layer, rows, *features);
    if (!expected) continue;
    const auto fit = s.Test([&](int64_t i) { return expected->values[static_cast<size_t>(i)]; });
    if (!fit) continue;
    s.Add("wrong_deepstack_layer", *fit,
          fmt::format("After layer {} the features of merger {} were added; the first merger's belong after "
                      "layer 0, the second's after layer 1, whichever of the vision encoder's blocks they "
                      "come from.",
                      block.index, k));
    return true;
  }
}

// ── M-RoPE ──

// Frequencies and the axis that each follows: time, rows or columns.
class MultiAxisRope {
 public:
  static std::optional<MultiAxisRope> Read(const HintSearch& s) {
    const ConditionerNames& names = s.family().conditioner;
    const std::string pass = s.name().substr(0, s.name().rfind('/') + 1);
    MultiAxisRope rope;
    auto cos = s.OtherRef(pass + std::string(names.rope_cos), s.count());
    auto sin = s.OtherRef(pass + std::string(names.rope_sin), s.count());
    rope.half_ = s.ref().shape.back() / 2;
    rope.tokens_ = rope.half_ > 0 ? s.count() / (2 * rope.half_) : 0;
    auto positions = s.OtherRef(IsNegative(s.name()) ? "negative_position_ids" : "position_ids",
                                static_cast<int64_t>(kAxes) * rope.tokens_);
    if (!cos || !sin || !positions) return {};
    rope.cos_ = std::move(*cos);
    rope.sin_ = std::move(*sin);
    rope.positions_ = std::move(*positions);
    if (!rope.FindFrequencies()) return {};
    rope.FindAxes();
    return rope;
  }

  // The angle of element i of a table, if its frequency followed `axis`.
  double Angle(int64_t i, size_t axis) const {
    return Position(axis, i / (2 * half_)) * frequencies_[static_cast<size_t>(FrequencyOf(i))];
  }
  size_t Axis(int64_t i) const { return axes_[static_cast<size_t>(FrequencyOf(i))]; }
  // The axis of a frequency if the first ones followed time, the next ones rows, the last ones columns.
  size_t AxisInChunks(int64_t i) const {
    const int64_t frequency = FrequencyOf(i);
    return frequency < Share(0) ? 0 : frequency < Share(0) + Share(1) ? 1 : 2;
  }
  int64_t Share(size_t axis) const { return std::count(axes_.begin(), axes_.end(), axis); }

 private:
  static constexpr size_t kAxes = 3;

  int64_t FrequencyOf(int64_t i) const { return i % (2 * half_) % half_; }
  double Position(size_t axis, int64_t token) const {
    return positions_.values[axis * static_cast<size_t>(tokens_) + static_cast<size_t>(token)];
  }
  size_t Index(int64_t token, int64_t frequency) const {
    return static_cast<size_t>(token * 2 * half_ + frequency);
  }

  // A token at position 1 on all axes is turned by the frequencies themselves, which are at most 1.
  bool FindFrequencies() {
    for (int64_t token = 0; token < tokens_; ++token) {
      if (Position(0, token) != 1 || Position(1, token) != 1 || Position(2, token) != 1) continue;
      for (int64_t f = 0; f < half_; ++f)
        frequencies_.push_back(std::atan2(sin_.values[Index(token, f)], cos_.values[Index(token, f)]));
      return true;
    }
    return false;
  }

  void FindAxes() {
    for (int64_t f = 0; f < half_; ++f) {
      std::array<double, kAxes> error = {};
      for (int64_t token = 0; token < tokens_; ++token) {
        for (size_t axis = 0; axis < kAxes; ++axis) {
          const double angle = Angle(token * 2 * half_ + f, axis);
          error[axis] += std::pow(cos_.values[Index(token, f)] - std::cos(angle), 2) +
                         std::pow(sin_.values[Index(token, f)] - std::sin(angle), 2);
        }
      }
      axes_.push_back(static_cast<size_t>(std::min_element(error.begin(), error.end()) - error.begin()));
    }
  }

  HintTensor cos_, sin_, positions_;  // [1, tokens, 2 · half] twice, [3, 1, tokens]
  int64_t half_ = 0, tokens_ = 0;
  std::vector<double> frequencies_;  // [half]
  std::vector<size_t> axes_;         // [half]
};

bool TestMultiAxisRope(HintSearch& s, bool is_cos) {
  const auto rope = MultiAxisRope::Read(s);
  if (!rope) return false;
  const auto value = [&](int64_t i, size_t axis) {
    const double angle = rope->Angle(i, axis);
    return is_cos ? std::cos(angle) : std::sin(angle);
  };
  if (!s.ExplainsReference([&](int64_t i) { return value(i, rope->Axis(i)); })) return false;
  const auto fit = s.Test([&](int64_t i) { return value(i, rope->AxisInChunks(i)); });
  if (!fit) return false;
  s.Add("mrope_in_chunks", *fit,
        fmt::format("M-RoPE in chunks: the first {} frequencies follow time, the next {} rows, the last {} "
                    "columns. Here they take turns: time, row, column, time, …, until an axis has its share; "
                    "time has the rest.",
                    rope->Share(0), rope->Share(1), rope->Share(2)));
  return true;
}

}  // namespace

bool TestConditioningHints(HintSearch& s) {
  const ConditionerNames& names = s.family().conditioner;
  const std::string_view module = ModuleOf(s.name());
  if (names.embeds_before_norm && (s.name() == "prompt_embeds" || s.name() == "negative_prompt_embeds"))
    return TestFinalNorm(s);
  if (IsNamed(module, names.norm_from_zero)) return TestNormFromZero(s);
  if (IsNamed(module, names.rope_cos)) return TestMultiAxisRope(s, true);
  if (IsNamed(module, names.rope_sin)) return TestMultiAxisRope(s, false);
  const auto block = ParseBlockName(s.family(), s.name());
  return block && block->list == names.layers && IsNamed(block->rest, names.deepstack) &&
         TestDeepstack(s, *block);
}

}  // namespace qwen_image::hints
