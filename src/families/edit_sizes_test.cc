// Against calculate_dimensions: tests/goldens/processors/sizes.json, written by
// tools/reference/processor_goldens.py.
#include "families/edit_sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "files/digest.h"
#include "files/json.h"
#include "files/testing.h"

namespace qwen_image {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kOfficialArea = 1024 * 1024;

double Ratio(ImageSize size) { return static_cast<double>(size.width) / static_cast<double>(size.height); }

// As processor_goldens.py's sweep(). What the reference gives no pixels is an error here.
std::vector<ImageSize> SweepOf(int64_t area) {
  std::vector<ImageSize> sizes;
  for (int64_t side = 1; side < 6000; side += 1 + side / 9) {
    for (int64_t other = 1; other < 6000; other += 97) {
      try {
        sizes.push_back(CalculateDimensions(area, Ratio({side, other})));
      } catch (const Error&) {
        sizes.push_back({0, 0});
      }
    }
  }
  return sizes;
}

TEST(CalculateDimensions, GivesTheOfficialSizes) {
  const Json goldens = ReadJsonFile(QWEN_IMAGE_SOURCE_DIR "/tests/goldens/processors/sizes.json");
  int single = 0, swept = 0;
  for (const Json& row : goldens.at("rows")) {
    SCOPED_TRACE(row.dump());
    if (row.contains("sweep_sha256")) {
      const std::vector<ImageSize> sizes = SweepOf(row["area"]);
      EXPECT_EQ(Sha256({reinterpret_cast<const char*>(sizes.data()), sizes.size() * sizeof(ImageSize)}),
                row["sweep_sha256"]);
      ++swept;
      continue;
    }
    const ImageSize got = CalculateDimensions(row["area"], Ratio({row["size"][0], row["size"][1]}));
    EXPECT_EQ(got, (ImageSize{row["calculated"][0], row["calculated"][1]}));
    ++single;
  }
  EXPECT_EQ(single, 85);
  EXPECT_EQ(swept, 5);
}

TEST(CalculateDimensions, RefusesShapesThatLeaveASideEmpty) {
  EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [] { CalculateDimensions(kOfficialArea, 6000.0); }),
              HasSubstr("less extreme"));
  EXPECT_THROW(CalculateDimensions(kOfficialArea, 1.0 / 6000), Error);
  EXPECT_THROW(CalculateDimensions(kOfficialArea, std::nan("")), Error);
  EXPECT_THROW(CalculateDimensions(0, 1.0), Error);
}

// The rule in the header: which pictures are not resampled at all.
TEST(CalculateDimensions, LeavesSizesNearTheModelsAreaAlone) {
  int kept = 0;
  for (int64_t width = 32; width <= 4096; width += 32) {
    for (int64_t height = 32; height <= 4096; height += 32) {
      const double change =
          std::sqrt(static_cast<double>(kOfficialArea) / static_cast<double>(width * height));
      const bool near = static_cast<double>(std::max(width, height)) * std::abs(change - 1) < 16;
      ASSERT_EQ(CalculateDimensions(kOfficialArea, Ratio({width, height})) == (ImageSize{width, height}),
                near)
          << width << "x" << height;
      kept += near;
    }
  }
  EXPECT_GT(kept, 50);
}

TEST(SizesOf, AreThoseOfTheOfficialPipelines) {
  const EditInputSizes photo = SizesOf({4000, 3000}, {});
  EXPECT_EQ(photo.input, (ImageSize{4000, 3000}));
  EXPECT_EQ(photo.vae, (ImageSize{1184, 896}));
  EXPECT_EQ(photo.condition, (ImageSize{448, 320}));
  const EditInputSizes portrait = SizesOf({1080, 1920}, {});
  EXPECT_EQ(portrait.vae, (ImageSize{768, 1376}));
  EXPECT_EQ(portrait.condition, (ImageSize{288, 512}));
}

TEST(SizesOf, ShowTheVisionEncoderTheVaesPictureInQwenImageEdit) {
  const EditInputSizes sizes = SizesOf({1920, 1080}, {.condition_area = std::nullopt});
  EXPECT_EQ(sizes.vae, (ImageSize{1376, 768}));
  EXPECT_EQ(sizes.condition, sizes.vae);
}

TEST(SizesOf, FollowTheModelsAreas) {
  const EditInputSizes sizes = SizesOf({128, 128}, {.vae_area = 128 * 128, .condition_area = 96 * 96});
  EXPECT_EQ(sizes.vae, sizes.input);
  EXPECT_EQ(sizes.condition, (ImageSize{96, 96}));
}

TEST(SizesOf, SayWhichPictureIsTooNarrow) {
  try {
    SizesOf({4, 4000}, {});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), testing::HasSubstr("the picture of 4x4000"));
  }
}

TEST(SizesOf, RefuseAPictureWithoutPixels) { EXPECT_THROW(SizesOf({0, 10}, {}), Error); }

}  // namespace
}  // namespace qwen_image
