#include "families/qwen_image_21/model.h"

#include "core/fail.h"
#include "families/qwen_image_21/edit_sizes.h"
#include "families/qwen_image_21/vocabulary.h"

namespace qwen_image::qwen_image_21 {
namespace {

constexpr int64_t kOfficialArea = 1024 * 1024;

Defaults OfficialDefaults() {
  Defaults defaults;
  defaults.steps = 40;
  defaults.cfg = 1.0;
  return defaults;
}

// Users of every implementation report it, and no other size near it does that.
std::string NoteOnSize(ImageSize drawn, bool edits) {
  if (!edits || drawn.width != 1024 || drawn.height != 1024) return "";
  return "an edit of exactly 1024x1024 is a bad size for this model: it may ignore the instruction, or come "
         "out with noise; 992x992 and 1056x1056 are fine";
}

}  // namespace

void CheckPartsFit(const TextEncoderConfig& text_encoder, const TransformerConfig& transformer,
                   const VaeConfig& vae, const std::filesystem::path& root) {
  if (text_encoder.hidden_size != transformer.context_in_dim) {
    Fail(
        ErrorKind::kBadInput,
        "{}: the text encoder's width is {}, but the transformer expects {}; they belong to different models",
        root.string(), text_encoder.hidden_size, transformer.context_in_dim);
  }
  if (vae.z_dim != transformer.in_channels) {
    Fail(ErrorKind::kBadInput,
         "{}: the VAE has {} latent channels, but the transformer {}; they belong to different models",
         root.string(), vae.z_dim, transformer.in_channels);
  }
}

QwenImage21Model::QwenImage21Model(const ModelParts& parts, const ModelFiles& files,
                                   const ModelOptions& options)
    : ComponentModel(parts, files, options),
      variant_(RecognizeVariant(parts, files.variant)),
      variant_name_(variant_.certain ? NameOf(variant_.variant) : ""),
      edit_area_(own_defaults_.vae_area.value_or(kOfficialArea)) {
  SetTraits(parts);
  denoiser_.UseImageToken(conditioner_.image_token());
  CheckPartsFit(conditioner_.encoders().text().config(), denoiser_.transformer().config(),
                autoencoder_.vae().config(), parts.root);
  Place(options);
}

void QwenImage21Model::SetTraits(const ModelParts& parts) {
  const bool turbo = variant_.variant == Variant::kTurbo && !variant_.from_index;
  // Turbo's folder has no schedule for the base model.
  const bool official = parts.scheduler.empty() || variant_.in_turbo_folder;
  traits_.scheduler = turbo      ? TurboScheduler()
                      : official ? OfficialScheduler()
                                 : ReadSchedulerConfig(parts.scheduler);
  traits_.sigmas = variant_.sigmas;
  traits_.defaults = WithOwn(OfficialDefaults(), own_defaults_);
  if (!traits_.sigmas.empty()) traits_.defaults.steps = static_cast<int64_t>(traits_.sigmas.size());
  traits_.geometry = GeometryOf(autoencoder_.vae().config());
  traits_.max_prompt_tokens = kPositions;
  traits_.cuts_prompts = false;
  traits_.plan_edit = [this](std::span<const ImageSize> inputs, bool) {
    return PlanEdit(inputs, edit_area_);
  };
  traits_.note_on_size = NoteOnSize;
  if (variant_.in_turbo_folder && !variant_.certain)
    traits_.note =
        "the folder is Turbo's, but the transformer is from elsewhere and is drawn as the base model; "
        "--variant 2.1-turbo says that it is Turbo";
}

const Vocabulary& QwenImage21Model::vocabulary() const { return kQwenImage21Vocabulary; }

std::string QwenImage21Model::id() const {
  const std::string family(kQwenImage21Vocabulary.name);
  return variant_.variant == Variant::kTurbo ? family + "-turbo" : family;
}

Json QwenImage21Model::EditIdentity() const { return {{"edit", variant_name_}, {"area", edit_area_}}; }

std::string QwenImage21Model::PipelineClass(const GenerateRequest&) const { return "QwenImage21Pipeline"; }

bool QwenImage21Model::published_size() const {
  const TransformerConfig& config = denoiser_.transformer().config();
  return config.num_layers == 32 && config.inner_dim() == 4096;
}

MemoryNeed QwenImage21Model::EstimateMemory(const Workload& workload) const {
  const Transformer& transformer = denoiser_.transformer();
  const Vae& vae = autoencoder_.vae();
  int64_t prefix = workload.prompt_tokens;
  for (const EditInputSizes& sizes : workload.references)
    prefix += traits_.geometry.GridOf(sizes.vae).tokens();
  return {.encode = conditioner_.encoders().text().store().total_bytes(),
          .denoise = transformer.total_bytes() +
                     TransformerWorkspace(transformer.config(), prefix,
                                          traits_.geometry.GridOf(workload.picture).tokens()),
          .decode = vae.store().total_bytes() + VaeWorkspace(vae.config(), traits_.geometry, workload),
          .denoise_more = prefix * PrefixCacheBytes(transformer.config(), Keeping::kFloat32)};
}

}  // namespace qwen_image::qwen_image_21
