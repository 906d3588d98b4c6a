// Against calculate_dimensions: tests/goldens/processors/sizes.json, written by
// tools/reference/processor_goldens.py.
#include "pipeline/edit_sizes.h"

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

TEST(PlanEditSizes, FollowsTheLastOfSeveralInputs) {
  const EditSizes plan = PlanEditSizes({.inputs = {{1080, 1920}, {4000, 3000}}});
  ASSERT_EQ(plan.inputs.size(), 2u);
  EXPECT_EQ(plan.inputs[0].vae, (ImageSize{768, 1376}));
  EXPECT_EQ(plan.inputs[0].condition, (ImageSize{288, 512}));
  EXPECT_EQ(plan.inputs[1].vae, (ImageSize{1184, 896}));
  EXPECT_EQ(plan.inputs[1].condition, (ImageSize{448, 320}));
  EXPECT_EQ(plan.working, (ImageSize{1184, 896}));
  EXPECT_EQ(plan.output, plan.working);
  EXPECT_TRUE(plan.same_grid);
  EXPECT_TRUE(plan.resampled());
  EXPECT_DOUBLE_EQ(plan.scale_x, 1184.0 / 4000);
  EXPECT_DOUBLE_EQ(plan.scale_y, 896.0 / 3000);
  EXPECT_NEAR(plan.stretch_percent, -0.893, 5e-4);  // (1184 / 896) / (4 / 3) - 1
}

TEST(PlanEditSizes, ShowsTheVisionEncoderTheVaesPictureInQwenImageEdit) {
  const EditSizes plan = PlanEditSizes({.inputs = {{1920, 1080}}, .areas = {.condition_area = std::nullopt}});
  EXPECT_EQ(plan.edited().vae, (ImageSize{1376, 768}));
  EXPECT_EQ(plan.edited().condition, plan.edited().vae);
}

TEST(PlanEditSizes, TakesTheModelsAreas) {
  const EditSizes plan =
      PlanEditSizes({.inputs = {{128, 128}}, .areas = {.vae_area = 128 * 128, .condition_area = 96 * 96}});
  EXPECT_EQ(plan.edited().vae, (ImageSize{128, 128}));
  EXPECT_EQ(plan.edited().condition, (ImageSize{96, 96}));
  EXPECT_FALSE(plan.resampled());
  EXPECT_EQ(plan.stretch_percent, 0);
}

TEST(PlanEditSizes, ReturnsTheInputsSizeWhenAsked) {
  const EditSizes plan = PlanEditSizes({.inputs = {{640, 480}, {1023, 777}}, .keep_size = true});
  EXPECT_EQ(plan.working, plan.edited().vae);
  EXPECT_EQ(plan.output, (ImageSize{1023, 777}));
  EXPECT_EQ(plan.stretch_percent, 0);
}

TEST(PlanEditSizes, CutsARequestedSizeToWholeTokensAndLeavesTheInputsAlone) {
  const EditSizes plan = PlanEditSizes({.inputs = {{1024, 1024}}, .size = ImageSize{527, 1000}});
  EXPECT_EQ(plan.working, (ImageSize{512, 992}));
  EXPECT_EQ(plan.output, plan.working);
  EXPECT_EQ(plan.edited().vae, (ImageSize{1024, 1024}));
  EXPECT_FALSE(plan.same_grid);
}

TEST(PlanEditSizes, RefusesWhatCannotBe) {
  EXPECT_THROW(PlanEditSizes({}), Error);
  EXPECT_THROW(PlanEditSizes({.inputs = {{0, 10}}}), Error);
  EXPECT_THROW(PlanEditSizes({.inputs = {{64, 64}}, .size = ImageSize{15, 64}}), Error);
  EXPECT_THROW(PlanEditSizes({.inputs = {{64, 64}}, .size = ImageSize{64, -16}}), Error);
}

}  // namespace
}  // namespace qwen_image
