// Fast precision on whole components, with the files of other tools.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "families/qwen_image/text_encoder.h"
#include "families/qwen_image/transformer.h"
#include "files/json.h"
#include "files/testing.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
const fs::path kFormats = fs::path(QWEN_IMAGE_SOURCE_DIR) / "tests/goldens/formats";

// Listens to everything, so that nothing is fused.
class Everybody : public CheckpointSink {
 public:
  bool Wants(std::string_view) const override { return true; }
  void OnCheckpoint(const std::string&, const CheckpointView&) override {}
};

Tensor Random(const Shape& shape, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Tensor tensor(shape);
  for (int64_t i = 0; i < tensor.size(); ++i) tensor[i] = normal(random);
  return tensor;
}

double Nmse(const Tensor& got, const Tensor& want) {
  double error = 0, power = 0;
  for (int64_t i = 0; i < want.size(); ++i) {
    error += std::pow(got[i] - want[i], 2);
    power += std::pow(want[i], 2);
  }
  return error / power;
}

bool SameBits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && std::memcmp(a.data(), b.data(), static_cast<size_t>(a.size()) * 4) == 0;
}

class FastPrecision : public ::testing::TestWithParam<const char*> {
 protected:
  static Transformer Load(Precision precision, bool zero_cond_t = false) {
    const TempFolder folder;
    Json config = ReadJsonFile(kFormats / "configs/wide32/transformer/config.json");
    config["zero_cond_t"] = zero_cond_t;
    folder.Write("config.json", config.dump());
    folder.Write(GetParam(), ReadBytes(kFormats / GetParam()));
    return Transformer(WeightStore(folder.path() / GetParam(), Component::kTransformer), {}, precision);
  }
  std::vector<Tensor> Predict(const Transformer& transformer, const std::vector<const Tensor*>& texts,
                              CheckpointSink* sink = nullptr, int threads = 2,
                              const std::vector<TokenGrid>& pictures = {{5, 6}}) const {
    std::vector<Transformer::Prompt> prompts;
    for (const Tensor* text : texts) prompts.push_back({*text, Tap(sink)});
    ThreadPool pool(threads);
    const CancelFlag never;
    const Tensor latents = Random({1, 30, transformer.config().in_channels}, 1);
    return transformer.PredictVelocities(latents, prompts, 0.6f, pictures, Compute{pool, never});
  }
  Tensor Text(const Transformer& transformer, int64_t tokens) const {
    return Random({1, tokens, transformer.config().joint_attention_dim}, static_cast<unsigned>(tokens));
  }
};

TEST_P(FastPrecision, IsNearExact) {
  const Transformer fast = Load(Precision::kFast), exact = Load(Precision::kExact);
  const Tensor text = Text(fast, 7);
  const Tensor got = std::move(Predict(fast, {&text})[0]), want = std::move(Predict(exact, {&text})[0]);
  const double error = Nmse(got, want);
  EXPECT_LE(error, 1e-3);
  EXPECT_GT(error, 1e-9) << "nothing was computed in 8 bits";
}

TEST_P(FastPrecision, HasTheSameBitsStepByStepAndOnAnyNumberOfThreads) {
  const Transformer transformer = Load(Precision::kFast);
  const Tensor text = Text(transformer, 7);
  Everybody everybody;
  const std::vector<Tensor> fused = Predict(transformer, {&text});
  EXPECT_TRUE(SameBits(Predict(transformer, {&text}, &everybody)[0], fused[0]));
  EXPECT_TRUE(SameBits(Predict(transformer, {&text}, nullptr, 1)[0], fused[0]));
}

TEST_P(FastPrecision, HasTheSameBitsStepByStepWithReferences) {
  const std::vector<TokenGrid> pictures = {{3, 5}, {3, 3}, {2, 3}};
  std::vector<Tensor> velocities;
  for (const bool zero_cond_t : {false, true}) {
    const Transformer transformer = Load(Precision::kFast, zero_cond_t);
    const Tensor text = Text(transformer, 7);
    Everybody everybody;
    std::vector<Tensor> fused = Predict(transformer, {&text}, nullptr, 2, pictures);
    EXPECT_EQ(fused[0].dim(1), 15) << "of the picture that is drawn, not of the references";
    EXPECT_TRUE(SameBits(Predict(transformer, {&text}, &everybody, 2, pictures)[0], fused[0])) << zero_cond_t;
    velocities.push_back(std::move(fused[0]));
  }
  EXPECT_FALSE(SameBits(velocities[0], velocities[1])) << "references are modulated for t = 0";
}

TEST_P(FastPrecision, PromptsTogetherHaveTheBitsOfEachAlone) {
  for (const Precision precision : {Precision::kFast, Precision::kExact}) {
    const Transformer transformer = Load(precision);
    const Tensor longer = Text(transformer, 9), shorter = Text(transformer, 4);
    for (const auto& texts : {std::vector{&longer, &shorter}, std::vector{&shorter, &longer}}) {
      const std::vector<Tensor> both = Predict(transformer, texts);
      for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(SameBits(both[i], Predict(transformer, {texts[i]})[0])) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Files, FastPrecision,
                         ::testing::Values("mlx_q8_g32.safetensors", "transformer_q4_0.gguf",
                                           "transformer_q8_0.gguf"));

TEST(FastPrecisionTextEncoder, IsNearExact) {
  const TempFolder folder;
  folder.Write("config.json", ReadBytes(kFormats / "configs/wide32/text_encoder/config.json"));
  folder.Write("te.gguf", ReadBytes(kFormats / "text_encoder_q8_0.gguf"));
  const auto encode = [&](Precision precision) {
    ThreadPool pool(2);
    const CancelFlag never;
    const TextEncoder encoder(WeightStore(folder.path() / "te.gguf", Component::kTextEncoder), precision);
    return encoder.Encode({1, 5, 7, 20, 3, 60, 2}, Compute{pool, never});
  };
  const double error = Nmse(encode(Precision::kFast), encode(Precision::kExact));
  EXPECT_LE(error, 1e-3);
  EXPECT_GT(error, 1e-9) << "nothing was computed in 8 bits";
}

}  // namespace
}  // namespace qwen_image
