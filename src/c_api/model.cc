// Models for C; see request.cc for what is asked of them, and picture.cc for what they make.
#include <algorithm>
#include <memory>
#include <utility>

#include "c_api/guard.h"
#include "c_api/handles.h"
#include "core/threads.h"
#include "files/colour.h"
#include "options/names.h"
#include "qwen_image/c_api.h"
#include "qwen_image/instruction_set.h"
#include "qwen_image/truncation_guard.h"

using qwen_image::CancelFlag;
using qwen_image::Device;
using qwen_image::ErrorKind;
using qwen_image::Fail;
using qwen_image::GenerateHooks;
using qwen_image::Guarded;
using qwen_image::Need;
using qwen_image::NeedText;
using qwen_image::Precision;

namespace {

std::filesystem::path& PartOf(qwen_image::ModelFiles& files, int part) {
  switch (part) {
    case QWEN_IMAGE_TRANSFORMER:
      return files.transformer;
    case QWEN_IMAGE_TEXT_ENCODER:
      return files.text_encoder;
    case QWEN_IMAGE_VAE:
      return files.vae;
    case QWEN_IMAGE_TOKENIZER:
      return files.tokenizer;
    case QWEN_IMAGE_VISION_ENCODER:
      return files.vision_encoder;
  }
  Fail(ErrorKind::kUsage, "{} is not a part of a model; see qwen_image_part", part);
}

// The numbers of C's enums are those of the C++ ones.
template <typename Value>
bool IsOneOf(int number) {
  const auto& names = qwen_image::NamesOf<Value>();
  return std::any_of(names.begin(), names.end(),
                     [&](const auto& named) { return static_cast<int>(named.value) == number; });
}

// A callback that returns anything but 0 wants no more. C has no other way to stop, so it is asked while
// another thread draws, too.
GenerateHooks HooksOf(const qwen_image_request& request, const qwen_image::Pipeline& pipeline,
                      CancelFlag& cancel) {
  GenerateHooks hooks;
  hooks.cancel = &cancel;
  if (request.on_progress) {
    const auto ask = [&](const qwen_image::Progress& p) {
      const qwen_image_progress progress = {static_cast<qwen_image_stage>(p.stage), p.step, p.steps,
                                            p.fraction};
      if (request.on_progress(request.progress_data, &progress) != 0) cancel.Cancel();
      cancel.ThrowIfCancelled();
    };
    hooks.on_progress = ask;
    qwen_image::Progress waiting;
    const auto sigmas = static_cast<int64_t>(request.request.sigmas.size());
    waiting.steps = request.request.steps.value_or(sigmas > 0 ? sigmas : pipeline.defaults().steps);
    hooks.on_wait = [ask, waiting] { ask(waiting); };
  }
  if (request.on_preview || request.on_preview_pixels) {
    hooks.on_preview = [&](const qwen_image::Image& image) {
      if (request.on_preview) {
        const qwen_image::Image rgb = qwen_image::Flatten(image);
        if (request.on_preview(request.preview_data, rgb.width, rgb.height, rgb.pixels.data()) != 0)
          cancel.Cancel();
      }
      if (request.on_preview_pixels &&
          request.on_preview_pixels(request.preview_pixels_data, image.width, image.height,
                                    static_cast<int>(image.channels), image.pixels.data()) != 0)
        cancel.Cancel();
    };
  }
  return hooks;
}

}  // namespace

const char* qwen_image_version(void) { return qwen_image::Version(); }

qwen_image_status qwen_image_use_instruction_set(const char* name) {
  return Guarded([&] { qwen_image::UseInstructionSet(NeedText(name, "name")); });
}

void qwen_image_install_truncation_guard(void) { qwen_image::InstallTruncationGuard(); }

qwen_image_status qwen_image_options_new(qwen_image_options** options) {
  return Guarded([&] {
    Need(options, "options");  // first: a caller without a handle could not free what is made
    *options = new qwen_image_options;
  });
}

void qwen_image_options_free(qwen_image_options* options) { delete options; }

qwen_image_status qwen_image_options_set_threads(qwen_image_options* options, int threads) {
  return Guarded([&] {
    qwen_image::CheckThreadCount(threads);
    Need(options, "options").pipeline.threads = threads;
  });
}

qwen_image_status qwen_image_options_set_precision(qwen_image_options* options, int precision) {
  return Guarded([&] {
    static_assert(static_cast<int>(Precision::kExact) == QWEN_IMAGE_EXACT &&
                  static_cast<int>(Precision::kFast) == QWEN_IMAGE_FAST);
    if (!IsOneOf<Precision>(precision))
      Fail(ErrorKind::kUsage, "{} is not a precision; see qwen_image_precision", precision);
    Need(options, "options").pipeline.precision = static_cast<Precision>(precision);
  });
}

