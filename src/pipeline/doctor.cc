#include "pipeline/doctor.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "core/fail.h"
#include "families/qwen_image/prompt.h"
#include "pipeline/doctor_estimate.h"
#include "pipeline/memory_check.h"
#include "pipeline/parts_fit.h"
#include "weights/memory.h"
#include "weights/model_defaults.h"
#include "weights/recognize.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;

class Doctor {
 public:
  Doctor(const ModelFiles& files, ThreadPool& pool, const CancelFlag& cancel)
      : files_(files), pool_(pool), cancel_(cancel) {}

  Diagnosis Run() {
    found_.available_memory = AvailableMemory();
    if (!Locate()) return std::move(found_);
    ExamineParts();
    if (transformer_) ExamineVariant();
    if (transformer_ && !files_.loras.empty()) ExamineLoras();
    if (text_encoder_) ExamineVision();
    if (transformer_ && text_encoder_ && vae_) ExamineFit();
    if (found_.usable()) ExaminePictures();
    Summarize();
    return std::move(found_);
  }

 private:
  void Note(Health health, std::string subject, std::string text) {
    found_.findings.push_back({health, std::move(subject), std::move(text)});
  }

  // Does `examine`; what it throws about the files becomes a finding, and false is returned.
  template <typename Examine>
  bool Try(const std::string& subject, const Examine& examine) {
    cancel_.ThrowIfCancelled();
    try {
      examine();
      return true;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kBadInput && error.kind() != ErrorKind::kUsage) throw;
      Note(Health::kBroken, subject, error.message());
      return false;
    }
  }

  bool Locate() {
    if (!Try("model", [&] { parts_ = LocateModelParts(files_); })) {
      found_.what = "not a model that can be used";
      return false;
    }
    for (const MissingPart& missing : MissingParts(parts_)) {
      found_.parts.push_back(
          {.name = missing.name, .path = {}, .health = Health::kBroken, .text = "missing"});
      Note(Health::kBroken, missing.name, MissingText(missing));
    }
    return true;
  }

  static std::string MissingText(const MissingPart& missing) {
    static const std::map<std::string, std::string> kUsualFiles = {
        {"transformer", "transformer/diffusion_pytorch_model.safetensors"},
        {"text_encoder", "text_encoder/model.safetensors"},
        {"vae", "vae/diffusion_pytorch_model.safetensors"},
        {"tokenizer", "tokenizer/tokenizer.json"},
        {"scheduler", "scheduler/scheduler_config.json"}};
    return fmt::format("is missing; it is usually {}{}", kUsualFiles.at(missing.name),
                       missing.option.empty() ? "" : fmt::format(", or name it with {}", missing.option));
  }

  void ExamineParts() {
    ExaminePart("transformer", parts_.transformer, [&](DoctorPart& part) {
      transformer_ = std::make_unique<Transformer>(WeightStore(parts_.transformer, Component::kTransformer));
      Describe(transformer_->store(), part);
      const TransformerConfig& c = transformer_->config();
      part.text =
          fmt::format("{} blocks, {} heads of {}", c.num_layers, c.num_attention_heads, c.attention_head_dim);
    });
    ExaminePart("text_encoder", parts_.text_encoder, [&](DoctorPart& part) {
      text_encoder_ =
          std::make_unique<TextEncoder>(WeightStore(parts_.text_encoder, Component::kTextEncoder));
      Describe(text_encoder_->store(), part);
      const TextEncoderConfig& c = text_encoder_->config();
      part.text = fmt::format("{} layers of {}, {} tokens", c.num_hidden_layers, c.hidden_size, c.vocab_size);
    });
    ExaminePart("vae", parts_.vae, [&](DoctorPart& part) {
      vae_ = std::make_unique<Vae>(WeightStore(parts_.vae, Component::kVae));
      Describe(vae_->store(), part);
      part.text = fmt::format("{} latent channels, {} wide", vae_->config().z_dim, vae_->config().base_dim);
    });
    ExaminePart("tokenizer", parts_.tokenizer, [&](DoctorPart& part) {
      const Tokenizer tokenizer(parts_.tokenizer);
      part.text =
          fmt::format("{} tokens{}", tokenizer.vocabulary_size(),
                      parts_.tokenizer == parts_.text_encoder ? ", inside the text encoder's file" : "");
    });
    if (parts_.scheduler.empty()) {
      scheduler_ = OfficialScheduler();
      if (parts_.pipeline_class.empty())
        Note(Health::kNote, "scheduler",
             "no scheduler's settings are in the files: the official ones of Qwen-Image are used");
    } else {
      ExaminePart("scheduler", parts_.scheduler, [&](DoctorPart& part) {
        scheduler_ = ReadSchedulerConfig(parts_.scheduler);
        part.text = IsDistilled(scheduler_) ? "distilled (Lightning): few steps, no guidance"
                                            : "flow matching, Euler steps";
      });
    }
  }

  template <typename Open>
  void ExaminePart(const char* name, const fs::path& path, const Open& open) {
    if (path.empty()) return;
    DoctorPart part{.name = name, .path = path, .text = ""};
    if (!Try(name, [&] { open(part); })) {
      part.health = Health::kBroken;
      part.text = "broken, see below";
    }
    found_.parts.push_back(std::move(part));
  }

  static void Describe(const WeightStore& store, DoctorPart& part) {
    for (const auto& [name, stored] : store.tensors()) {
      WeightTensor tensor = stored;
      tensor.Settle();  // what no model takes (a vision tower) was not settled by its shape
      part.formats[tensor.Format()] += tensor.bytes();
      part.parameters += ElementCount(tensor.shape());
      part.bytes += tensor.bytes();
    }
  }

  void ExamineVariant() {
    const bool told = Try("variant", [&] {
      found_.variant = RecognizeVariant(parts_, transformer_->config().zero_cond_t, files_.variant,
                                        ReadModelDefaults(parts_.root).pipelines);
    });
    if (!told) return;
    const RecognizedVariant& variant = found_.variant;
    if (variant.variant == Variant::kUnknown) {
      Note(Health::kNote, "variant",
           fmt::format(
               "cannot tell: {}. --variant says which it is (edits need that; text to picture does not)",
               variant.how));
    } else if (variant.variant == Variant::kEdit2511 && !transformer_->config().zero_cond_t) {
      Note(Health::kWarning, "variant",
           "Edit-2511 without its marker (zero_cond_t in config.json, or the tensor "
           "__index_timestep_zero__): other "
           "programs will treat it as Edit-2509");
    } else if (variant.variant == Variant::kEdit2509) {
      Note(Health::kNote, "variant",
           "Edit-2509 by its index; if it is Edit-2511, its zero_cond_t is lost, and --variant edit-2511 "
           "says so");
    }
    if (variant.edits() && variant.edit != variant.variant)
      Note(Health::kGood, "variant",
           fmt::format("edits pictures, too, as {} (qwen_image.json)", NameOf(variant.edit)));
  }

  void ExamineLoras() {
    LoraSet loras;
    const bool fit = Try("lora", [&] {
      loras = LoraSet(files_.loras);
      loras.TakeAll(transformer_->store());
      loras.Finish();
    });
    if (!fit) return;
    for (const AppliedLora& lora : loras.applied()) {
      Note(Health::kGood, "lora",
           fmt::format("{} × {}: {} of {} layers, rank {}", lora.name, lora.scale, lora.layers, lora.total,
                       lora.min_rank == lora.max_rank
                           ? fmt::format("{}", lora.min_rank)
                           : fmt::format("{} to {}", lora.min_rank, lora.max_rank)));
    }
    loras_ = loras.applied();
  }

  // Text to picture works without: nothing here makes a model unusable.
  void ExamineVision() {
    try {
      WeightStore store(parts_.vision_encoder, Component::kVisionEncoder);
      if (store.tensors().empty() && !found_.variant.edits())
        return Note(Health::kGood, "vision tower", "not there; only edits need it");
      const VisionEncoder vision(std::move(store));
      CheckVisionFits(vision, text_encoder_->config());
      const VisionEncoderConfig& c = vision.config();
      Note(Health::kGood, "vision tower", fmt::format("there: {} blocks of {}", c.depth, c.hidden_size));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kBadInput) throw;
      Note(Health::kWarning, "vision tower", "edits will not work: " + error.message());
    }
  }

  void ExamineFit() {
    Try("parts",
        [&] { CheckPartsFit(text_encoder_->config(), transformer_->config(), vae_->config(), parts_.root); });
  }

  void ExaminePictures() {
    Defaults defaults;
    if (!Try("qwen_image.json", [&] {
          defaults = DefaultsFor(ReadModelDefaults(parts_.root), scheduler_, found_.variant.variant);
        }))
      return;
    UseLightning(loras_, scheduler_, defaults);
    found_.defaults = defaults;
    const StepEstimate estimate(*transformer_, pool_);
    std::vector<std::pair<int64_t, int64_t>> sizes = {{512, 512}, {1024, 1024}};
    if (const std::pair own{defaults.width, defaults.height};
        std::find(sizes.begin(), sizes.end(), own) == sizes.end())
      sizes.insert(sizes.begin(), own);
    for (const auto& [width, height] : sizes) {
      cancel_.ThrowIfCancelled();
      GenerateRequest request;
      request.width = width;
      request.height = height;
      const Settings settings = ResolveSettings(request, defaults, vae_->config().z_dim);
      const int64_t memory =
          EstimateMemory(*text_encoder_, *transformer_, *vae_, request, settings).largest();
      found_.pictures.push_back({.width = width,
                                 .height = height,
                                 .memory = memory,
                                 .fits = memory <= found_.available_memory,
                                 .seconds_per_step = estimate.Seconds(settings.grid)});
    }
    const auto fits = [](const DoctorPicture& picture) { return picture.fits; };
    if (std::none_of(found_.pictures.begin(), found_.pictures.end(), fits)) {
      Note(Health::kBroken, "memory",
           "no picture of these sizes fits; --ignore-memory reads from disk at every step, which is very "
           "slow");
    } else if (!fits(found_.pictures.front())) {
      Note(Health::kWarning, "memory", "the default size does not fit; choose a smaller one with --size");
    }
    ExamineUse(defaults);
  }

  // What surprises people.
  void ExamineUse(const Defaults& defaults) {
    const bool plain_fp8 = HasPlainFp8();
    if (IsDistilled(scheduler_)) {
      Note(Health::kNote, "guidance",
           fmt::format("a distilled schedule (Lightning): {} steps and cfg {} by default; with cfg 1 "
                       "negative prompts do "
                       "nothing",
                       defaults.steps, defaults.cfg));
      if (plain_fp8) {
        Note(Health::kWarning, "transformer",
             "fp8 without scales under a Lightning schedule: grids in the picture are a known trouble; "
             "scaled fp8, "
             "q8 or bf16 have none");
      }
    } else if (plain_fp8) {
      Note(Health::kNote, "transformer",
           "fp8 without scales: rounded to 3 bits; a Lightning LoRA on it may show a grid");
    }
    Note(Health::kNote, "prompt",
         fmt::format(
             "{} tokens of a prompt are used, --max-sequence-length allows up to {}; a cut is reported",
             GenerateRequest().max_sequence_length, kTokenizerMaxLength));
  }

  bool HasPlainFp8() const {
    const auto& tensors = transformer_->store().tensors();
    return std::any_of(tensors.begin(), tensors.end(),
                       [](const auto& item) { return item.second.Format() == "F8_E4M3"; });
  }

  void Summarize() {
    const std::string_view variant = NameOf(found_.variant.variant);
    const std::string name =
        variant.empty() ? "a model of the Qwen-Image family" : fmt::format("Qwen-Image, variant {}", variant);
    found_.what = transformer_ ? name : "parts of a model";
  }

  const ModelFiles& files_;
  ThreadPool& pool_;
  const CancelFlag& cancel_;
  ModelParts parts_;
  SchedulerConfig scheduler_;
  std::vector<AppliedLora> loras_;
  std::unique_ptr<Transformer> transformer_;
  std::unique_ptr<TextEncoder> text_encoder_;
  std::unique_ptr<Vae> vae_;
  Diagnosis found_;
};

}  // namespace

bool Diagnosis::usable() const {
  return std::none_of(findings.begin(), findings.end(),
                      [](const DoctorFinding& finding) { return finding.health == Health::kBroken; });
}

Diagnosis Diagnose(const ModelFiles& files, ThreadPool& pool, const CancelFlag& cancel) {
  return Doctor(files, pool, cancel).Run();
}

}  // namespace qwen_image
