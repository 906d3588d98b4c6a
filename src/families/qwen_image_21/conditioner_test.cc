// Prompts and pictures through the whole conditioner, against the official pipeline's own code.
#include "families/qwen_image_21/conditioner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "families/qwen_image_21/edit_sizes.h"
#include "families/qwen_image_21/encoders_testing.h"
#include "families/qwen_image_21/joint_sequence.h"
#include "files/digest.h"

namespace qwen_image::qwen_image_21 {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kArea = 64 * 64;

// As processor_goldens.py's picture().
Image Picture(int64_t width, int64_t height, int64_t channels) {
  Image image{.width = width, .height = height, .pixels = {}, .channels = channels};
  image.pixels.resize(static_cast<size_t>(width * height * channels));
  for (size_t i = 0; i < image.pixels.size(); ++i) {
    uint32_t x = static_cast<uint32_t>(i) * 2654435761u + 12345u;
    x = (x ^ (x >> 15)) * 2246822519u;
    image.pixels[i] = static_cast<uint8_t>((x ^ (x >> 13)) >> 24);
  }
  return image;
}

std::string HashOf(const Tensor& tensor) {
  return Sha256(
      {reinterpret_cast<const char*>(tensor.data()), static_cast<size_t>(tensor.size()) * sizeof(float)});
}

class ConditionerTest : public ::testing::Test {
 protected:
  static QwenImage21Conditioner Load(const fs::path& root) {
    ModelParts parts;
    parts.root = root;
    parts.tokenizer = fs::path(QWEN_IMAGE_SOURCE_DIR) / "models/tiny/tokenizer";
    parts.text_encoder = parts.vision_encoder = kGoldens / "micro/text_encoder";
    return QwenImage21Conditioner(parts, Precision::kExact);
  }
  VisionImages Look(const QwenImage21Conditioner& conditioner, const std::vector<Image>& images,
                    int64_t area = kArea) {
    std::vector<ImageSize> inputs;
    for (const Image& image : images) inputs.push_back({image.width, image.height});
    return conditioner.Look(images, inputs.empty() ? std::vector<EditInputSizes>() : PlanEdit(inputs, area),
                            pool_);
  }

