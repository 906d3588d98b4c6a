// What is asked of a model, for C. Values are checked by Pipeline::Check, but for pixels, whose sizes are
// looked at as they are copied.
#include <utility>

#include "c_api/guard.h"
#include "c_api/handles.h"
#include "c_api/pixels.h"
#include "qwen_image/image_file.h"

using qwen_image::CopyImage;
using qwen_image::CopyPixels;
using qwen_image::ErrorKind;
using qwen_image::Fail;
using qwen_image::Guarded;
using qwen_image::Need;
using qwen_image::NeedText;

qwen_image_status qwen_image_request_new(const char* prompt, qwen_image_request** request) {
  return Guarded([&] {
    Need(request, "request") = nullptr;
    const std::string text = NeedText(prompt, "prompt");
    *request = new qwen_image_request;
    (*request)->request.prompt = text;
  });
}

void qwen_image_request_free(qwen_image_request* request) { delete request; }

qwen_image_status qwen_image_request_set_prompt(qwen_image_request* request, const char* prompt) {
  return Guarded([&] { Need(request, "request").request.prompt = NeedText(prompt, "prompt"); });
}

qwen_image_status qwen_image_request_set_negative_prompt(qwen_image_request* request,
                                                         const char* negative_prompt) {
  return Guarded([&] {
    Need(request, "request").request.negative_prompt = NeedText(negative_prompt, "negative_prompt");
  });
}

qwen_image_status qwen_image_request_set_size(qwen_image_request* request, int64_t width, int64_t height) {
  return Guarded([&] {
    Need(request, "request").request.width = width;
    request->request.height = height;
  });
}

qwen_image_status qwen_image_request_set_steps(qwen_image_request* request, int64_t steps) {
  return Guarded([&] { Need(request, "request").request.steps = steps; });
}

qwen_image_status qwen_image_request_set_cfg(qwen_image_request* request, double cfg) {
  return Guarded([&] { Need(request, "request").request.cfg = cfg; });
}

qwen_image_status qwen_image_request_set_seed(qwen_image_request* request, uint64_t seed) {
  return Guarded([&] { Need(request, "request").request.seed = seed; });
}

qwen_image_status qwen_image_request_set_sigmas(qwen_image_request* request, const double* sigmas,
                                                int64_t count) {
  return Guarded([&] {
    qwen_image::GenerateRequest& asked = Need(request, "request").request;
    constexpr int64_t kMostSigmas = 1000;  // as many steps can be asked for
    if (count < 0 || count > kMostSigmas)
      Fail(ErrorKind::kUsage, "{} sigmas are not taken: at most {} are", count, kMostSigmas);
    if (count == 0) return asked.sigmas.clear();
    const double* begin = &Need(sigmas, "sigmas");
    asked.sigmas.assign(begin, begin + count);
  });
}

qwen_image_status qwen_image_request_add_input_pixels(qwen_image_request* request, int64_t width,
                                                      int64_t height, int channels, const uint8_t* pixels) {
  return Guarded([&] {
    Need(request, "request").request.input_images.push_back(CopyImage(width, height, channels, pixels));
  });
}

qwen_image_status qwen_image_request_add_input_image(qwen_image_request* request, int64_t width,
                                                     int64_t height, const uint8_t* rgb) {
  return qwen_image_request_add_input_pixels(request, width, height, 3, rgb);
}

qwen_image_status qwen_image_request_set_init_pixels(qwen_image_request* request, int64_t width,
                                                     int64_t height, int channels, const uint8_t* pixels) {
  return Guarded(
      [&] { Need(request, "request").request.init_image = CopyImage(width, height, channels, pixels); });
}

qwen_image_status qwen_image_request_set_init_image(qwen_image_request* request, int64_t width,
                                                    int64_t height, const uint8_t* rgb) {
  return qwen_image_request_set_init_pixels(request, width, height, 3, rgb);
}

qwen_image_status qwen_image_request_set_mask(qwen_image_request* request, int64_t width, int64_t height,
                                              const uint8_t* grey) {
  return Guarded([&] {
    Need(request, "request").request.mask = CopyPixels<qwen_image::GreyImage>(width, height, 1, grey);
  });
}

