// Loading a model and what can be asked of it.
#include "core/fail.h"
#include "pipeline/memory_check.h"
#include "pipeline/pipeline_impl.h"

namespace qwen_image {
namespace {

// Parts of different models put together would only fail deep inside a product of matrices.
void CheckPartsFit(const Pipeline::Impl& model, const std::filesystem::path& root) {
  const int64_t text_width = model.text_encoder.config().hidden_size;
  const int64_t joint_width = model.transformer.config().joint_attention_dim;
  if (text_width != joint_width) {
    Fail(
        ErrorKind::kBadInput,
        "{}: the text encoder's width is {}, but the transformer expects {}; they belong to different models",
        root.string(), text_width, joint_width);
  }
  const int64_t z_dim = model.vae.config().z_dim, channels = model.transformer.config().out_channels;
  if (z_dim != channels) {
    Fail(ErrorKind::kBadInput,
         "{}: the VAE has {} latent channels, but the transformer {}; they belong to different models",
         root.string(), z_dim, channels);
  }
}

}  // namespace

Pipeline::Impl::Impl(const ModelParts& parts, const ModelFiles& files, const PipelineOptions& options)
    : check_memory(options.check_memory),
      scheduler(parts.scheduler.empty() ? OfficialScheduler() : ReadSchedulerConfig(parts.scheduler)),
      tokenizer(parts.tokenizer),
      text_encoder(WeightStore(parts.text_encoder, Component::kTextEncoder)),
      transformer(WeightStore(parts.transformer, Component::kTransformer), LoraSet(files.loras)),
      vae(WeightStore(parts.vae, Component::kVae)),
      variant(RecognizeVariant(parts, transformer.config().zero_cond_t, files.variant)),
      defaults(DefaultsFor(parts, scheduler)),
      pool(options.threads > 0 ? options.threads : DefaultThreadCount()) {
  CheckPartsFit(*this, parts.root);
  UseLightning(transformer.loras().applied(), scheduler, defaults);
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
