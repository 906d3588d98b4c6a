// Hypotheses about the attention.
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "parity/hints/joint_layout.h"

namespace qwen_image::hints {
namespace {

// Which keys a query sees.
enum class Mask {
  kAll,
  kOwnStream,
  kCausal,
  kBlockCausal,  // text is causal, a picture sees itself and all before it
  // Block-causal, but these see all of each other:
  kTextSeesItself,           // the tokens of a range of text
  kPrefixSeesItself,         // everything before the picture that is drawn
  kReferencesSeeEachOther,   // the given pictures
  kAllPicturesSeeEachOther,  // the given pictures and the one that is drawn
};

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
    if (s.family().one_stream) {
      a.layout_ = ReadJointLayout(s);
      if (!a.layout_) return {};
      a.segment_of_ = a.layout_->SegmentOfTokens();
    }
    a.ChooseQueries();
    return a;
  }

  struct Variant {
    double scale = 1;
    Mask mask = Mask::kAll;
    int64_t values_from = 0;  // the value of key k is that of token k + values_from, in a ring
  };

  // The attention's output at the sampled queries.
  std::vector<double> Compute(const Variant& variant) const {
    std::vector<double> out(static_cast<size_t>(queries_ * width_));
    std::vector<double> weights(static_cast<size_t>(tokens_));
    for (int64_t token = 0; token < tokens_; ++token) {
      const int64_t query = query_of_[static_cast<size_t>(token)];
      for (int64_t head = 0; head < heads_ && query >= 0; ++head) {
        Softmax(variant, token, head, weights);
        double* to = out.data() + query * width_ + head * head_dim_;
        for (int64_t key = 0; key < tokens_; ++key) {
          const double weight = weights[static_cast<size_t>(key)];
          const float* value = v_.data() + (key + variant.values_from) % tokens_ * width_ + head * head_dim_;
          if (weight > 0)
            for (int64_t d = 0; d < head_dim_; ++d) to[d] += weight * value[d];
        }
      }
    }
    return out;
  }

  // Element i of `computed`, or no opinion if its query is not in the sample.
  double At(const std::vector<double>& computed, int64_t i) const {
    const int64_t query = query_of_[static_cast<size_t>(i / width_)];
    return query >= 0 ? computed[static_cast<size_t>(query * width_ + i % width_)] : kNoOpinion;
  }
  Mask right_mask() const { return layout_ ? Mask::kBlockCausal : Mask::kAll; }
  double right_scale() const { return 1 / std::sqrt(static_cast<double>(head_dim_)); }
  int64_t head_dim() const { return head_dim_; }
  int64_t width() const { return width_; }
  int64_t text_tokens() const { return text_tokens_; }

 private:
  // Samples queries from the whole sequence, or from each segment if segments are masked differently.
  void ChooseQueries() {
    constexpr int64_t kQueries = 16;
    query_of_.assign(static_cast<size_t>(tokens_), -1);
    const auto choose = [&](int64_t begin, int64_t end, int64_t count) {
      for (int64_t token = begin; token < end; token += std::max<int64_t>(1, (end - begin) / count))
        query_of_[static_cast<size_t>(token)] = queries_++;
    };
    if (!layout_) return choose(0, tokens_, kQueries);
    const auto segments = static_cast<int64_t>(layout_->segments.size());
    for (const JointLayout::Segment& segment : layout_->segments)
      choose(segment.begin, segment.end, std::max<int64_t>(2, kQueries / segments));
  }

  bool Sees(Mask mask, int64_t query, int64_t key) const {
    if (mask == Mask::kAll) return true;
    if (mask == Mask::kOwnStream) return (key < text_tokens_) == (query < text_tokens_);
    if (key <= query || mask == Mask::kCausal) return key <= query;
    const size_t from = segment_of_[static_cast<size_t>(query)], to = segment_of_[static_cast<size_t>(key)];
    const bool pictures = !layout_->segments[from].is_text && !layout_->segments[to].is_text;
    const bool in_prefix = key < layout_->prefix();  // and so is the query, which stands before it
    return (from == to && (pictures || mask == Mask::kTextSeesItself)) ||
           (mask == Mask::kPrefixSeesItself && in_prefix) ||
           (mask == Mask::kReferencesSeeEachOther && pictures && in_prefix) ||
           (mask == Mask::kAllPicturesSeeEachOther && pictures);
  }

