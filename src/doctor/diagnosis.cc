#include "doctor/diagnosis.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "core/fail.h"
#include "core/memory.h"
#include "draw/memory_check.h"
#include "families/step_estimate.h"
#include "weights/model_defaults.h"

namespace qwen_image::doctor {
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
    if (opened_.transformer) ExamineVariant();
    if (opened_.transformer && !files_.loras.empty()) ExamineLoras();
    // Text to picture works without: nothing there makes a model unusable.
    if (opened_.text_encoder) family_->ExamineVision(parts_, opened_, found_.variant.edits, found_.findings);
    if (opened_.transformer && opened_.text_encoder && opened_.vae)
      Try("parts", [&] { family_->CheckFit(opened_, parts_.root); });
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
    family_ = &FamilyFor(parts_);
    for (const MissingPart& missing : MissingParts(parts_)) {
      found_.parts.push_back(
          {.name = missing.name, .path = {}, .health = Health::kBroken, .text = "missing"});
      Note(Health::kBroken, missing.name, MissingText(missing));
    }
    return true;
  }

  std::string MissingText(const MissingPart& missing) const {
    const std::map<std::string, std::string> usual_files = {
        {"transformer", "transformer/diffusion_pytorch_model.safetensors"},
        {"text_encoder", "text_encoder/model.safetensors"},
        {"vae", "vae/diffusion_pytorch_model.safetensors"},
        {"tokenizer", fmt::format("{}/tokenizer.json", family_->tokenizer_folder())},
        {"scheduler", "scheduler/scheduler_config.json"}};
    return fmt::format("is missing; it is usually {}{}", usual_files.at(missing.name),
                       missing.option.empty() ? "" : fmt::format(", or name it with {}", missing.option));
  }

  void ExamineParts() {
    ExamineWeights(Component::kTransformer, parts_.transformer, opened_.transformer);
    ExamineWeights(Component::kTextEncoder, parts_.text_encoder, opened_.text_encoder);
    ExamineWeights(Component::kVae, parts_.vae, opened_.vae);
    ExaminePart("tokenizer", parts_.tokenizer,
                [&](Part& part) { part.text = family_->ExamineTokenizer(parts_); });
    if (parts_.scheduler.empty()) {
      if (parts_.pipeline_class.empty())
        Note(Health::kNote, "scheduler",
             fmt::format("no scheduler's settings are in the files: the official ones of {} are used",
                         family_->title()));
    } else {
      ExaminePart("scheduler", parts_.scheduler, [&](Part& part) {
        part.text = IsDistilled(ReadSchedulerConfig(parts_.scheduler))
                        ? "distilled (Lightning): few steps, no guidance"
                        : "flow matching, Euler steps";
      });
    }
  }

  void ExamineWeights(Component component, const fs::path& path, std::unique_ptr<ModelPart>& opened) {
    ExaminePart(std::string(NameOf(component)), path, [&](Part& part) {
      opened = family_->OpenPart(parts_, component);
      Describe(opened->store(), part);
      part.text = opened->Summary();
    });
  }

  template <typename Open>
  void ExaminePart(const std::string& name, const fs::path& path, const Open& open) {
    if (path.empty()) return;
    Part part{.name = name, .path = path, .text = ""};
    if (!Try(name, [&] { open(part); })) {
      part.health = Health::kBroken;
      part.text = "broken, see below";
    }
    found_.parts.push_back(std::move(part));
  }

  static void Describe(const WeightStore& store, Part& part) {
    for (const auto& [name, stored] : store.tensors()) {
      WeightTensor tensor = stored;
      tensor.ChooseQuantization();  // what no model takes (a vision tower) was not settled by its shape
      part.formats[tensor.Format()] += tensor.bytes();
      part.parameters += ElementCount(tensor.shape());
      part.bytes += tensor.bytes();
    }
  }

  void ExamineVariant() {
    Try("variant", [&] {
      found_.variant = family_->ExamineVariant(parts_, opened_, files_.variant,
                                               ReadModelDefaults(parts_.root).pipelines, &found_.findings);
    });
  }

  void ExamineLoras() {
    lora::Set loras;
    const bool fit = Try("lora", [&] {
      loras = lora::Set(files_.loras);
      loras.TakeAll(opened_.transformer->store());
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
  }

  void ExaminePictures() {
    if (!Try("qwen_image.json", [&] { ReadModelDefaults(parts_.root); })) return;
    // As generate would open it by default, but on the processors.
    std::unique_ptr<Model> model;
    if (!Try("model", [&] { model = family_->Open(parts_, files_, {.check_memory = false}); })) return;
    const ModelTraits& traits = model->traits();
    const Defaults& defaults = traits.defaults;
    found_.defaults = defaults;
    const StepEstimate estimate(model->denoiser(), pool_);
    found_.timed_product = estimate.product();
    std::vector<std::pair<int64_t, int64_t>> sizes = {{512, 512}, {1024, 1024}};
    if (const std::pair own{defaults.width, defaults.height};
        std::find(sizes.begin(), sizes.end(), own) == sizes.end())
      sizes.insert(sizes.begin(), own);
    for (const auto& [width, height] : sizes) {
      cancel_.ThrowIfCancelled();
      if (std::max(width, height) > traits.geometry.max_side) continue;
      GenerateRequest request;
      request.width = width;
      request.height = height;
      const draw::Settings settings = draw::ResolveSettings(request, traits);
      const int64_t memory = model->EstimateMemory(draw::WorkloadOf(request, settings)).largest();
      found_.pictures.push_back({.width = width,
                                 .height = height,
                                 .memory = memory,
                                 .fits = memory <= found_.available_memory,
                                 .seconds_per_step = estimate.Seconds(settings.grid)});
    }
    const auto fits = [](const PictureCost& picture) { return picture.fits; };
    if (std::none_of(found_.pictures.begin(), found_.pictures.end(), fits)) {
      Note(Health::kBroken, "memory",
           "no picture of these sizes fits; --ignore-memory reads from disk at every step, which is very "
           "slow");
    } else if (!fits(found_.pictures.front())) {
      Note(Health::kWarning, "memory", "the default size does not fit; choose a smaller one with --size");
    }
    ExamineUse(traits);
  }

  // What surprises people.
  void ExamineUse(const ModelTraits& traits) {
    const Defaults& defaults = traits.defaults;
    const bool plain_fp8 = HasPlainFp8();
    if (IsDistilled(traits.scheduler)) {
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
         traits.cuts_prompts
             ? fmt::format(
                   "{} tokens of a prompt are used, --max-sequence-length allows up to {}; a cut is reported",
                   GenerateRequest().max_sequence_length, traits.max_prompt_tokens)
             : fmt::format("all of a prompt is used, up to {} positions together with its pictures",
                           traits.max_prompt_tokens));
  }

  bool HasPlainFp8() const {
    const auto& tensors = opened_.transformer->store().tensors();
    return std::any_of(tensors.begin(), tensors.end(),
                       [](const auto& item) { return item.second.Format() == "F8_E4M3"; });
  }

  void Summarize() {
    const std::string& variant = found_.variant.name;
    const std::string name = variant.empty() ? fmt::format("a model of the {} family", family_->title())
                                             : fmt::format("{}, variant {}", family_->title(), variant);
    found_.what = opened_.transformer ? name : "parts of a model";
  }

  const ModelFiles& files_;
  ThreadPool& pool_;
  const CancelFlag& cancel_;
  ModelParts parts_;
  const Family* family_ = nullptr;
  OpenedParts opened_;
  Diagnosis found_;
};

}  // namespace

bool Diagnosis::usable() const {
  return std::none_of(findings.begin(), findings.end(),
                      [](const HealthFinding& finding) { return finding.health == Health::kBroken; });
}

Diagnosis Diagnose(const ModelFiles& files, ThreadPool& pool, const CancelFlag& cancel) {
  return Doctor(files, pool, cancel).Run();
}

}  // namespace qwen_image::doctor