qwen_image_status qwen_image_request_read_mask(qwen_image_request* request, const char* path) {
  return Guarded([&] {
    qwen_image::GenerateRequest& asked = Need(request, "request").request;
    asked.mask = qwen_image::ReadMask(NeedText(path, "path")).image;
  });
}

qwen_image_status qwen_image_request_clear_input_images(qwen_image_request* request) {
  return Guarded([&] { Need(request, "request").request.input_images.clear(); });
}

qwen_image_status qwen_image_request_clear_init_image(qwen_image_request* request) {
  return Guarded([&] { Need(request, "request").request.init_image.reset(); });
}

qwen_image_status qwen_image_request_clear_mask(qwen_image_request* request) {
  return Guarded([&] { Need(request, "request").request.mask.reset(); });
}

qwen_image_status qwen_image_request_set_strength(qwen_image_request* request, double strength) {
  return Guarded([&] { Need(request, "request").request.strength = strength; });
}

qwen_image_status qwen_image_request_set_outpaint(qwen_image_request* request, int64_t left, int64_t top,
                                                  int64_t right, int64_t bottom) {
  return Guarded([&] { Need(request, "request").request.outpaint = {left, top, right, bottom}; });
}

qwen_image_status qwen_image_request_set_blend(qwen_image_request* request, int blend) {
  return Guarded([&] { Need(request, "request").request.blend = blend != 0; });
}

qwen_image_status qwen_image_request_set_keep_size(qwen_image_request* request, int keep_size) {
  return Guarded([&] { Need(request, "request").request.keep_size = keep_size != 0; });
}

qwen_image_status qwen_image_request_set_background(qwen_image_request* request, const char* background) {
  return Guarded([&] { Need(request, "request").request.background = NeedText(background, "background"); });
}

qwen_image_status qwen_image_request_set_step_cache(qwen_image_request* request, double step_cache) {
  return Guarded([&] { Need(request, "request").request.step_cache = step_cache; });
}

qwen_image_status qwen_image_request_set_latents(qwen_image_request* request, const int64_t* shape,
                                                 int dimensions, const float* values) {
  return Guarded([&] {
    qwen_image::GenerateRequest& asked = Need(request, "request").request;
    const int64_t* sides = &Need(shape, "shape");
    constexpr int kMostDimensions = 5;
    constexpr int64_t kMostValues = int64_t{1} << 26;  // more than the largest picture has
    bool possible = dimensions >= 1 && dimensions <= kMostDimensions;
    int64_t count = 1;
    for (int i = 0; possible && i < dimensions; ++i) {
      possible = sides[i] >= 1 && sides[i] <= kMostValues / count;
      count *= possible ? sides[i] : 1;
    }
    if (!possible)
      Fail(ErrorKind::kUsage,
           "the initial latents have 1 to {} dimensions of 1 and more, and at most {} values",
           kMostDimensions, kMostValues);
    const float* begin = &Need(values, "values");
    asked.latents = qwen_image::InitialLatents{{sides, sides + dimensions}, {begin, begin + count}};
  });
}

qwen_image_status qwen_image_request_set_resume_folder(qwen_image_request* request, const char* folder) {
  return Guarded([&] { Need(request, "request").request.resume_folder = NeedText(folder, "folder"); });
}

qwen_image_status qwen_image_request_set_progress(qwen_image_request* request,
                                                  qwen_image_progress_callback callback, void* user_data) {
  return Guarded([&] {
    Need(request, "request").on_progress = callback;
    request->progress_data = user_data;
  });
}

qwen_image_status qwen_image_request_set_preview(qwen_image_request* request,
                                                 qwen_image_preview_callback callback, void* user_data) {
  return Guarded([&] {
    Need(request, "request").on_preview = callback;
    request->preview_data = user_data;
  });
}

qwen_image_status qwen_image_request_set_preview_pixels(qwen_image_request* request,
                                                        qwen_image_preview_pixels_callback callback,
                                                        void* user_data) {
  return Guarded([&] {
    Need(request, "request").on_preview_pixels = callback;
    request->preview_pixels_data = user_data;
  });
}
