// Hints about a denoiser of one stream, on synthetic inputs: text, two pictures next to each other, text, and
// the picture that is drawn. The pipeline never puts two pictures next to each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "families/qwen_image_21/vocabulary.h"
#include "parity/hints/testing.h"

namespace qwen_image::hints {
namespace {

constexpr int64_t kHeads = 2, kHeadDim = 8, kDim = kHeads * kHeadDim;
constexpr int64_t kFirst = 3, kSecond = 9, kText = 15, kDrawn = 18, kTokens = 26;  // where segments begin
const std::string kPass = "transformer/step000/", kBlock = kPass + "transformer_blocks.1";

double At(const HintTensor& t, int64_t i) { return t.values[static_cast<size_t>(i)]; }

int64_t SegmentOf(int64_t token) {
  return (token >= kFirst) + (token >= kSecond) + (token >= kText) + (token >= kDrawn);
}
bool IsPicture(int64_t token) { return SegmentOf(token) != 0 && SegmentOf(token) != 3; }
bool Sees(int64_t query, int64_t key) {
  return key <= query || (SegmentOf(key) == SegmentOf(query) && IsPicture(query));
}

class OneStreamHints : public testing::Test {
 protected:
  OneStreamHints() {
    const HintTensor pictures = RandomTensor({1, kText - kFirst + kTokens - kDrawn, kDim}, 1);
    HintTensor joint = RandomTensor({1, kTokens, kDim}, 2);
    const auto put = [&](int64_t from, int64_t to, int64_t rows) {
      std::copy_n(pictures.values.begin() + from * kDim, rows * kDim, joint.values.begin() + to * kDim);
    };
    put(0, kFirst, kText - kFirst);
    put(kText - kFirst, kDrawn, kTokens - kDrawn);
    reference_[kPass + "img_in"] = pictures;
    reference_[kPass + ":joint"] = joint;
    reference_["image_grid_thw"] = {{2, 3}, {1, 2, 3, 1, 3, 2}};
    reference_["packed_latents_step0"] = RandomTensor({1, kTokens - kDrawn, 4}, 3);
    const Shape heads = {1, kTokens, kHeads, kHeadDim};
    reference_[kBlock + ":query_rope"] = RandomTensor(heads, 4);
    reference_[kBlock + ":key_rope"] = RandomTensor(heads, 5);
    reference_[kBlock + ".attn.to_v"] = RandomTensor({1, kTokens, kDim}, 6);
    reference_[kBlock + ":attn_output"] = Attention(Sees);
  }

  HintTensor Attention(const std::function<bool(int64_t, int64_t)>& sees, double scale_factor = 1) const {
    const WrongAttention attention{kHeads, kHeadDim, scale_factor / std::sqrt(double{kHeadDim}), sees};
    return {{1, kTokens, kDim},
            attention.Compute(reference_.at(kBlock + ":query_rope").values,
                              reference_.at(kBlock + ":key_rope").values,
                              reference_.at(kBlock + ".attn.to_v").values)};
  }
  std::string KindOf(const std::string& name, const HintTensor& run) const {
    return FirstKind(HintsFor(name, reference_, run, &qwen_image_21::kCheckpointNames));
  }

