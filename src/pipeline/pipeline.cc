// Loading a model and what can be asked of it.
#include <algorithm>

#include "mlx/weight_forms.h"
#include "pipeline/memory_check.h"
#include "pipeline/parts_fit.h"
#include "pipeline/pipeline_impl.h"
#include "weights/model_name.h"

namespace qwen_image {

namespace {

EditModel EditModelOf(const ModelParts& parts, const Transformer& transformer, const std::string& asked,
                      const ModelDefaults& own) {
  EditModel edit{RecognizeVariant(parts, transformer.config().zero_cond_t, asked, own.pipelines), {}};
  edit.areas.vae_area = own.vae_area.value_or(edit.areas.vae_area);
  if (own.condition_area) edit.areas.condition_area = own.condition_area;
  return edit;
}

}  // namespace

Pipeline::Impl::Impl(const ModelParts& parts, const ModelFiles& files, const PipelineOptions& options)
    : name(ModelName(files)),
      check_memory(options.check_memory),
      precision(options.precision),
      device(ResolveDevice(options.device)),
      own_defaults(ReadModelDefaults(parts.root)),
      scheduler(parts.scheduler.empty() ? OfficialScheduler() : ReadSchedulerConfig(parts.scheduler)),
      tokenizer(parts.tokenizer),
      text_encoder(WeightStore(parts.text_encoder, Component::kTextEncoder), options.precision),
      transformer(WeightStore(parts.transformer, Component::kTransformer), LoraSet(files.loras),
                  options.precision),
      vae(WeightStore(parts.vae, Component::kVae)),
      edit(EditModelOf(parts, transformer, files.variant, own_defaults)),
      variant_name(NameOf(edit.variant.variant)),
      defaults(DefaultsFor(own_defaults, scheduler, edit.variant.variant)),
      vision_encoder_path(parts.vision_encoder),
      vision_processor(ReadVisionProcessorConfig(parts.root / "processor")),
      pool(options.threads > 0 ? options.threads : DefaultThreadCount()),
      prompts(options.prompt_cache) {
  CheckPartsFit(text_encoder.config(), transformer.config(), vae.config(), parts.root);
  // A copy that has lost its marker was named by its user.
  if (edit.variant.variant == Variant::kEdit2511) transformer.UseZeroCondT();
  UseLightning(transformer.loras().applied(), scheduler, defaults);
  const DeviceChoice choice = device_choice();
  if (check_memory) CheckDeviceMemory(choice);
  PlaceOnDevice(text_encoder, choice);
  PlaceOnDevice(transformer, choice);
  PlaceOnDevice(vae, choice);
  // Opening reads small tensors here and there; the pages around them are not needed before their stage.
  ReleaseAllPages();
}

DeviceChoice Pipeline::Impl::device_choice() const {
  DeviceChoice choice{device, precision};
  if (device == Device::kCpu) return choice;
  // On the device, where weights may be wider than in their files.
  const int64_t encoder = UseOfWeights(&text_encoder, nullptr, nullptr, precision).device_bytes();
  const int64_t denoiser = UseOfWeights(nullptr, nullptr, &transformer, precision).device_bytes();
  choice.total_bytes = encoder + denoiser + vae.store().total_bytes();
  choice.largest_stage_bytes = std::max({encoder, denoiser, vae.store().total_bytes()});
  return choice;
}

void Pipeline::Impl::ReleaseAllPages() const {
  ReleaseEncoderPages();
  transformer.ReleasePages();
  vae.ReleasePages();
}

const VisionEncoder& Pipeline::Impl::vision_encoder() const {
  const std::lock_guard lock(vision_encoder_mutex);
  if (!opened_vision_encoder) {
    VisionEncoder opened(WeightStore(vision_encoder_path, Component::kVisionEncoder), precision);
    CheckVisionFits(opened, text_encoder.config());
    opened_vision_encoder.emplace(std::move(opened));
    PlaceOnDevice(*opened_vision_encoder, device_choice());
  }
  return *opened_vision_encoder;
}

void Pipeline::Impl::ReleaseEncoderPages() const {
  text_encoder.ReleasePages();
  const std::lock_guard lock(vision_encoder_mutex);
  if (opened_vision_encoder) opened_vision_encoder->ReleasePages();
}

Pipeline::Pipeline(const ModelFiles& model, const PipelineOptions& options) {
  CheckThreadCount(options.threads);
  const ModelParts parts = FindModelParts(model);
  if (options.check_memory) CheckWeightsFit(parts);
  impl_ = std::make_unique<Impl>(parts, model, options);
}

Pipeline::~Pipeline() = default;
Pipeline::Pipeline(Pipeline&&) noexcept = default;
Pipeline& Pipeline::operator=(Pipeline&&) noexcept = default;

const Defaults& Pipeline::defaults() const { return impl_->defaults; }
const std::string& Pipeline::variant() const { return impl_->variant_name; }
bool Pipeline::edits() const { return impl_->edit.variant.edits(); }
const std::vector<AppliedLora>& Pipeline::loras() const { return impl_->transformer.loras().applied(); }
int Pipeline::threads() const { return impl_->pool.size(); }

void Pipeline::Check(const GenerateRequest& request) const {
  const Settings settings = impl_->Resolve(request);
  if (!settings.references.empty()) impl_->vision_encoder();  // it may not be there
  if (impl_->check_memory) CheckWorkspaceFits(*impl_, request, settings);
}

const char* Version() { return QWEN_IMAGE_VERSION; }

}  // namespace qwen_image
