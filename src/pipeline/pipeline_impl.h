// A loaded model and what its pictures share.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "core/threads.h"
#include "device/devices.h"
#include "families/model.h"
#include "pipeline/prompt_cache.h"
#include "pipeline/settings.h"
#include "pipeline/turn.h"
#include "qwen_image/qwen_image.h"
#include "weights/model_parts.h"

namespace qwen_image {

struct Pipeline::Impl {
  Impl(const ModelParts& parts, const ModelFiles& files, const PipelineOptions& options);

  Settings Resolve(const GenerateRequest& request) const { return ResolveSettings(request, model->traits()); }
  const Geometry& geometry() const { return model->traits().geometry; }

  std::string name;  // for records
  bool check_memory;
  Precision precision;
  Device device;  // never kAuto
  std::unique_ptr<const Model> model;
  mutable Turns turns;  // a thread must hold its turn to use the members below
  mutable ThreadPool pool;
  mutable PromptCache prompts;
  // Computed when first asked for: with resuming or a cache of prompts on disk.
  mutable std::map<Component, std::string> identities;
};

}  // namespace qwen_image
