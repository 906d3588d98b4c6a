// Models and pictures for C; see request.cc for what is asked of them.
#include "qwen_image/c_api.h"

#include <memory>
#include <utility>

#include "c_api/guard.h"
#include "c_api/handles.h"
#include "qwen_image/image_file.h"

using qwen_image::CancelFlag;
using qwen_image::ErrorKind;
using qwen_image::Fail;
using qwen_image::GenerateHooks;
using qwen_image::Guarded;
using qwen_image::Need;
using qwen_image::NeedText;

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

// A callback that returns anything but 0 wants no more.
GenerateHooks HooksOf(const qwen_image_request& request, CancelFlag& cancel) {
  GenerateHooks hooks;
  hooks.cancel = &cancel;
  if (request.on_progress) {
    hooks.on_progress = [&](const qwen_image::Progress& p) {
      const qwen_image_progress progress = {static_cast<qwen_image_stage>(p.stage), p.step, p.steps,
                                            p.fraction};
      if (request.on_progress(request.progress_data, &progress) != 0) cancel.Cancel();
      cancel.ThrowIfCancelled();
    };
  }
  if (request.on_preview) {
    hooks.on_preview = [&](const qwen_image::RgbImage& image) {
      if (request.on_preview(request.preview_data, image.width, image.height, image.pixels.data()) != 0)
        cancel.Cancel();
    };
  }
  return hooks;
}

}  // namespace

const char* qwen_image_version(void) { return qwen_image::Version(); }

qwen_image_status qwen_image_options_new(qwen_image_options** options) {
  return Guarded([&] {
    Need(options, "options");  // before anything is made that nobody could free
    *options = new qwen_image_options;
  });
}

void qwen_image_options_free(qwen_image_options* options) { delete options; }

qwen_image_status qwen_image_options_set_threads(qwen_image_options* options, int threads) {
  return Guarded([&] {
    constexpr int kMost = 4096;
    if (threads < 0 || threads > kMost)
      Fail(ErrorKind::kUsage, "{} threads are impossible; from 0 (all processors) to {} are", threads, kMost);
    Need(options, "options").pipeline.threads = threads;
  });
}

qwen_image_status qwen_image_options_set_precision(qwen_image_options* options, int precision) {
  return Guarded([&] {
    if (precision != QWEN_IMAGE_EXACT && precision != QWEN_IMAGE_FAST)
      Fail(ErrorKind::kUsage, "{} is not a precision; see qwen_image_precision", precision);
    Need(options, "options").pipeline.precision =
        precision == QWEN_IMAGE_EXACT ? qwen_image::Precision::kExact : qwen_image::Precision::kFast;
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
    *pipeline = new qwen_image_pipeline{qwen_image::Pipeline(files, all.pipeline)};
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

const char* qwen_image_pipeline_variant(const qwen_image_pipeline* pipeline) {
  return pipeline ? pipeline->pipeline.variant().c_str() : "";
}

int qwen_image_pipeline_edits(const qwen_image_pipeline* pipeline) {
  return pipeline && pipeline->pipeline.edits() ? 1 : 0;
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
    drawn->picture = Need(pipeline, "pipeline").pipeline.Generate(asked.request, HooksOf(asked, cancel));
    *picture = drawn.release();
  });
}

qwen_image_status qwen_image_picture_read(const char* path, qwen_image_picture** picture) {
  return Guarded([&] {
    Need(picture, "picture") = nullptr;
    qwen_image::RgbImage image = qwen_image::ReadImage(NeedText(path, "path")).image;
    auto read = std::make_unique<qwen_image_picture>();
    read->picture.width = image.width;
    read->picture.height = image.height;
    read->picture.rgb = std::move(image.pixels);
    read->picture.cfg = 0;
    *picture = read.release();
  });
}

void qwen_image_picture_free(qwen_image_picture* picture) { delete picture; }

int64_t qwen_image_picture_width(const qwen_image_picture* picture) {
  return picture ? picture->picture.width : 0;
}

int64_t qwen_image_picture_height(const qwen_image_picture* picture) {
  return picture ? picture->picture.height : 0;
}

const uint8_t* qwen_image_picture_pixels(const qwen_image_picture* picture) {
  return picture ? picture->picture.rgb.data() : nullptr;
}

uint64_t qwen_image_picture_seed(const qwen_image_picture* picture) {
  return picture ? picture->picture.seed : 0;
}

int64_t qwen_image_picture_steps(const qwen_image_picture* picture) {
  return picture ? picture->picture.steps : 0;
}

double qwen_image_picture_cfg(const qwen_image_picture* picture) {
  return picture ? picture->picture.cfg : 0;
}

qwen_image_status qwen_image_picture_save_png(const qwen_image_picture* picture, const char* path) {
  return Guarded([&] {
    const qwen_image::RgbImage image = Need(picture, "picture").picture.image();
    qwen_image::WritePng(NeedText(path, "path"), image);
  });
}
