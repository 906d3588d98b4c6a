// What is behind the handles of the C API.
#pragma once

#include <atomic>
#include <optional>
#include <thread>
#include <utility>

#include "qwen_image/c_api.h"
#include "qwen_image/qwen_image.h"

struct qwen_image_options {
  qwen_image::ModelFiles files;
  qwen_image::PipelineOptions pipeline;
};

struct qwen_image_pipeline {
  explicit qwen_image_pipeline(qwen_image::Pipeline opened) : pipeline(std::move(opened)) {}

  // Throws on the thread that was told of an event of a drawing: the drawing waits for that thread.
  void ThrowIfToldOfAnEvent() const {
    if (told == std::this_thread::get_id())
      throw qwen_image::Error(qwen_image::ErrorKind::kUsage,
                              "this thread was told how far a picture is; in such a callback it cannot draw "
                              "another with the same pipeline");
  }

  qwen_image::Pipeline pipeline;
  mutable std::atomic<std::thread::id> told{};
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

// What models draw, as a handle has it.
void FillPicture(qwen_image::Picture drawn, qwen_image_picture& picture);
