// What is behind the handles of the C API.
#pragma once

#include <optional>

#include "qwen_image/c_api.h"
#include "qwen_image/qwen_image.h"

struct qwen_image_options {
  qwen_image::ModelFiles files;
  qwen_image::PipelineOptions pipeline;
};

struct qwen_image_pipeline {
  qwen_image::Pipeline pipeline;
};

struct qwen_image_request {
  qwen_image::GenerateRequest request;
  qwen_image_progress_callback on_progress = nullptr;
  void* progress_data = nullptr;
  qwen_image_preview_callback on_preview = nullptr;
  void* preview_data = nullptr;
  qwen_image_preview_pixels_callback on_preview_pixels = nullptr;
  void* preview_pixels_data = nullptr;
};

struct qwen_image_picture {
  qwen_image::Picture picture;
  std::optional<qwen_image_alignment> alignment = {};
};
