// Hints about the prompt's way to the denoiser, on synthetic inputs.
#include <gtest/gtest.h>

#include "families/qwen_image_21/vocabulary.h"
#include "parity/hints/testing.h"

namespace qwen_image::hints {
namespace {

constexpr int64_t kTokens = 12, kWidth = 32;

double At(const HintTensor& t, int64_t i) { return t.values[static_cast<size_t>(i)]; }

// A norm's weight, or any other number a channel has.
double Weight(int64_t i) { return 0.5 + 0.4 * std::cos(static_cast<double>(i % kWidth)); }

HintTensor Normalized(const HintTensor& x) {
  return Changed(x, [&](int64_t i) {
    double square = 0;
    for (int64_t c = i / kWidth * kWidth; c < (i / kWidth + 1) * kWidth; ++c) square += At(x, c) * At(x, c);
    return At(x, i) / std::sqrt(square / static_cast<double>(kWidth) + 1e-6);
  });
}

std::string KindOf(const std::string& name, const NamedTensors& reference, const HintTensor& run) {
  return FirstKind(HintsFor(name, reference, run, &qwen_image_21::kCheckpointNames));
}

TEST(ConditioningHints, TellTheFinalNormFromFactorsOfChannels) {
  const HintTensor embeds = RandomTensor({1, kTokens, kWidth}, 1), normalized = Normalized(embeds);
  const auto weighed = [](const HintTensor& x) {
    return Changed(x, [&](int64_t i) { return Weight(i) * At(x, i); });
  };
  for (const std::string name : {"prompt_embeds", "negative_prompt_embeds"}) {
    const NamedTensors reference = {{name, embeds}};
    EXPECT_EQ(KindOf(name, reference, weighed(normalized)), "final_norm_applied");
    EXPECT_EQ(KindOf(name, reference, WithBf16Noise(weighed(normalized))), "final_norm_applied");
    EXPECT_EQ(KindOf(name, reference, weighed(embeds)), "channel_factor");
  }
}

// Without the embeddings all that can be said is that channels have factors.
TEST(ConditioningHints, KnowAWeightThatIsStoredFromZero) {
  const HintTensor embeds = RandomTensor({1, kTokens, kWidth}, 1), x = Normalized(embeds);
  const HintTensor right = Changed(x, [&](int64_t i) { return At(x, i) * (1 + Weight(i)); });
  const HintTensor wrong = Changed(x, [&](int64_t i) { return At(x, i) * Weight(i); });
  const std::string name = "transformer/step000.neg/txt_in.text_norm";
  NamedTensors reference = {{name, right}, {"prompt_embeds", RandomTensor({1, kTokens, kWidth}, 2)}};
  EXPECT_EQ(KindOf(name, reference, wrong), "channel_factor");
  reference["negative_prompt_embeds"] = embeds;
  EXPECT_EQ(KindOf(name, reference, wrong), "missing_one_plus_weight");
}

}  // namespace
}  // namespace qwen_image::hints
