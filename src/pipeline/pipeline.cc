// Loading a model and what can be asked of it.
#include "pipeline/memory_check.h"
#include "pipeline/parts_fit.h"
#include "pipeline/pipeline_impl.h"
#include "weights/model_defaults.h"

namespace qwen_image {
namespace {

Defaults MakeDefaults(const ModelParts& parts, const SchedulerConfig& scheduler) {
  Defaults defaults = OfficialDefaults(scheduler);
  const ModelDefaults own = ReadModelDefaults(parts.root);
  defaults.width = own.width.value_or(defaults.width);
  defaults.height = own.height.value_or(defaults.height);
  defaults.steps = own.steps.value_or(defaults.steps);
  defaults.cfg = own.cfg.value_or(defaults.cfg);
  defaults.negative_prompt = own.negative_prompt.value_or(defaults.negative_prompt);
  return defaults;
}

}  // namespace

Pipeline::Impl::Impl(const ModelParts& parts, const PipelineOptions& options)
    : check_memory(options.check_memory),
      scheduler(parts.scheduler.empty() ? OfficialScheduler() : ReadSchedulerConfig(parts.scheduler)),
      tokenizer(parts.tokenizer),
      text_encoder(WeightStore(parts.text_encoder, Component::kTextEncoder)),
      transformer(WeightStore(parts.transformer, Component::kTransformer)),
      vae(WeightStore(parts.vae, Component::kVae)),
      defaults(MakeDefaults(parts, scheduler)),
      pool(options.threads > 0 ? options.threads : DefaultThreadCount()) {
  CheckPartsFit(text_encoder.config(), transformer.config(), vae.config(), parts.root);
}

Pipeline::Pipeline(const ModelFiles& model, const PipelineOptions& options) {
  const ModelParts parts = FindModelParts(model);
  if (options.check_memory) CheckWeightsFit(parts);
  impl_ = std::make_unique<Impl>(parts, options);
}

Pipeline::~Pipeline() = default;
Pipeline::Pipeline(Pipeline&&) noexcept = default;

const Defaults& Pipeline::defaults() const { return impl_->defaults; }
int Pipeline::threads() const { return impl_->pool.size(); }

void Pipeline::Check(const GenerateRequest& request) const {
  const Settings settings = ResolveSettings(request, impl_->defaults, impl_->vae.config().z_dim);
  if (impl_->check_memory) CheckWorkspaceFits(*impl_, request, settings);
}

const char* Version() { return QWEN_IMAGE_VERSION; }

}  // namespace qwen_image
