// Norms and activations done wrong on synthetic inputs.
#include <gtest/gtest.h>

#include <functional>

#include "parity/hints/testing.h"

namespace qwen_image::hints {
namespace {

const std::string kBlock = "transformer/step000/transformer_blocks.0";

double At(const HintTensor& t, int64_t i) { return t.values[static_cast<size_t>(i)]; }

struct NormVariant {
  int64_t width = 16;
  double epsilon = 1e-6;
  bool centred = false, weighted = true;
};

HintTensor Normalize(const HintTensor& x, const NormVariant& v) {
  const int64_t channels = x.shape.back();
  return Changed(x, [&](int64_t i) {
    double sum = 0, squares = 0;
    for (int64_t k = i / v.width * v.width; k < (i / v.width + 1) * v.width; ++k)
      sum += At(x, k), squares += At(x, k) * At(x, k);
    const double n = static_cast<double>(v.width), mean = v.centred ? sum / n : 0;
    const double weight = v.weighted ? 1.5 + std::sin(2.0 * static_cast<double>(i % channels)) : 1;
    return weight * (At(x, i) - mean) / std::sqrt(squares / n - mean * mean + v.epsilon);
  });
}

TEST(NormHints, TellNormsOfHeadsApart) {
  const HintTensor random = RandomTensor({1, 20, 2, 16}, 1);
  const HintTensor small = Changed(random, [&](int64_t i) {  // so small that an epsilon shows
    return 0.01 * At(random, i) * static_cast<double>(1 + i / 16 % 7);
  });
  // Names are in their order in the alphabet here.
  const NamedTensors reference = {{kBlock + ".attn.a_query", small},
                                  {kBlock + ".attn.norm_q", Normalize(small, {})}};
  const auto kind_of = [&](const HintTensor& run) {
    return FirstKind(HintsFor(kBlock + ".attn.norm_q", reference, run));
  };
  EXPECT_EQ(kind_of(small), "missing_norm");
  EXPECT_EQ(kind_of(Normalize(small, {.width = 32})), "norm_over_all_heads");
  EXPECT_EQ(kind_of(Normalize(small, {.centred = true})), "wrong_norm");
  EXPECT_EQ(kind_of(Normalize(small, {.weighted = false})), "missing_norm_weight");
  EXPECT_EQ(kind_of(Normalize(small, {.epsilon = 1e-5})), "norm_epsilon");
  EXPECT_EQ(kind_of(WithBf16Noise(Normalize(small, {.width = 32}))), "norm_over_all_heads");
}

TEST(NormHints, KnowTheNormOfThePrompt) {
  const HintTensor prompt = RandomTensor({1, 12, 16}, 1);
  const NamedTensors reference = {{"prompt_embeds", prompt},
                                  {"transformer/step000/txt_norm", Normalize(prompt, {})}};
  EXPECT_EQ(FirstKind(HintsFor("transformer/step000/txt_norm", reference, prompt)), "missing_norm");
}

TEST(NormHints, TellActivationsApart) {
  const auto tanh_gelu = [](double x) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  };
  const auto exact_gelu = [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2))); };
  const auto silu = [](double x) { return x / (1 + std::exp(-x)); };
  const HintTensor x = RandomTensor({1, 12, 64}, 1);
  const auto through = [&](const std::function<double(double)>& f) {
    return Changed(x, [&](int64_t i) { return f(At(x, i)); });
  };
  const std::string name = kBlock + ".img_mlp.net.0";
  const NamedTensors reference = {{kBlock + ".img_mlp.a_proj", x}, {name, through(tanh_gelu)}};
  for (const HintTensor& wrong : {through(exact_gelu), through(silu), x})
    EXPECT_EQ(FirstKind(HintsFor(name, reference, wrong)), "wrong_activation");
}

}  // namespace
}  // namespace qwen_image::hints
