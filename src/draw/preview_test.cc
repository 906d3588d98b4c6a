#include "draw/preview.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/threads.h"
#include "kernels/resize.h"

namespace qwen_image::draw {
namespace {

constexpr const char* kTiny = QWEN_IMAGE_SOURCE_DIR "/models/tiny";

double MeanSquare(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::pow(static_cast<double>(a[i]) - b[i], 2);
  return sum / static_cast<double>(a.size());
}

TEST(Preview, ShowsThePictureToComeAndLeavesItAlone) {
  const Pipeline pipeline(kTiny);
  GenerateRequest request{.prompt = "a red circle on a blue background", .steps = 6, .seed = 3};
  const Picture unwatched = pipeline.Generate(request);
  std::vector<Image> previews;
  const Picture picture =
      pipeline.Generate(request, {.on_preview = [&](const Image& p) { previews.push_back(p); }});
  EXPECT_EQ(picture.pixels, unwatched.pixels);
  ASSERT_EQ(previews.size(), 5u);
  for (const Image& preview : previews) {
    ASSERT_EQ(preview.width, picture.width);
    ASSERT_EQ(preview.height, picture.height);
  }
  // Decoding the noisy latents themselves would be far off (over 10,000 at first).
  EXPECT_LT(MeanSquare(previews[0].pixels, picture.pixels), 2000);
  EXPECT_LT(MeanSquare(previews[2].pixels, picture.pixels), 500);
  EXPECT_LT(MeanSquare(previews[4].pixels, picture.pixels), 10);
}

TEST(Preview, OfALargePictureIsSmall) {
  const Pipeline pipeline(kTiny);
  GenerateRequest request{.prompt = "a red circle on a blue background",
                          .width = 640,
                          .height = 272,
                          .steps = 4,
                          .cfg = 1.0,
                          .seed = 3};
  std::vector<Image> previews;
  const Picture picture =
      pipeline.Generate(request, {.on_preview = [&](const Image& p) { previews.push_back(p); }});
  ASSERT_EQ(previews.size(), 3u);
  const Image& last = previews.back();
  ASSERT_EQ(last.width, 208);  // 80 latents, by threes: 26
  ASSERT_EQ(last.height, 88);  // 34 latents: 11
  ThreadPool pool(1);
  const Image small = Resize(picture.image(), 208, 88, ResizeFilter::kLanczos, pool);
  EXPECT_LT(MeanSquare(last.pixels, small.pixels), 1000);
}

}  // namespace
}  // namespace qwen_image::draw
