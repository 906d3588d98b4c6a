// Hypotheses about RoPE and the joint attention.
#include <fmt/format.h>

#include <algorithm>
#include <complex>

#include "parity/hint_search.h"

namespace qwen_image {
namespace {

enum class Pairing { kInterleaved, kHalves };  // which two elements of a head are turned together

// The rotations of RoPE, found from what the reference had before and after it.
class Rope {
 public:
  // Both [1, tokens, heads, head_dim].
  Rope(const HintTensor& before, const HintTensor& after, Pairing pairing)
      : before_(&before),
        pairing_(pairing),
        heads_(before.shape[2]),
        dim_(before.shape[3]),
        turns_(static_cast<size_t>(before.shape[1] * dim_ / 2)) {
    for (int64_t token = 0; token < before.shape[1]; ++token) {
      for (int64_t pair = 0; pair < dim_ / 2; ++pair)
        turns_[TurnIndex(token, pair)] = Turn(after, token, pair);
    }
  }

  // Element i after turning the pairs of `pairing`; element e of a head uses the angle number `angle(e)`.
  double Apply(int64_t i, Pairing pairing, Pairing angles, bool backwards = false) const {
    const int64_t e = i % dim_, token = i / (heads_ * dim_), half = dim_ / 2;
    const int64_t angle = angles == Pairing::kInterleaved ? e / 2 : e % half;
    const bool second = pairing == Pairing::kInterleaved ? e % 2 == 1 : e >= half;
    const int64_t distance = pairing == Pairing::kInterleaved ? 1 : half;
    const std::complex<double> turn = turns_[TurnIndex(token, angle)];
    const double sin = (second ? 1 : -1) * (backwards ? -turn.imag() : turn.imag());
    return X(i) * turn.real() + X(second ? i - distance : i + distance) * sin;
  }

  Pairing pairing() const { return pairing_; }
  double X(int64_t i) const { return before_->values[static_cast<size_t>(i)]; }

 private:
  size_t TurnIndex(int64_t token, int64_t pair) const { return static_cast<size_t>(token * dim_ / 2 + pair); }

  std::complex<double> Turn(const HintTensor& after, int64_t token, int64_t pair) const {
    const int64_t distance = pairing_ == Pairing::kInterleaved ? 1 : dim_ / 2;
    const int64_t first = pairing_ == Pairing::kInterleaved ? 2 * pair : pair;
    std::complex<double> sum = 0;
    for (int64_t head = 0; head < heads_; ++head) {
      const auto at = static_cast<size_t>((token * heads_ + head) * dim_ + first);
      const auto next = at + static_cast<size_t>(distance);
      sum += std::complex<double>(after.values[at], after.values[next]) *
             std::conj(std::complex<double>(before_->values[at], before_->values[next]));
    }
    return std::abs(sum) > 0 ? sum / std::abs(sum) : 1;
  }