  ThreadPool pool_{2};
  const CancelFlag never_{};
  const Compute compute_{pool_, never_};
};

TEST_F(ConditionerTest, EncodesAsTheOfficialPipeline) {
  const QwenImage21Conditioner conditioner = Load(kGoldens / "micro");
  const GoldenTensors expected = ExpectedOf("micro");
  const Json goldens = ReadJsonFile(kGoldens / "micro.json");
  ASSERT_EQ(goldens["rows"].size(), 6u);
  for (const Json& row : goldens["rows"]) {
    const auto name = row["name"].get<std::string>();
    SCOPED_TRACE(name);
    std::vector<Image> images;
    for (const Json& size : row["sizes"]) images.push_back(Picture(size[0], size[1], size[2]));
    VisionImages pictures = Look(conditioner, images);
    if (!images.empty()) {
      EXPECT_EQ(HashOf(pictures.pixel_values), row["pixels_sha256"].get<std::string>());
      ASSERT_EQ(pictures.grids.size(), row["image_grid_thw"].size());
      for (size_t i = 0; i < images.size(); ++i) {
        const ImageGrid& grid = pictures.grids[i];
        EXPECT_EQ(Json({grid.t, grid.h, grid.w}), row["image_grid_thw"][i]);
      }
      conditioner.Embed(pictures, compute_, {});
    }
    const EncodedPrompt prompt = conditioner.Tokenize(row["prompt"], pictures, {});
    EXPECT_EQ(std::count(prompt.ids.begin(), prompt.ids.end(), conditioner.image_token()),
              row["image_tokens"].get<int64_t>());
    std::vector<int64_t> positions;
    const Tensor hidden_states = conditioner.Encode(
        prompt, pictures, compute_, {}, [&](const std::vector<int64_t>& told) { positions = told; });
    EXPECT_EQ(positions.size(), images.empty() ? 0u : 3 * prompt.ids.size());
    const Tensor want = expected.Get(name);
    ASSERT_EQ(want.shape(), (Shape{1, prompt.own_ids(), conditioner.width()}));
    EXPECT_LE(Nmse(hidden_states.row(prompt.dropped), want.data(), want.size()), 1e-8);
    const EncodedPrompt taken = conditioner.TakeIds(prompt.ids, pictures, {});
    EXPECT_EQ(taken.dropped, prompt.dropped);
    EXPECT_EQ(taken.image_token, prompt.image_token);
  }
}

// Before the text encoder runs. A picture takes the positions of its longer side, not of its tokens.
TEST_F(ConditionerTest, RefusesPromptsBeyondTheTransformersPositions) {
  const QwenImage21Conditioner conditioner = Load(kGoldens / "micro");
  const auto prompt_of = [](int64_t words) {
    std::string prompt;
    for (int64_t i = 0; i < words; ++i) prompt += " 7";
    return prompt;
  };
  const int64_t per_word = (conditioner.Tokenize(prompt_of(101), {}, {}).own_ids() -
                            conditioner.Tokenize(prompt_of(1), {}, {}).own_ids()) /
                           100;
  const int64_t around = conditioner.Tokenize(prompt_of(1), {}, {}).own_ids() - per_word;
  const int64_t most = (kPositions - 1 - around) / per_word;
  EXPECT_EQ(conditioner.Tokenize(prompt_of(most), {}, {}).own_ids(), around + most * per_word);
  const auto message = [&](int64_t words, const VisionImages& pictures) {
    return MessageOf(ErrorKind::kUsage, [&] { conditioner.Tokenize(prompt_of(words), pictures, {}); });
  };
  EXPECT_THAT(message(most + 1, {}), HasSubstr("but this model has 8192 positions"));
  const VisionImages wide{.pixel_values = {}, .grids = {{1, 2, 200}}, .features = {}};
  EXPECT_THAT(message(most - 190 / per_word, wide), HasSubstr("but this model has 8192 positions"));
  EXPECT_NO_THROW(conditioner.Tokenize(prompt_of(most - 300 / per_word), wide, {}));
}

TEST_F(ConditionerTest, TakesIdsBehindTheTemplateOnly) {
  const QwenImage21Conditioner conditioner = Load(kGoldens / "micro");
  EXPECT_THAT(
      MessageOf(ErrorKind::kBadInput, [&] { conditioner.TakeIds(std::vector<int64_t>(28, 1), {}, {}); }),
      HasSubstr("28 tokens, no more than the 28"));
  EXPECT_EQ(conditioner.TakeIds(std::vector<int64_t>(29, 1), {}, {}).embeds(), 1);
}

// The published image processor, where the folder has none, sees nothing below 65536 pixels.
TEST_F(ConditionerTest, RefusesPicturesThatTheVisionEncoderWouldSeeAtAnotherSize) {
  const TempFolder folder;
  const QwenImage21Conditioner conditioner = Load(folder.path());
  EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [&] { Look(conditioner, {Picture(64, 64, 3)}); }),
              AllOf(HasSubstr("edited at 64x64"), HasSubstr("would see it at 256x256"),
                    HasSubstr("65536 to 16777216 pixels")));
  const VisionImages seen = Look(conditioner, {Picture(64, 64, 3)}, 256 * 256);
  ASSERT_EQ(seen.grids.size(), 1u);
  EXPECT_EQ(seen.grids[0].h, 16);
  EXPECT_EQ(seen.pixel_values.shape(), (Shape{256, 1536}));
}

TEST_F(ConditionerTest, OpensTheVisionEncoderOnDemand) {
  const QwenImage21Conditioner conditioner = Load(kGoldens / "micro");
  const auto opened = [&] {
    return conditioner.encoders().WithOpenedVision([](const VisionEncoder* v) { return v != nullptr; });
  };
  EXPECT_FALSE(opened());
  conditioner.NeedVision();
  EXPECT_TRUE(opened());
  conditioner.encoders().ReleasePages();
}

TEST_F(ConditionerTest, RefusesAVisionEncoderOfAnotherWidth) {
  ModelParts parts;
  parts.root = kGoldens / "micro";
  parts.tokenizer = fs::path(QWEN_IMAGE_SOURCE_DIR) / "models/tiny/tokenizer";
  parts.text_encoder = kGoldens / "micro/text_encoder";
  parts.vision_encoder = kGoldens / "nested";
  const QwenImage21Conditioner conditioner(parts, Precision::kExact);
  EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [&] { conditioner.NeedVision(); }),
              HasSubstr("output is 12 wide, but the text encoder 16"));
}

TEST(OverWhite, LeavesOpaquePixelsAndHidesClearOnes) {
  const Image image{.width = 2,
                    .height = 2,
                    .pixels = {1, 2, 3, 255, 4, 5, 6, 0, 0, 100, 255, 128, 9, 9, 9, 1},
                    .channels = 4};
  const Image flat = OverWhite(image);
  EXPECT_EQ(flat.channels, 3);
  EXPECT_EQ(flat.pixels, (std::vector<uint8_t>{1, 2, 3, 255, 255, 255, 127, 177, 255, 254, 254, 254}));
  const Image opaque{.width = 1, .height = 1, .pixels = {7, 8, 9}};
  EXPECT_EQ(OverWhite(opaque).pixels, opaque.pixels);
}

}  // namespace
}  // namespace qwen_image::qwen_image_21
