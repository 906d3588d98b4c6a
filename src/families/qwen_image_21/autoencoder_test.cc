#include "families/qwen_image_21/autoencoder.h"

#include <gtest/gtest.h>

#include "families/qwen_image_21/latents.h"
#include "families/qwen_image_21/vae_testing.h"
#include "files/digest.h"
#include "qwen_image/cancel.h"

namespace qwen_image::qwen_image_21 {
namespace {

constexpr TokenGrid kGrid = {.height = 2, .width = 3};

class AutoencoderTest : public ::testing::Test {
 protected:
  QwenImage21Autoencoder autoencoder_{VaeFiles().Open()};
  ThreadPool pool_{2};
};

TEST_F(AutoencoderTest, ATokenHoldsAllChannelsOfALatent) {
  Tensor latents({1, 1, 5, 2, 3});
  for (int64_t i = 0; i < latents.size(); ++i) latents[i] = static_cast<float>(i);
  const Tensor packed = autoencoder_.Pack(latents, kGrid);
  ASSERT_EQ(packed.shape(), (Shape{1, 6, 5}));
  // Row 1, column 1 of every channel.
  EXPECT_EQ(std::vector<float>(packed.row(4), packed.row(4) + 5), (std::vector<float>{4, 10, 16, 22, 28}));
  const Tensor back = UnpackLatents(packed, 5, kGrid);
  EXPECT_EQ(back.shape(), autoencoder_.DecodedShape(kGrid));
  EXPECT_EQ(ValuesOf(back), ValuesOf(latents));
}

// As the pipeline computes it: divided by std there, and multiplied by std here.
TEST_F(AutoencoderTest, LatentsAreNormalisedAndBack) {
  const Tensor moments = GoldenNumbers({1, 10, 1, 2, 3}, 7919, 2.0f);
  const Tensor packed = autoencoder_.Latents(moments, kGrid, nullptr);
  const Tensor plain = UnpackLatents(packed, 5, kGrid), back = autoencoder_.Unpack(packed, kGrid);
  const float mean[] = {0.5f, -0.25f, 1.5f, -2.0f, 0.125f}, std[] = {3.0f, 1.25f, 0.75f, 2.5f, 1.1f};
  for (int64_t i = 0; i < plain.size(); ++i) {
    EXPECT_EQ(plain[i], (moments[i] - mean[i / 6]) / std[i / 6]) << i;
    const float product = plain[i] * std[i / 6];
    EXPECT_EQ(back[i], product + mean[i / 6]) << i;
  }
}

TEST_F(AutoencoderTest, AGeneratorDrawsFromTheDistribution) {
  const Tensor moments = GoldenNumbers({1, 10, 1, 2, 3}, 7919, 2.0f);
  TorchGenerator generator(3), same(3);
  const std::vector<float> sample = ValuesOf(autoencoder_.Latents(moments, kGrid, &generator));
  EXPECT_EQ(ValuesOf(autoencoder_.Latents(moments, kGrid, &same)), sample);
  EXPECT_NE(ValuesOf(autoencoder_.Latents(moments, kGrid, nullptr)), sample);
}

TEST_F(AutoencoderTest, AMaskIsTheSameForAllChannels) {
  Tensor mask({1, 1, 32, 48});
  for (int64_t i = 0; i < mask.size(); ++i) mask[i] = i % 48 < 16 ? 0.0f : 1.0f;
  const Tensor packed = autoencoder_.PackMask(mask, kGrid);
  ASSERT_EQ(packed.shape(), (Shape{1, 6, 5}));
  for (int64_t i = 0; i < packed.size(); ++i) EXPECT_EQ(packed[i], i / 5 % 3 == 0 ? 0.0f : 1.0f) << i;
}

// As processor_goldens.py's picture().
Image Picture(int64_t width, int64_t height, int64_t channels) {
  Image image{width, height, std::vector<uint8_t>(static_cast<size_t>(width * height * channels)), channels};
  for (size_t i = 0; i < image.pixels.size(); ++i) {
    uint32_t x = static_cast<uint32_t>(i) * 2654435761u + 12345u;
    x = (x ^ (x >> 15)) * 2246822519u;
    image.pixels[i] = static_cast<uint8_t>((x ^ (x >> 13)) >> 24);
  }
  return image;
}

TEST_F(AutoencoderTest, PicturesAreReadWithTheOfficialBits) {
  const Json goldens =
      ReadJsonFile(std::filesystem::path(QWEN_IMAGE_SOURCE_DIR) / "tests/goldens/processors/vae_rgba.json");
  ASSERT_EQ(goldens["rows"].size(), 8u);
  for (const Json& row : goldens["rows"]) {
    SCOPED_TRACE(row.dump());
    const Tensor out = autoencoder_.Preprocess(Picture(row["size"][0], row["size"][1], row["size"][2]),
                                               {row["to"][0], row["to"][1]}, pool_);
    EXPECT_EQ(out.shape(), row["shape"].get<Shape>());
    EXPECT_EQ(Sha256({reinterpret_cast<const char*>(out.data()), static_cast<size_t>(out.size()) * 4}),
              row["sha256"]);
  }
}

TEST_F(AutoencoderTest, LargePicturesPassInTiles) {
  const CancelFlag never;
  const Compute compute{pool_, never};
  const Tensor latents = GoldenLatents(65, 2);  // 1040 pixels
  const Tensor tiled = autoencoder_.Decode(latents, true, compute, {});
  EXPECT_EQ(ValuesOf(tiled),
            ValuesOf(autoencoder_.vae().DecodeTiled(latents, {.min_size = 1024, .stride = 768}, compute)));
  EXPECT_NE(ValuesOf(tiled), ValuesOf(autoencoder_.Decode(latents, false, compute, {})));
}

TEST(Geometry, IsThePublishedOne) {
  const Geometry g = GeometryOf(VaeConfig());
  EXPECT_EQ(g.pixel_channels, 4);
  EXPECT_EQ(g.latent_channels, 64);
  EXPECT_EQ(g.pixels_per_token(), 16);
  EXPECT_EQ(g.side_multiple, 32);
  EXPECT_EQ(g.PlainShape(g.GridOf({2048, 1024})), (Shape{1, 1, 64, 64, 128}));
  EXPECT_EQ(g.PackedShape(g.GridOf({2048, 1024})), (Shape{1, 8192, 64}));
}

// Beside the weights 3 GB are enough by default, whatever the size.
TEST(VaeWorkspace, TilesKeepItSmall) {
  const VaeConfig config;
  const Geometry geometry = GeometryOf(config);
  constexpr int64_t kLimit = 3'000'000'000;
  const auto need = [&](ImageSize size, GenerateRequest::Tiling tiling) {
    return VaeWorkspace(config, geometry,
                        {.picture = size, .references = {}, .prompt_tokens = 0, .tiling = tiling});
  };
  using Tiling = GenerateRequest::Tiling;
  EXPECT_LT(need({1024, 1024}, Tiling::kAuto), kLimit);
  EXPECT_EQ(need({1024, 1024}, Tiling::kAuto), need({1024, 1024}, Tiling::kOff));
  EXPECT_LT(need({1152, 1024}, Tiling::kAuto), kLimit);
  EXPECT_LT(need({2048, 2048}, Tiling::kAuto), kLimit);
  EXPECT_LT(need({2752, 1536}, Tiling::kAuto), kLimit);
  EXPECT_GT(need({2048, 2048}, Tiling::kOff), 8'000'000'000);

  // A reference of 2048 × 2048 is read as a whole, as in diffusers.
  const EditInputSizes reference = {{}, {}, {2048, 2048}};
  EXPECT_FALSE(geometry.TilesInput(Tiling::kAuto, reference.vae));
  EXPECT_TRUE(geometry.TilesInput(Tiling::kOn, reference.vae));
  EXPECT_TRUE(geometry.TilesInput(Tiling::kAuto, {2304, 2048}));
  const auto edit = [&](Tiling tiling) {
    return VaeWorkspace(
        config, geometry,
        {.picture = {512, 512}, .references = {&reference, 1}, .prompt_tokens = 0, .tiling = tiling});
  };
  EXPECT_LT(edit(Tiling::kAuto), kLimit);
  EXPECT_LT(edit(Tiling::kOn), edit(Tiling::kAuto));
}

}  // namespace
}  // namespace qwen_image::qwen_image_21