  void Softmax(const Variant& variant, int64_t token, int64_t head, std::vector<double>& weights) const {
    const float* query = q_.data() + token * width_ + head * head_dim_;
    double largest = -INFINITY, sum = 0;
    for (int64_t key = 0; key < tokens_; ++key) {
      const float* k = k_.data() + key * width_ + head * head_dim_;
      double dot = 0;
      for (int64_t d = 0; d < head_dim_; ++d) dot += static_cast<double>(query[d]) * k[d];
      weights[static_cast<size_t>(key)] = Sees(variant.mask, token, key) ? variant.scale * dot : -INFINITY;
      largest = std::max(largest, weights[static_cast<size_t>(key)]);
    }
    for (double& w : weights) sum += w = std::exp(w - largest);
    for (double& w : weights) w /= sum;
  }

  std::vector<float> q_, k_, v_;  // [tokens, heads, head_dim], text first
  int64_t heads_ = 0, head_dim_ = 0, width_ = 0, tokens_ = 0, text_tokens_ = 0;
  std::optional<JointLayout> layout_;  // of one stream
  std::vector<size_t> segment_of_;     // for each token
  std::vector<int64_t> query_of_;      // for each token its number in the sample, or -1
  int64_t queries_ = 0;
};

struct MaskMistake {
  Mask mask;
  const char *kind, *text;
};
constexpr MaskMistake kMistakesOfStreams[] = {
    {Mask::kOwnStream, "attention_not_joint",
     "Text attends to text only and image to image only; the attention is over [text, image] together."},
    {Mask::kCausal, "causal_attention",
     "The attention is causal; in this transformer every token sees every other."},
};
// The mask of one stream: text is causal; a picture sees itself and all before it.
constexpr MaskMistake kMistakesOfOneStream[] = {
    {Mask::kAll, "missing_attention_mask",
     "The mask is missing: every token sees every other. Text sees what is before it, a picture also all of "
     "itself; only the picture that is drawn sees everything."},
    {Mask::kCausal, "causal_attention",
     "The attention is causal everywhere; a picture, given or drawn, sees all of itself."},
    {Mask::kTextSeesItself, "text_not_causal",
     "Text sees what follows in its own range; as in a language model it sees only what is before it."},
    {Mask::kPrefixSeesItself, "prefix_not_causal",
     "Prompt and given pictures see all of each other; they see only what is before them, and a picture also "
     "itself."},
    {Mask::kReferencesSeeEachOther, "pictures_see_each_other",
     "The given pictures see each other; each sees itself and what is before it. A mask needs a number for "
     "each picture, not a flag."},
    {Mask::kAllPicturesSeeEachOther, "pictures_see_each_other",
     "All pictures see each other, also the one that is drawn; each sees itself and what is before it. A "
     "mask needs a number for each picture, not a flag."},
};

bool TestAttentionOutput(HintSearch& s, const BlockName& block) {
  const auto attention = SampledAttention::Read(s, block);
  if (!attention) return false;
  const double scale = attention->right_scale();
  const auto fits = [&](const SampledAttention::Variant& variant) {
    const std::vector<double> computed = attention->Compute(variant);
    return s.Test([&](int64_t i) { return attention->At(computed, i); }, {.least_share = 0});
  };
  const Mask mask = attention->right_mask();
  const std::vector<double> right = attention->Compute({scale, mask});
  if (!s.ExplainsReference([&](int64_t i) { return attention->At(right, i); })) return false;
  if (const auto fit = fits({1, mask})) {
    s.Add("missing_attention_scale", *fit,
          fmt::format("The scale 1/√head_dim = 1/√{} is missing from the attention's scores.",
                      attention->head_dim()));
    return true;
  }
  if (const auto fit = fits({scale * scale, mask})) {
    s.Add("wrong_attention_scale", *fit,
          "The attention's scores are divided by head_dim instead of its root, or by the root twice.");
    return true;
  }
  if (const auto fit = fits({1 / std::sqrt(static_cast<double>(attention->width())), mask})) {
    s.Add("wrong_attention_scale", *fit,
          "The attention's scores are divided by the root of the model's width instead of head_dim's.");
    return true;
  }
  using Mistakes = std::span<const MaskMistake>;
  for (const MaskMistake& mistake :
       s.family().one_stream ? Mistakes(kMistakesOfOneStream) : Mistakes(kMistakesOfStreams)) {
    if (const auto fit = fits({scale, mistake.mask})) {
      s.Add(mistake.kind, *fit, mistake.text);
      return true;
    }
  }
  if (s.family().one_stream) return false;
  const auto fit = fits({scale, mask, attention->text_tokens()});
  if (!fit) return false;
  s.Add("swapped_values", *fit, "The values are joined as [image, text], queries and keys as [text, image].");
  return true;
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
  return false;
}

}  // namespace qwen_image::hints
