#include "families/qwen_image/model.h"

#include "families/qwen_image/defaults.h"
#include "families/qwen_image/memory.h"
#include "families/qwen_image/parts_fit.h"
#include "families/qwen_image/vocabulary.h"

namespace qwen_image {

QwenImageModel::QwenImageModel(const ModelParts& parts, const ModelFiles& files, const ModelOptions& options)
    : ComponentModel(parts, files, options, edit_),
      edit_(RecognizeVariant(parts, denoiser_.transformer().config().zero_cond_t, files.variant,
                             own_defaults_.pipelines),
            own_defaults_),
      variant_(NameOf(edit_.variant.variant)) {
  traits_.scheduler = parts.scheduler.empty() ? OfficialScheduler() : ReadSchedulerConfig(parts.scheduler);
  traits_.defaults = DefaultsFor(own_defaults_, traits_.scheduler, edit_.variant.variant);
  traits_.geometry = GeometryOf(autoencoder_.vae().config());
  traits_.max_prompt_tokens = kTokenizerMaxLength;
  traits_.plan_edit = [this](std::span<const ImageSize> inputs, bool repairs) {
    return edit_.Plan(inputs, repairs);
  };
  Transformer& transformer = denoiser_.transformer();
  CheckPartsFit(conditioner_.encoders().text().config(), transformer.config(), autoencoder_.vae().config(),
                parts.root);
  // The user may say that a file without the tensor __index_timestep_zero__ is Edit-2511 all the same
  // (--variant).
  if (edit_.variant.variant == Variant::kEdit2511) transformer.UseZeroCondT();
  UseLightning(transformer.loras().applied(), traits_.scheduler, traits_.defaults);
  Place(options);
}

const Vocabulary& QwenImageModel::vocabulary() const { return kQwenImageVocabulary; }

std::string QwenImageModel::id() const {
  const std::string family(kQwenImageVocabulary.name);
  return Edits(edit_.variant.variant) ? family + "-" + variant_ : family;
}

Json QwenImageModel::EditIdentity() const {
  return {{"edit", NameOf(edit_.variant.edit)},
          {"areas", {edit_.areas.vae_area, edit_.areas.condition_area.value_or(0)}}};
}

std::string QwenImageModel::PipelineClass(const GenerateRequest& request) const {
  const bool repairs = request.mask || request.outpaint.any();
  if (!request.input_images.empty())
    return repairs ? "QwenImageEditInpaintPipeline" : std::string(PipelineClassOf(edit_.variant.edit));
  if (!request.init_image) return "QwenImagePipeline";
  return repairs ? "QwenImageInpaintPipeline" : "QwenImageImg2ImgPipeline";
}

bool QwenImageModel::published_size() const {
  const TransformerConfig& config = denoiser_.transformer().config();
  return config.num_layers == 60 && config.inner_dim() == 3072;
}

MemoryNeed QwenImageModel::EstimateMemory(const Workload& workload) const {
  const Transformer& transformer = denoiser_.transformer();
  const Vae& vae = autoencoder_.vae();
  return {.encode = conditioner_.encoders().text().store().total_bytes(),
          .denoise = transformer.total_bytes() +
                     TransformerWorkspace(transformer.config(), traits_.geometry, workload),
          .decode = vae.store().total_bytes() + VaeWorkspace(vae.config(), traits_.geometry, workload)};
}

}  // namespace qwen_image