qwen_image_status qwen_image_options_set_device(qwen_image_options* options, int device) {
  return Guarded([&] {
    static_assert(static_cast<int>(Device::kMlxCpu) == QWEN_IMAGE_DEVICE_MLX_CPU);
    if (!IsOneOf<Device>(device))
      Fail(ErrorKind::kUsage, "{} is not a device; see qwen_image_device", device);
    Need(options, "options").pipeline.device = static_cast<Device>(device);
  });
}

qwen_image_status qwen_image_options_set_check_memory(qwen_image_options* options, int check) {
  return Guarded([&] { Need(options, "options").pipeline.check_memory = check != 0; });
}

qwen_image_status qwen_image_options_set_prompt_cache(qwen_image_options* options, const char* folder) {
  return Guarded([&] { Need(options, "options").pipeline.prompt_cache = NeedText(folder, "folder"); });
}

qwen_image_status qwen_image_options_set_part(qwen_image_options* options, int part, const char* path) {
  return Guarded([&] { PartOf(Need(options, "options").files, part) = NeedText(path, "path"); });
}

qwen_image_status qwen_image_options_set_variant(qwen_image_options* options, const char* variant) {
  return Guarded([&] { Need(options, "options").files.variant = NeedText(variant, "variant"); });
}

qwen_image_status qwen_image_options_add_lora(qwen_image_options* options, const char* path, double scale) {
  return Guarded([&] { Need(options, "options").files.loras.push_back({NeedText(path, "path"), scale}); });
}

qwen_image_status qwen_image_pipeline_open(const char* model, const qwen_image_options* options,
                                           qwen_image_pipeline** pipeline) {
  return Guarded([&] {
    Need(pipeline, "pipeline") = nullptr;
    const qwen_image_options all = options ? *options : qwen_image_options();
    qwen_image::ModelFiles files = all.files;
    if (model) files.model = model;
    const bool parts = !files.transformer.empty() || !files.text_encoder.empty() || !files.vae.empty();
    if (files.model.empty() && !parts) Fail(ErrorKind::kUsage, "no model is named");
    *pipeline = new qwen_image_pipeline(qwen_image::Pipeline(files, all.pipeline));
  });
}

void qwen_image_pipeline_free(qwen_image_pipeline* pipeline) { delete pipeline; }

qwen_image_status qwen_image_pipeline_defaults(const qwen_image_pipeline* pipeline, int64_t* width,
                                               int64_t* height, int64_t* steps, double* cfg) {
  return Guarded([&] {
    const qwen_image::Defaults& defaults = Need(pipeline, "pipeline").pipeline.defaults();
    if (width) *width = defaults.width;
    if (height) *height = defaults.height;
    if (steps) *steps = defaults.steps;
    if (cfg) *cfg = defaults.cfg;
  });
}

const char* qwen_image_pipeline_negative_prompt(const qwen_image_pipeline* pipeline) {
  return pipeline ? pipeline->pipeline.defaults().negative_prompt.c_str() : "";
}

int qwen_image_pipeline_lightning(const qwen_image_pipeline* pipeline) {
  return pipeline && pipeline->pipeline.defaults().lightning ? 1 : 0;
}

const char* qwen_image_pipeline_variant(const qwen_image_pipeline* pipeline) {
  return pipeline ? pipeline->pipeline.variant().c_str() : "";
}

int qwen_image_pipeline_edits(const qwen_image_pipeline* pipeline) {
  return pipeline && pipeline->pipeline.edits() ? 1 : 0;
}

int qwen_image_pipeline_channels(const qwen_image_pipeline* pipeline) {
  return pipeline ? static_cast<int>(pipeline->pipeline.channels()) : 0;
}

int qwen_image_pipeline_threads(const qwen_image_pipeline* pipeline) {
  return pipeline ? pipeline->pipeline.threads() : 0;
}

qwen_image_status qwen_image_check(const qwen_image_pipeline* pipeline, const qwen_image_request* request) {
  return Guarded([&] { Need(pipeline, "pipeline").pipeline.Check(Need(request, "request").request); });
}

qwen_image_status qwen_image_generate(const qwen_image_pipeline* pipeline, const qwen_image_request* request,
                                      qwen_image_picture** picture) {
  return Guarded([&] {
    Need(picture, "picture") = nullptr;
    const qwen_image_request& asked = Need(request, "request");
    CancelFlag cancel;
    auto drawn = std::make_unique<qwen_image_picture>();
    Need(pipeline, "pipeline").ThrowIfToldOfAnEvent();
    const qwen_image::Pipeline& model = pipeline->pipeline;
    FillPicture(model.Generate(asked.request, HooksOf(asked, model, cancel)), *drawn);
    *picture = drawn.release();
  });
}
