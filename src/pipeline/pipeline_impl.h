// The parts of a loaded model.
#pragma once

#include <filesystem>
#include <mutex>
#include <optional>

#include "core/threads.h"
#include "families/qwen_image/text_encoder.h"
#include "families/qwen_image/transformer.h"
#include "families/qwen_image/vae.h"
#include "families/qwen_image/vision_encoder.h"
#include "mlx/devices.h"
#include "model/image_processor.h"
#include "model/scheduler.h"
#include "model/tokenizer.h"
#include "pipeline/prompt_cache.h"
#include "pipeline/settings.h"
#include "pipeline/turn.h"
#include "qwen_image/qwen_image.h"
#include "weights/model_parts.h"

namespace qwen_image {

struct Pipeline::Impl {
  Impl(const ModelParts& parts, const ModelFiles& files, const PipelineOptions& options);

  Settings Resolve(const GenerateRequest& request) const {
    return ResolveSettings(request, defaults, vae.config().z_dim, edit);
  }
  // Opened when first asked for: only edits need it. Throws Error kBadInput if the model has none.
  const VisionEncoder& vision_encoder() const;
  DeviceChoice device_choice() const;
  // Of the text encoder and the vision encoder, which work in the same stage.
  void ReleaseEncoderPages() const;
  void ReleaseAllPages() const;

  std::string name;  // for records
  bool check_memory;
  Precision precision;
  Device device;               // never kAuto
  ModelDefaults own_defaults;  // of the model's folder
  SchedulerConfig scheduler;
  Tokenizer tokenizer;
  TextEncoder text_encoder;
  Transformer transformer;
  Vae vae;
  EditModel edit;
  std::string variant_name;
  Defaults defaults;
  std::filesystem::path vision_encoder_path;
  VisionProcessorConfig vision_processor;
  mutable Turns turns;  // at what follows
  mutable ThreadPool pool;
  mutable PromptCache prompts;
  mutable std::mutex vision_encoder_mutex;  // a request can be checked while a picture is drawn
  mutable std::optional<VisionEncoder> opened_vision_encoder;
  // Computed when first asked for: with resuming or a cache of prompts on disk.
  mutable std::string text_encoder_identity, vision_encoder_identity, transformer_identity;
};

}  // namespace qwen_image
