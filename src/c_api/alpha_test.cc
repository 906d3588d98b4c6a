// Pictures with alpha, backgrounds and sigmas for C: with the toy family, which draws with alpha, and the
// embedded model, which does not.
#include <gmock/gmock.h>

#include "c_api/testing.h"
#include "files/colour.h"
#include "files/testing.h"
#include "qwen_image/image_file.h"
#include "qwen_image/qwen_image.h"
#include "toy_family.h"

namespace qwen_image {
namespace {

using testing::HasSubstr;

struct SeenPreviews {
  std::vector<Image> rgb, pixels;
};
int SeeRgb(void* user_data, int64_t width, int64_t height, const uint8_t* rgb) {
  static_cast<SeenPreviews*>(user_data)->rgb.push_back({width, height, {rgb, rgb + 3 * width * height}});
  return 0;
}
int SeePixels(void* user_data, int64_t width, int64_t height, int channels, const uint8_t* pixels) {
  static_cast<SeenPreviews*>(user_data)->pixels.push_back(
      {width, height, {pixels, pixels + channels * width * height}, channels});
  return 0;
}
int Stop(void*, int64_t, int64_t, int, const uint8_t*) { return 1; }

class CAlpha : public testing::Test {
 protected:
  CAlpha() {
    WriteToyModel(folder_.path() / "toy", {.channels = 4});
    pipeline_ = Open((folder_.path() / "toy").c_str());
  }
  static RequestHandle Request() {
    qwen_image_request* request = nullptr;
    EXPECT_EQ(qwen_image_request_new("a toy", &request), QWEN_IMAGE_OK);
    return RequestHandle(request);
  }
  PictureHandle Read(const char* name, bool alpha) const {
    qwen_image_picture* picture = nullptr;
    const std::string path = (folder_.path() / name).string();
    EXPECT_EQ((alpha ? qwen_image_picture_read_alpha : qwen_image_picture_read)(path.c_str(), &picture),
              QWEN_IMAGE_OK)
        << qwen_image_last_error();
    return PictureHandle(picture);
  }
  std::vector<uint8_t> DrawWith(const GenerateRequest& request) const {
    return Pipeline(folder_.path() / "toy").Generate(request).pixels;
  }