  NamedTensors reference_;
};

TEST_F(OneStreamHints, TellMasksApart) {
  const auto kind_of = [&](const std::function<bool(int64_t, int64_t)>& sees) {
    return KindOf(kBlock + ":attn_output", Attention(sees));
  };
  EXPECT_EQ(kind_of([](int64_t, int64_t) { return true; }), "missing_attention_mask");
  EXPECT_EQ(kind_of([](int64_t q, int64_t k) { return k <= q; }), "causal_attention");
  EXPECT_EQ(kind_of([](int64_t q, int64_t k) { return k <= q || SegmentOf(k) == SegmentOf(q); }),
            "text_not_causal");
  EXPECT_EQ(kind_of([](int64_t q, int64_t k) { return Sees(q, k) || k < kDrawn; }), "prefix_not_causal");
  EXPECT_EQ(kind_of([](int64_t q, int64_t k) {
              return Sees(q, k) || (IsPicture(q) && IsPicture(k) && k < kDrawn);
            }),
            "pictures_see_each_other");
  EXPECT_EQ(kind_of([](int64_t q, int64_t k) { return Sees(q, k) || (IsPicture(q) && IsPicture(k)); }),
            "pictures_see_each_other");
}

TEST_F(OneStreamHints, KnowTheAttentionsScale) {
  const double root = std::sqrt(double{kHeadDim});
  EXPECT_EQ(KindOf(kBlock + ":attn_output", Attention(Sees, root)), "missing_attention_scale");
  EXPECT_EQ(KindOf(kBlock + ":attn_output", Attention(Sees, 1 / root)), "wrong_attention_scale");
}

// Where the pictures stand is not guessed.
TEST_F(OneStreamHints, AreSilentIfTheSequenceIsNotKnown) {
  const HintTensor unmasked = Attention([](int64_t, int64_t) { return true; });
  reference_.erase(kPass + ":joint");
  EXPECT_EQ(KindOf(kBlock + ":attn_output", unmasked), "");
}

TEST_F(OneStreamHints, NeedNoSequenceWithoutPictures) {
  reference_.erase(kPass + ":joint");
  reference_.erase("image_grid_thw");
  const auto sees = [](int64_t q, int64_t k) { return k <= q || q >= kDrawn; };
  reference_[kBlock + ":attn_output"] = Attention(sees);
  EXPECT_EQ(KindOf(kBlock + ":attn_output", Attention([](int64_t, int64_t) { return true; })),
            "missing_attention_mask");
}

TEST_F(OneStreamHints, SayWhichSegmentsHaveOtherPositions) {
  const auto turned = [&](const HintTensor& x, const std::function<double(int64_t)>& position) {
    return Changed(x, [&](int64_t i) {
      const double angle = position(i / kDim) * std::pow(100.0, -static_cast<double>(i % kHeadDim / 2));
      const bool second = i % 2 == 1;
      return At(x, i) * std::cos(angle) + (second ? At(x, i - 1) : -At(x, i + 1)) * std::sin(angle);
    });
  };
  const HintTensor before = RandomTensor({1, kTokens, kHeads, kHeadDim}, 7);
  const std::string name = kBlock + ":query_rope";
  reference_[kBlock + ".attn.norm_q"] = before;
  reference_[name] = turned(before, [](int64_t token) { return static_cast<double>(token % 7); });
  const auto text_for = [&](const std::function<double(int64_t)>& error) {
    const auto hints =
        HintsFor(name, reference_, turned(reference_[name], error), &qwen_image_21::kCheckpointNames);
    EXPECT_EQ(FirstKind(hints), "rope_positions");
    return hints.empty() ? "" : hints[0].text;
  };
  EXPECT_NE(text_for([](int64_t token) { return IsPicture(token) ? 3 : 0; }).find("from its centre"),
            std::string::npos);
  EXPECT_NE(text_for([](int64_t token) { return token >= kText ? -2 : 0; }).find("longer side"),
            std::string::npos);
  EXPECT_NE(text_for([](int64_t) { return 14; }).find("has position 0"), std::string::npos);
}

TEST_F(OneStreamHints, KnowTheHeadsRows) {
  const HintTensor x = RandomTensor({1, kTokens, kDim}, 8), scale = RandomTensor({2, kDim}, 9);
  const auto scaled = [&](double one, const std::function<int64_t(int64_t)>& row_of) {
    return Changed(
        x, [&](int64_t i) { return At(x, i) * (one + At(scale, row_of(i / kDim) * kDim + i % kDim)); });
  };
  const auto right = [](int64_t token) { return int64_t{token < kDrawn}; };
  reference_[kPass + "norm_out.norm"] = x;
  reference_[kPass + "norm_out.linear"] = scale;
  reference_[kPass + "norm_out"] = scaled(1, right);
  EXPECT_EQ(KindOf(kPass + "norm_out", scaled(0, right)), "missing_one_plus_scale");
  EXPECT_EQ(KindOf(kPass + "norm_out", scaled(1, [](int64_t) { return 0; })), "prefix_modulated_for_t");
  EXPECT_EQ(KindOf(kPass + "norm_out", scaled(1, [](int64_t) { return 1; })), "target_modulated_for_zero");
}

}  // namespace
}  // namespace qwen_image::hints
