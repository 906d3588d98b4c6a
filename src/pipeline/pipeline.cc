// Loading a model and what can be asked of it.
#include "pipeline/memory_check.h"
#include "pipeline/parts_fit.h"
#include "pipeline/pipeline_impl.h"

namespace qwen_image {

Pipeline::Impl::Impl(const ModelParts& parts, const ModelFiles& files, const PipelineOptions& options)
    : check_memory(options.check_memory),
      precision(options.precision),
      scheduler(parts.scheduler.empty() ? OfficialScheduler() : ReadSchedulerConfig(parts.scheduler)),
      tokenizer(parts.tokenizer),
      text_encoder(WeightStore(parts.text_encoder, Component::kTextEncoder), options.precision),
      transformer(WeightStore(parts.transformer, Component::kTransformer), LoraSet(files.loras),
                  options.precision),
      vae(WeightStore(parts.vae, Component::kVae)),
      variant(RecognizeVariant(parts, transformer.config().zero_cond_t, files.variant)),
      defaults(DefaultsFor(parts, scheduler)),
      vision_encoder_path(parts.vision_encoder),
      pool(options.threads > 0 ? options.threads : DefaultThreadCount()),
      prompts(options.prompt_cache) {
  CheckPartsFit(text_encoder.config(), transformer.config(), vae.config(), parts.root);
  UseLightning(transformer.loras().applied(), scheduler, defaults);
  // Opening reads small tensors here and there; the pages around them are not needed before their stage.
  ReleaseEncoderPages();
  transformer.ReleasePages();
  vae.store().ReleasePages();
}

const VisionEncoder& Pipeline::Impl::vision_encoder() const {
  if (!opened_vision_encoder) {
    VisionEncoder opened(WeightStore(vision_encoder_path, Component::kVisionEncoder), precision);
    CheckVisionFits(opened, text_encoder.config());
    opened_vision_encoder.emplace(std::move(opened));
  }
  return *opened_vision_encoder;
}

void Pipeline::Impl::ReleaseEncoderPages() const {
  text_encoder.store().ReleasePages();
  if (opened_vision_encoder) opened_vision_encoder->store().ReleasePages();
}

Pipeline::Pipeline(const ModelFiles& model, const PipelineOptions& options) {
  const ModelParts parts = FindModelParts(model);
  if (options.check_memory) CheckWeightsFit(parts);
  impl_ = std::make_unique<Impl>(parts, model, options);
}

Pipeline::~Pipeline() = default;
Pipeline::Pipeline(Pipeline&&) noexcept = default;

const Defaults& Pipeline::defaults() const { return impl_->defaults; }
const std::string& Pipeline::variant() const { return impl_->variant.name; }
const std::vector<AppliedLora>& Pipeline::loras() const { return impl_->transformer.loras().applied(); }
int Pipeline::threads() const { return impl_->pool.size(); }

void Pipeline::Check(const GenerateRequest& request) const {
  const Settings settings = ResolveSettings(request, impl_->defaults, impl_->vae.config().z_dim);
  if (impl_->check_memory) CheckWorkspaceFits(*impl_, request, settings);
}

const char* Version() { return QWEN_IMAGE_VERSION; }

}  // namespace qwen_image
