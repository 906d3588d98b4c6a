// The prefix's keys and values: kept, rounded, or computed again at every step.
#include "families/qwen_image_21/denoiser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "core/rng.h"

namespace qwen_image::qwen_image_21 {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kImageToken = 7;
constexpr int64_t kPlenty = int64_t{1} << 40;

Tensor Random(const Shape& shape, uint64_t seed) {
  Tensor tensor(shape);
  TorchGenerator(seed).Normal(tensor.data(), tensor.size());
  return tensor;
}

class ListensToAll : public CheckpointSink {
 public:
  bool Wants(std::string_view) const override { return true; }
  void OnCheckpoint(const std::string&, const CheckpointView&) override {}
};

// Two steps of an edit of one picture, with guidance.
class DenoiserTest : public ::testing::Test {
 protected:
  DenoiserTest() : DenoiserTest(Precision::kExact) {}
  explicit DenoiserTest(Precision precision)
      : denoiser_(WeightStore(QWEN_IMAGE_SOURCE_DIR "/tests/goldens/models/21-micro/transformer",
                              Component::kTransformer),
                  {}, precision) {
    denoiser_.UseImageToken(kImageToken);
    const TransformerConfig& config = denoiser_.transformer().config();
    embeds_ = Random({1, 5, config.context_in_dim}, 1);
    negative_ = Random({1, 4, config.context_in_dim}, 2);
    references_ = Random({1, 8, config.in_channels}, 3);
    latents_ = Random({1, 6, config.in_channels}, 4);
  }

  std::vector<Tensor> Draw(int64_t available, CheckpointSink* sink = nullptr) {
    denoiser_.UseMemory([=] { return available; });
    notes_.clear();
    static const std::vector<int64_t> ids = {1, kImageToken, kImageToken, 2, 3},
                                      negative_ids = {1, kImageToken, kImageToken, 2};
    Conditions conditions{.prompts = {{&embeds_, ids}, {&negative_, negative_ids}},
                          .drawn = {2, 3},
                          .references = &references_,
                          .reference_grids = {{2, 4}}};
    conditions.on_note = [&](const std::string& note) { notes_.push_back(note); };
    ThreadPool pool(2);
    const CancelFlag never;
    const Compute compute{pool, never};
    const auto pass = denoiser_.Start(std::move(conditions), compute);
    const std::vector<Tap> taps(2, sink ? Tap(sink) : Tap());
    std::vector<Tensor> velocities;
    for (const float timestep : {1.0f, 0.5f}) {
      for (Tensor& velocity : pass->Predict(latents_, timestep, taps))
        velocities.push_back(std::move(velocity));
    }
    return velocities;
  }

  // What the weights and the workspace need, and so much for the prefix.
  int64_t NeedWith(int64_t prefix_bytes) const {
    const TransformerConfig& config = denoiser_.transformer().config();
    return denoiser_.transformer().total_bytes() + TransformerWorkspace(config, 3 + 8, 6) + prefix_bytes;
  }
  int64_t PrefixBytes(Keeping keeping) const {
    return (3 + 8 + 2 + 8) * PrefixCacheBytes(denoiser_.transformer().config(), keeping);
  }

  QwenImage21Denoiser denoiser_;
  Tensor embeds_, negative_, references_, latents_;
  std::vector<std::string> notes_;
};

class FastDenoiserTest : public DenoiserTest {
 protected:
  FastDenoiserTest() : DenoiserTest(Precision::kFast) {}
};

void ExpectSameBits(std::span<const Tensor> got, std::span<const Tensor> want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].shape(), want[i].shape());
    EXPECT_EQ(std::memcmp(got[i].data(), want[i].data(), static_cast<size_t>(got[i].size()) * 4), 0) << i;
  }
}

TEST_F(DenoiserTest, AKeptPrefixHasTheBitsOfOneThatIsComputedAnew) {
  const std::vector<Tensor> kept = Draw(kPlenty);
  EXPECT_THAT(notes_, IsEmpty());
  const std::vector<Tensor> anew = Draw(NeedWith(PrefixBytes(Keeping::kFloat32) - 1));
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("computed again at every step")));
  ExpectSameBits(anew, kept);
  ListensToAll listener;
  ExpectSameBits(Draw(kPlenty, &listener), kept);
}

TEST_F(DenoiserTest, ThePrefixIsKeptWhereItJustFits) {
  Draw(NeedWith(PrefixBytes(Keeping::kFloat32)));
  EXPECT_THAT(notes_, IsEmpty());
}

TEST_F(FastDenoiserTest, FastPrecisionRoundsAPrefixThatDoesNotFit) {
  const std::vector<Tensor> kept = Draw(kPlenty);
  const std::vector<Tensor> rounded = Draw(NeedWith(PrefixBytes(Keeping::kBfloat16)));
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("bfloat16")));
  // The first step has the keys and values as they are computed.
  ExpectSameBits(std::span(rounded).first(2), std::span(kept).first(2));
  double error = 0, energy = 0;
  for (int64_t i = 0; i < kept[2].size(); ++i) {
    error += std::pow(static_cast<double>(rounded[2][i]) - kept[2][i], 2);
    energy += std::pow(static_cast<double>(kept[2][i]), 2);
  }
  EXPECT_GT(error, 0);
  EXPECT_LT(error, 1e-4 * energy);
  Draw(NeedWith(PrefixBytes(Keeping::kBfloat16) - 1));
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("computed again at every step")));
}

TEST_F(DenoiserTest, GuidanceIsPlain) {
  Tensor positive({1, 1, 2}), negative({1, 1, 2});
  positive[0] = 3, positive[1] = -1;
  negative[0] = 1, negative[1] = 4;
  denoiser_.Guide(negative, 2.0f, positive);
  EXPECT_EQ(positive[0], 5.0f);
  EXPECT_EQ(positive[1], -6.0f);
}

}  // namespace
}  // namespace qwen_image::qwen_image_21
