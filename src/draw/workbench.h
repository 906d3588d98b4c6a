// What the runs of a pipeline share. Runs use it one after another: `turns` says whose turn it is.
#pragma once

#include "core/threads.h"
#include "draw/opened_model.h"
#include "draw/turns.h"
#include "keep/identity.h"
#include "keep/prompt_cache.h"

namespace qwen_image::draw {

struct Workbench {
  Workbench(const OpenedModel& model, const PipelineOptions& options);

  Turns turns;
  // Only the thread that has its turn may use these.
  ThreadPool pool;
  keep::PromptCache prompts;
  keep::Identities identities;
};

}  // namespace qwen_image::draw

namespace qwen_image {

struct Pipeline::Impl {
  Impl(const ModelParts& parts, const ModelFiles& files, const PipelineOptions& options)
      : model(parts, files, options), bench(model, options) {}

  const draw::OpenedModel model;
  mutable draw::Workbench bench;
};

// The one way into a pipeline from outside its class.
struct draw::PipelineAccess {
  static const Pipeline::Impl& ImplOf(const Pipeline& pipeline) { return *pipeline.impl_; }
};

}  // namespace qwen_image