  const HintTensor* before_;
  Pairing pairing_;
  int64_t heads_, dim_;
  std::vector<std::complex<double>> turns_;  // [tokens, head_dim / 2]
};

// Each pair turned by the same further angle at every token: other positions, e.g. not centred.
bool TestPositions(HintSearch& s, const Rope& rope) {
  const int64_t dim = s.ref().shape[3];
  const int64_t distance = rope.pairing() == Pairing::kInterleaved ? 1 : dim / 2;
  const auto first_of = [&](int64_t e) {
    return rope.pairing() == Pairing::kInterleaved ? e % 2 == 0 : e < dim / 2;
  };
  const auto complex_at = [&](const HintTensor& t, int64_t i) {
    return std::complex<double>(t.values[static_cast<size_t>(i)],
                                t.values[static_cast<size_t>(i + distance)]);
  };
  std::vector<std::complex<double>> turns(static_cast<size_t>(dim));  // by the pair's first element
  for (int64_t i = 0; i < s.count(); ++i) {
    if (first_of(i % dim))
      turns[static_cast<size_t>(i % dim)] += complex_at(s.run(), i) * std::conj(complex_at(s.ref(), i));
  }
  for (auto& turn : turns) turn = std::abs(turn) > 0 ? turn / std::abs(turn) : 1;
  const auto value = [&](int64_t i) {
    const int64_t e = i % dim;
    const int64_t first = first_of(e) ? i : i - distance;
    const auto turned = complex_at(s.ref(), first) * turns[static_cast<size_t>(first % dim)];
    return first_of(e) ? turned.real() : turned.imag();
  };
  const auto fit = s.Test(value, {.fitted = dim / 2});
  if (!fit) return false;
  s.Add("rope_positions", *fit,
        "RoPE starts at other positions: every pair is turned by one further angle, the same for all tokens. "
        "A picture's rows and columns are centred around 0; the text goes on after the larger of the two "
        "halves.");
  return true;
}

bool TestRope(HintSearch& s, const HintTensor& before) {
  Rope rope(before, s.ref(), Pairing::kInterleaved);
  const auto right = [&](int64_t i) { return rope.Apply(i, rope.pairing(), rope.pairing()); };
  if (!s.ExplainsReference(right)) {
    rope = Rope(before, s.ref(), Pairing::kHalves);
    if (!s.ExplainsReference(right)) return false;
  }
  if (const auto fit = s.Test([&](int64_t i) { return rope.X(i); })) {
    s.Add("rope_not_applied", *fit, "RoPE was not applied: this is the tensor before it.");
    return true;
  }
  const bool interleaved = rope.pairing() == Pairing::kInterleaved;
  for (const Pairing pairing : {Pairing::kInterleaved, Pairing::kHalves}) {
    for (const Pairing angles : {Pairing::kInterleaved, Pairing::kHalves}) {
      if (pairing == rope.pairing() && angles == rope.pairing()) continue;
      const auto fit = s.Test([&](int64_t i) { return rope.Apply(i, pairing, angles); });
      if (!fit) continue;
      s.Add("rope_pairing", *fit,
            fmt::format(
                "RoPE in the other pairing: the reference turns {}, the run {}{}. Look at rotate_half and "
                "at how the cosines are repeated.",
                interleaved ? "neighbours (2j, 2j + 1) together" : "element j with j + head_dim/2",
                pairing == Pairing::kInterleaved ? "neighbours" : "element j with j + head_dim/2",
                angles == pairing ? "" : ", with the angles laid out for the other pairing"));
      return true;
    }
  }
  if (const auto fit =
          s.Test([&](int64_t i) { return rope.Apply(i, rope.pairing(), rope.pairing(), true); })) {
    s.Add("rope_direction", *fit, "RoPE turns the wrong way: the sine has the opposite sign.");
    return true;
  }
  return TestPositions(s, rope);
}

// The joint attention of a few of the reference's queries.
class SampledAttention {
 public:
  // Nothing unless all of q, k and v are there and fit together.
  static std::optional<SampledAttention> Read(const HintSearch& s, const BlockName& block) {
    SampledAttention a;
    for (const StreamNames& stream : s.family().streams) {
      const auto q = s.context().ref(block.prefix + std::string(stream.query_rope));
      const auto k = s.context().ref(block.prefix + std::string(stream.key_rope));
      const auto v = s.context().ref(block.prefix + std::string(stream.value));
      if (!q || !k || !v || q->shape.size() != 4 || q->values.empty()) return {};
      if (k->shape != q->shape || v->values.size() != q->values.size()) return {};
      if (!a.q_.empty() && (q->shape[2] != a.heads_ || q->shape[3] != a.head_dim_)) return {};
      a.heads_ = q->shape[2];
      a.head_dim_ = q->shape[3];
      a.q_.insert(a.q_.end(), q->values.begin(), q->values.end());
      a.k_.insert(a.k_.end(), k->values.begin(), k->values.end());
      a.v_.insert(a.v_.end(), v->values.begin(), v->values.end());
      if (a.text_tokens_ == 0) a.text_tokens_ = q->shape[1];
    }
    if (a.q_.empty()) return {};
    a.width_ = a.heads_ * a.head_dim_;
    a.tokens_ = static_cast<int64_t>(a.q_.size()) / a.width_;
    if (a.tokens_ * a.width_ != s.count()) return {};
    constexpr int64_t kQueries = 16;
    a.stride_ = std::max<int64_t>(1, a.tokens_ / kQueries);
    return a;
  }

  struct Variant {
    double scale = 1;
    bool causal = false, own_stream_only = false;
  };

  // The attention's output at the sampled queries.
  std::vector<double> Compute(const Variant& variant) const {
    std::vector<double> out(static_cast<size_t>((tokens_ + stride_ - 1) / stride_ * width_));
    std::vector<double> weights(static_cast<size_t>(tokens_));
    for (int64_t token = 0; token < tokens_; token += stride_) {
      for (int64_t head = 0; head < heads_; ++head) {
        Softmax(variant, token, head, weights);
        double* to = out.data() + token / stride_ * width_ + head * head_dim_;
        for (int64_t key = 0; key < tokens_; ++key) {
          const double weight = weights[static_cast<size_t>(key)];
          const float* value = v_.data() + key * width_ + head * head_dim_;
          if (weight > 0)
            for (int64_t d = 0; d < head_dim_; ++d) to[d] += weight * value[d];
        }
      }
    }
    return out;
  }

  // Element i of `computed`, or no opinion if its query is not in the sample.
  double At(const std::vector<double>& computed, int64_t i) const {
    const int64_t token = i / width_;
    return token % stride_ == 0 ? computed[static_cast<size_t>(token / stride_ * width_ + i % width_)]
                                : kNoOpinion;
  }
  double right_scale() const { return 1 / std::sqrt(static_cast<double>(head_dim_)); }
  int64_t head_dim() const { return head_dim_; }

