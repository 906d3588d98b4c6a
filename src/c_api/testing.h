// Handles that free themselves, and what most tests of the C API draw.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "qwen_image/c_api.h"

namespace qwen_image {

inline constexpr const char* kTiny = QWEN_IMAGE_SOURCE_DIR "/models/tiny";

template <auto kFree>
struct Freed {
  void operator()(auto* handle) const { kFree(handle); }
};
using OptionsHandle = std::unique_ptr<qwen_image_options, Freed<qwen_image_options_free>>;
using PipelineHandle = std::unique_ptr<qwen_image_pipeline, Freed<qwen_image_pipeline_free>>;
using RequestHandle = std::unique_ptr<qwen_image_request, Freed<qwen_image_request_free>>;
using DrawingHandle = std::unique_ptr<qwen_image_drawing, Freed<qwen_image_drawing_free>>;
using PictureHandle = std::unique_ptr<qwen_image_picture, Freed<qwen_image_picture_free>>;

inline PipelineHandle Open(const char* model = kTiny) {
  qwen_image_pipeline* pipeline = nullptr;
  EXPECT_EQ(qwen_image_pipeline_open(model, nullptr, &pipeline), QWEN_IMAGE_OK) << qwen_image_last_error();
  return PipelineHandle(pipeline);
}

// Small, and of few steps: what is drawn is the engine's concern.
inline RequestHandle SmallRequest(int64_t steps = 2) {
  qwen_image_request* request = nullptr;
  EXPECT_EQ(qwen_image_request_new("a red circle", &request), QWEN_IMAGE_OK);
  EXPECT_EQ(qwen_image_request_set_size(request, 64, 32), QWEN_IMAGE_OK);
  EXPECT_EQ(qwen_image_request_set_steps(request, steps), QWEN_IMAGE_OK);
  EXPECT_EQ(qwen_image_request_set_cfg(request, 1), QWEN_IMAGE_OK);
  return RequestHandle(request);
}

inline PictureHandle Draw(const PipelineHandle& pipeline, const RequestHandle& request) {
  qwen_image_picture* picture = nullptr;
  EXPECT_EQ(qwen_image_generate(pipeline.get(), request.get(), &picture), QWEN_IMAGE_OK)
      << qwen_image_last_error();
  return PictureHandle(picture);
}

inline std::vector<uint8_t> PixelsOf(const qwen_image_picture* picture) {
  const uint8_t* pixels = qwen_image_picture_pixels(picture);
  return {pixels, pixels + qwen_image_picture_channels(picture) * qwen_image_picture_width(picture) *
                               qwen_image_picture_height(picture)};
}

inline std::vector<uint8_t> PixelsOf(const PictureHandle& picture) { return PixelsOf(picture.get()); }

}  // namespace qwen_image