  const TempFolder folder_;
  const ScopedFamily registered_{ToyFamily()};
  PipelineHandle pipeline_;
};

TEST_F(CAlpha, IsDrawnSavedAndRead) {
  EXPECT_EQ(qwen_image_pipeline_channels(pipeline_.get()), 4);
  const PictureHandle picture = Draw(pipeline_, Request());
  ASSERT_EQ(qwen_image_picture_channels(picture.get()), 4);
  GenerateRequest same;
  same.prompt = "a toy";
  EXPECT_EQ(PixelsOf(picture), DrawWith(same));
  ASSERT_EQ(qwen_image_picture_save_png(picture.get(), (folder_.path() / "a.png").c_str()), QWEN_IMAGE_OK);
  const PictureHandle kept = Read("a.png", true), on_white = Read("a.png", false);
  EXPECT_EQ(qwen_image_picture_channels(kept.get()), 4);
  EXPECT_EQ(PixelsOf(kept), PixelsOf(picture));
  EXPECT_EQ(qwen_image_picture_channels(on_white.get()), 3);
  EXPECT_EQ(PixelsOf(on_white), Flatten({32, 16, PixelsOf(picture), 4}).pixels);
}

TEST_F(CAlpha, PreviewsAreWhatTheCallbackTakes) {
  const RequestHandle request = Request();
  SeenPreviews seen;
  ASSERT_EQ(qwen_image_request_set_preview(request.get(), SeeRgb, &seen), QWEN_IMAGE_OK);
  ASSERT_EQ(qwen_image_request_set_preview_pixels(request.get(), SeePixels, &seen), QWEN_IMAGE_OK);
  Draw(pipeline_, request);
  ASSERT_EQ(seen.pixels.size(), 2u);
  ASSERT_EQ(seen.rgb.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(seen.pixels[i].channels, 4);
    EXPECT_EQ(seen.rgb[i].pixels, Flatten(seen.pixels[i]).pixels);
  }
  ASSERT_EQ(qwen_image_request_set_preview(request.get(), nullptr, nullptr), QWEN_IMAGE_OK);
  ASSERT_EQ(qwen_image_request_set_preview_pixels(request.get(), Stop, nullptr), QWEN_IMAGE_OK);
  qwen_image_picture* picture = nullptr;
  EXPECT_EQ(qwen_image_generate(pipeline_.get(), request.get(), &picture), QWEN_IMAGE_INTERRUPTED);
}

TEST_F(CAlpha, InputsHaveThreeOrFourChannels) {
  GenerateRequest same;
  same.prompt = "a toy";
  const std::vector<uint8_t> grey(32 * 16 * 4, 60);
  const uint8_t* const pixels = grey.data();
  same.init_image = Image{32, 16, grey, 4};
  const RequestHandle request = Request();
  ASSERT_EQ(qwen_image_request_set_init_pixels(request.get(), 32, 16, 4, pixels), QWEN_IMAGE_OK);
  EXPECT_EQ(PixelsOf(Draw(pipeline_, request)), DrawWith(same));
  const RequestHandle rgb = Request();
  ASSERT_EQ(qwen_image_request_set_init_pixels(rgb.get(), 32, 16, 3, pixels), QWEN_IMAGE_OK);
  same.init_image = Image{32, 16, std::vector<uint8_t>(32 * 16 * 3, 60)};
  EXPECT_EQ(PixelsOf(Draw(pipeline_, rgb)), DrawWith(same));
  EXPECT_EQ(qwen_image_request_set_init_pixels(rgb.get(), 32, 16, 2, pixels), QWEN_IMAGE_USAGE);
  EXPECT_THAT(qwen_image_last_error(), HasSubstr("3 (RGB) and 4 (RGBA)"));
  EXPECT_EQ(qwen_image_request_add_input_pixels(rgb.get(), 32, 16, 4, nullptr), QWEN_IMAGE_USAGE);

  const RequestHandle edit = Request();
  ASSERT_EQ(qwen_image_request_add_input_pixels(edit.get(), 32, 16, 4, pixels), QWEN_IMAGE_OK);
  EXPECT_EQ(qwen_image_check(pipeline_.get(), edit.get()), QWEN_IMAGE_OK) << qwen_image_last_error();
}

TEST_F(CAlpha, Backgrounds) {
  const RequestHandle request = Request();
  const std::vector<uint8_t> clear = PixelsOf(Draw(pipeline_, request));
  ASSERT_EQ(qwen_image_request_set_background(request.get(), "black"), QWEN_IMAGE_OK);
  const PictureHandle flat = Draw(pipeline_, request);
  EXPECT_EQ(qwen_image_picture_channels(flat.get()), 3);
  EXPECT_EQ(PixelsOf(flat), Flatten({32, 16, clear, 4}, {0, 0, 0}).pixels);
  EXPECT_THAT(qwen_image_picture_settings(flat.get()), HasSubstr(R"("background":"black")"));
  ASSERT_EQ(qwen_image_request_set_background(request.get(), ""), QWEN_IMAGE_OK);
  EXPECT_EQ(PixelsOf(Draw(pipeline_, request)), clear);
  EXPECT_EQ(qwen_image_request_set_background(request.get(), nullptr), QWEN_IMAGE_USAGE);

  const PipelineHandle tiny = Open();
  EXPECT_EQ(qwen_image_pipeline_channels(tiny.get()), 3);
  ASSERT_EQ(qwen_image_request_set_background(request.get(), "transparent"), QWEN_IMAGE_OK);
  EXPECT_EQ(qwen_image_check(tiny.get(), request.get()), QWEN_IMAGE_USAGE);
  EXPECT_THAT(qwen_image_last_error(), HasSubstr("draws no transparent pictures"));
}

TEST_F(CAlpha, Sigmas) {
  const RequestHandle request = Request();
  const double sigmas[] = {1, 0.5};
  ASSERT_EQ(qwen_image_request_set_sigmas(request.get(), sigmas, 2), QWEN_IMAGE_OK);
  const PictureHandle picture = Draw(pipeline_, request);
  EXPECT_EQ(qwen_image_picture_steps(picture.get()), 2);
  GenerateRequest same;
  same.prompt = "a toy";
  same.sigmas = {1, 0.5};
  EXPECT_EQ(PixelsOf(picture), DrawWith(same));
  ASSERT_EQ(qwen_image_request_set_sigmas(request.get(), nullptr, 0), QWEN_IMAGE_OK);
  EXPECT_EQ(qwen_image_picture_steps(Draw(pipeline_, request).get()), 3);
  EXPECT_EQ(qwen_image_request_set_sigmas(request.get(), nullptr, 2), QWEN_IMAGE_USAGE);
  EXPECT_EQ(qwen_image_request_set_sigmas(request.get(), sigmas, -1), QWEN_IMAGE_USAGE);
  EXPECT_EQ(qwen_image_request_set_sigmas(request.get(), sigmas, 1001), QWEN_IMAGE_USAGE);
  const double rising[] = {0.5, 1};
  ASSERT_EQ(qwen_image_request_set_sigmas(request.get(), rising, 2), QWEN_IMAGE_OK);
  EXPECT_EQ(qwen_image_check(pipeline_.get(), request.get()), QWEN_IMAGE_USAGE);
}

TEST(CAlphaOfNothing, IsNothing) {
  EXPECT_EQ(qwen_image_picture_channels(nullptr), 0);
  EXPECT_EQ(qwen_image_pipeline_channels(nullptr), 0);
  EXPECT_EQ(qwen_image_request_set_sigmas(nullptr, nullptr, 0), QWEN_IMAGE_USAGE);
  EXPECT_EQ(qwen_image_request_set_background(nullptr, "white"), QWEN_IMAGE_USAGE);
  EXPECT_EQ(qwen_image_request_set_preview_pixels(nullptr, nullptr, nullptr), QWEN_IMAGE_USAGE);
  EXPECT_EQ(qwen_image_picture_read_alpha("a.png", nullptr), QWEN_IMAGE_USAGE);
}

}  // namespace
}  // namespace qwen_image