 private:
  void Softmax(const Variant& variant, int64_t token, int64_t head, std::vector<double>& weights) const {
    const float* query = q_.data() + token * width_ + head * head_dim_;
    double largest = -INFINITY, sum = 0;
    for (int64_t key = 0; key < tokens_; ++key) {
      const bool hidden = (variant.causal && key > token) ||
                          (variant.own_stream_only && (key < text_tokens_) != (token < text_tokens_));
      const float* k = k_.data() + key * width_ + head * head_dim_;
      double dot = 0;
      for (int64_t d = 0; d < head_dim_; ++d) dot += static_cast<double>(query[d]) * k[d];
      weights[static_cast<size_t>(key)] = hidden ? -INFINITY : variant.scale * dot;
      largest = std::max(largest, weights[static_cast<size_t>(key)]);
    }
    for (double& w : weights) sum += w = std::exp(w - largest);
    for (double& w : weights) w /= sum;
  }

  std::vector<float> q_, k_, v_;  // [tokens, heads, head_dim], text first
  int64_t heads_ = 0, head_dim_ = 0, width_ = 0, tokens_ = 0, text_tokens_ = 0, stride_ = 1;
};

bool TestAttentionOutput(HintSearch& s, const BlockName& block) {
  const auto attention = SampledAttention::Read(s, block);
  if (!attention) return false;
  const double scale = attention->right_scale();
  const auto fits = [&](const SampledAttention::Variant& variant) {
    const std::vector<double> computed = attention->Compute(variant);
    return s.Test([&](int64_t i) { return attention->At(computed, i); }, {.least_share = 0});
  };
  const std::vector<double> right = attention->Compute({.scale = scale});
  if (!s.ExplainsReference([&](int64_t i) { return attention->At(right, i); })) return false;
  if (const auto fit = fits({.scale = 1})) {
    s.Add("missing_attention_scale", *fit,
          fmt::format("The scale 1/√head_dim = 1/√{} is missing from the attention's scores.",
                      attention->head_dim()));
    return true;
  }
  if (const auto fit = fits({.scale = scale * scale})) {
    s.Add("wrong_attention_scale", *fit,
          "The attention's scores are divided by head_dim instead of its root, or by the root twice.");
    return true;
  }
  if (const auto fit = fits({.scale = scale, .own_stream_only = true})) {
    s.Add("attention_not_joint", *fit,
          "Text attends to text only and image to image only; the attention is over [text, image] together.");
    return true;
  }
  if (const auto fit = fits({.scale = scale, .causal = true})) {
    s.Add("causal_attention", *fit,
          "The attention is causal; in this transformer every token sees every other.");
    return true;
  }
  return false;
}

// softmax(a · x) from softmax(x): powers of the weights, made to sum to 1 again.
bool TestAttentionWeights(HintSearch& s, const BlockName& block) {
  if (s.family().streams.empty()) return false;
  const auto query = s.context().ref(block.prefix + std::string(s.family().streams.back().query_rope));
  if (!query || query->shape.size() != 4) return false;
  const int64_t keys = s.ref().shape.back();
  const float power = std::sqrt(static_cast<float>(query->shape[3]));
  std::vector<float> expected(s.ref().values.size());
  for (size_t row = 0; row < expected.size(); row += static_cast<size_t>(keys)) {
    float sum = 0;
    for (size_t i = row; i < row + static_cast<size_t>(keys); ++i)
      sum += expected[i] = std::pow(std::max(0.0f, s.ref().values[i]), power);
    for (size_t i = row; i < row + static_cast<size_t>(keys) && sum > 0; ++i) expected[i] /= sum;
  }
  const auto fit = s.Test([&](int64_t i) { return expected[static_cast<size_t>(i)]; });
  if (!fit) return false;
  s.Add(
      "missing_attention_scale", *fit,
      fmt::format("The scale 1/√head_dim = 1/√{} is missing from the attention's scores.", query->shape[3]));
  return true;
}

}  // namespace

bool TestAttentionHints(HintSearch& s, const BlockName& block) {
  if (block.rest == kAttentionOutput) return TestAttentionOutput(s, block);
  if (block.rest == kAttentionWeights) return TestAttentionWeights(s, block);
  for (const StreamNames& stream : s.family().streams) {
    const bool query = IsNamed(block.rest, stream.query_rope);
    if (!query && !IsNamed(block.rest, stream.key_rope)) continue;
    const auto before =
        s.OtherRef(block.prefix + std::string(query ? stream.query_norm : stream.key_norm), s.count());
    const Shape& shape = s.ref().shape;
    if (!before || before->shape != shape || shape.size() != 4 || shape[0] != 1 || shape[3] % 2 != 0)
      return false;
    return TestRope(s, *before);
  }
  return false;
}

}  // namespace qwen_image
