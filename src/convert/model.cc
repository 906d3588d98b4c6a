#include "convert/model.h"

#include <algorithm>
#include <optional>

#include "convert/sources.h"
#include "convert/tensor_converter.h"
#include "convert/working_folder.h"
#include "core/fail.h"
#include "core/threads.h"
#include "lora/set.h"

namespace qwen_image::convert {
namespace {

namespace fs = std::filesystem;

constexpr int kPlanFormat = 1;  // to be raised when the same plan gives other bytes

// What the components' models are found to be, and what becomes of them.
struct Plan {
  std::vector<ComponentPlan> components;
  Json sources = Json::object();  // by component
  VariantInfo variant;
  std::vector<std::string> notes;

  int64_t source_bytes() const {
    int64_t total = 0;
    for (const ComponentPlan& component : components) total += component.source_bytes;
    return total;
  }
};

// A quantized tensor says why it is not as asked. Equal reasons are reported once.
void CollectNotes(Plan& plan) {
  std::map<std::string, std::vector<std::string>> names;
  for (const ComponentPlan& component : plan.components) {
    for (const ShardPlan& shard : component.shards) {
      for (const TensorPlan& tensor : shard.tensors) {
        if (!tensor.choice.note.empty()) names[tensor.choice.note].push_back(tensor.name);
      }
    }
  }
  for (const auto& [note, tensors] : names) {
    plan.notes.push_back(tensors.size() == 1 ? fmt::format("{}: {}", tensors[0], note)
                                             : fmt::format("{} and {} more tensors: {}", tensors[0],
                                                           tensors.size() - 1, note));
  }
}

// The layer whose weight a tensor is; empty for biases and the like, which no LoRA changes.
std::string ModuleOf(const std::string& tensor) {
  constexpr std::string_view kEnding = ".weight";
  return tensor.ends_with(kEnding) ? tensor.substr(0, tensor.size() - kEnding.size()) : "";
}

// What is merged into a tensor cannot be copied from the source.
void MergeLoras(lora::Set& loras, const WeightStore& transformer, ComponentPlan& plan) {
  loras.TakeAll(transformer);
  loras.Finish();
  for (ShardPlan& shard : plan.shards) {
    for (TensorPlan& tensor : shard.tensors) tensor.copied &= !loras.Changes(ModuleOf(tensor.name));
  }
}

Plan MakePlan(const Family& family, const ModelParts& parts, const Options& options, const ModelFiles& files,
              lora::Set& loras) {
  Plan plan;
  EncodingRules rules(options.to, options.group_size, options.rules);
  OpenedParts opened;
  for (const Component component : {Component::kTransformer, Component::kTextEncoder, Component::kVae}) {
    const auto& only = options.only;
    if (!only.empty() && std::find(only.begin(), only.end(), component) == only.end()) continue;
    std::unique_ptr<ModelPart>& part = component == Component::kTransformer   ? opened.transformer
                                       : component == Component::kTextEncoder ? opened.text_encoder
                                                                              : opened.vae;
    part = family.OpenPart(parts, component);
    plan.components.push_back(
        PlanComponent(component, part->store(), rules, std::max<int64_t>(options.max_shard_bytes, 1)));
    plan.sources[std::string(NameOf(component))] = FilesJson(part->store());
    if (component == Component::kTransformer) MergeLoras(loras, part->store(), plan.components.back());
  }
  rules.CheckAllUsed();
  if (!opened.transformer && !loras.empty())
    Fail(ErrorKind::kUsage, "--lora changes the transformer, which --only leaves out");
  for (const AppliedLora& lora : loras.applied()) {
    plan.notes.push_back(
        fmt::format("merged {} × {}: {} of {} layers", lora.name, lora.scale, lora.layers, lora.total));
  }
  for (const LoraFile& lora : files.loras) {
    Json file = FileJson(lora.path);
    file["scale"] = lora.scale;
    plan.sources["loras"].push_back(std::move(file));
  }
  if (opened.text_encoder && parts.vision_encoder != parts.text_encoder) {
    plan.notes.push_back(fmt::format(
        "the vision tower is a file of its own and is not converted; edits still need --vision-encoder {}",
        parts.vision_encoder.string()));
  }
  if (opened.transformer && opened.text_encoder && opened.vae) family.CheckFit(opened, parts.root);
  CollectNotes(plan);
  plan.variant = family.ExamineVariant(parts, opened, files.variant, {}, nullptr);
  return plan;
}

// Equal for two runs if and only if they write the same shards.
Json Fingerprint(const Plan& plan) {
  Json components = Json::object();
  for (const ComponentPlan& component : plan.components) {
    Json shards = Json::object();
    for (const ShardPlan& shard : component.shards) {
      Json& tensors = shards[shard.file] = Json::array();
      for (const TensorPlan& tensor : shard.tensors) {
        const Encoding& encoding = tensor.choice.encoding;
        tensors.push_back({tensor.name, encoding.Name(), NameOf(encoding.dtype)});
      }
    }
    components[std::string(NameOf(component.component))] = std::move(shards);
  }
  return {{"format", kPlanFormat}, {"sources", plan.sources}, {"components", std::move(components)}};
}

bool IsInside(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

// With --overwrite the target disappears at the end; a source in it would be lost, and be read while it goes.
// A target in the source would become a part of that model.
void CheckNotItself(const Plan& plan, const fs::path& root, const fs::path& target) {
  std::error_code error;
  const fs::path folder = fs::weakly_canonical(target, error);
  for (const Json& files : plan.sources) {
    for (const Json& file : files) {
      const fs::path path = fs::weakly_canonical(file.at("path").get<std::string>(), error);
      if (IsInside(path, folder)) {
        Fail(ErrorKind::kUsage, "the source {} is in the folder to be written, {}; choose another folder",
             path.string(), folder.string());
      }
    }
  }
  if (fs::is_directory(root, error) && IsInside(folder, fs::weakly_canonical(root, error))) {
    Fail(ErrorKind::kUsage, "the folder to be written, {}, is in the source {}; choose another folder",
         folder.string(), root.string());
  }
}

class Conversion {
 public:
  Conversion(const Family& family, const ModelParts& parts, const lora::Set& loras, const Plan& plan,
             WorkingFolder& folder, ThreadPool& pool, const CancelFlag& cancel,
             const std::function<void(const Progress&)>& on_progress)
      : family_(family),
        parts_(parts),
        loras_(loras),
        plan_(plan),
        folder_(folder),
        cancel_(cancel),
        on_progress_(on_progress),
        converter_(
            pool, cancel,
            [&loras](const std::string& tensor, int64_t first_row, int64_t rows, float* values) {
              loras.AddTo(ModuleOf(tensor), first_row, rows, values);
            },
            [this](int64_t bytes) { Advance(bytes); }) {
    progress_.total_bytes = plan.source_bytes();
  }

  Result Run() {
    for (const ComponentPlan& component : plan_.components) ConvertComponent(component);
    result_.notes = plan_.notes;
    return std::move(result_);
  }

 private:
  void Advance(int64_t bytes) {
    progress_.done_bytes += bytes;
    if (on_progress_) on_progress_(progress_);
  }

  void ConvertComponent(const ComponentPlan& plan) {
    progress_.component = plan.component;
    Advance(0);
    const std::string name(NameOf(plan.component));
    const fs::path to = folder_.model() / name;
    std::error_code error;
    fs::create_directories(to, error);
    const std::unique_ptr<ModelPart> part = family_.OpenPart(parts_, plan.component);
    for (const ShardPlan& shard : plan.shards) {
      ++result_.files;
      if (!TakeFinished(plan, shard, part->store())) ConvertShard(plan, shard, part->store());
    }
    if (!plan.IndexName().empty()) WriteJsonFile(to / plan.IndexName(), plan.Index());
    WriteJsonFile(to / "config.json", ConfigJson(*part, plan));
  }

  fs::path FileOf(const ComponentPlan& plan, const ShardPlan& shard) const {
    return fs::path(NameOf(plan.component)) / shard.file;
  }

  // True if an earlier run has done this shard.
  bool TakeFinished(const ComponentPlan& plan, const ShardPlan& shard, const WeightStore& store) {
    const auto note = folder_.Finished(FileOf(plan, shard), shard.file_bytes());
    if (!note) return false;
    for (const Json& tensor : *note) result_.tensors.push_back(ConvertedTensorFromJson(tensor));
    ++result_.continued;
    for (const TensorPlan& tensor : shard.tensors) {
      progress_.continued_bytes += store.Find(tensor.name)->bytes();
      Advance(store.Find(tensor.name)->bytes());
    }
    return true;
  }

  void ConvertShard(const ComponentPlan& plan, const ShardPlan& shard, const WeightStore& store) {
    const fs::path file = FileOf(plan, shard);
    SafetensorsWriter writer(folder_.model() / file, shard.Stored(), shard.Metadata());
    Json note = Json::array();
    for (const TensorPlan& tensor : shard.tensors) {
      cancel_.ThrowIfCancelled();
      const TensorError error = converter_.Convert(tensor, ReadableTensor(store, tensor.name), writer);
      result_.tensors.push_back(Converted(plan.component, tensor, error));
      note.push_back(ConvertedTensorJson(result_.tensors.back()));
    }
    store.ThrowIfDamaged();
    loras_.ThrowIfDamaged();
    writer.Finish();
    folder_.NoteFinished(file, note);
  }

  const Family& family_;
  const ModelParts& parts_;
  const lora::Set& loras_;
  const Plan& plan_;
  WorkingFolder& folder_;
  const CancelFlag& cancel_;
  const std::function<void(const Progress&)>& on_progress_;
  TensorConverter converter_;
  Progress progress_;
  Result result_;
};

// All but what an earlier run has written to `model`.
int64_t BytesToWrite(const Plan& plan, const fs::path& model) {
  int64_t total = 0;
  for (const ComponentPlan& component : plan.components) {
    for (const ShardPlan& shard : component.shards) total += shard.file_bytes();
  }
  std::error_code error;
  for (fs::recursive_directory_iterator it(model, error); !error && it != fs::end(it); it.increment(error)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored)) total -= static_cast<int64_t>(it->file_size(ignored));
  }
  return std::max<int64_t>(total, 0);
}

}  // namespace

Result ConvertModel(const ModelFiles& source, const fs::path& target, const Options& options,
                    const CancelFlag& cancel, const std::function<void(const Progress&)>& on_progress) {
  const fs::path folder_path = target.has_filename() ? target : target.parent_path();
  const ModelParts parts = FindSourceParts(source, options.only);
  lora::Set loras(source.loras);
  const Family& family = FamilyFor(parts);
  const Plan plan = MakePlan(family, parts, options, source, loras);
  CheckNotItself(plan, parts.root, folder_path);

  WorkingFolder folder(folder_path, Fingerprint(plan), options.overwrite);
  folder.RemoveUnfinished();
  CheckDiskSpace(folder.model(), BytesToWrite(plan, folder.model()));
  ThreadPool pool(options.threads > 0 ? options.threads : DefaultThreadCount());
  Result result = Conversion(family, parts, loras, plan, folder, pool, cancel, on_progress).Run();
  if (options.only.empty()) CopyOtherFiles(parts, family, plan.variant, folder.model());
  WriteJsonFile(folder.model() / "conversion.json", ConversionJson(result.tensors, result.notes));
  folder.MoveIntoPlace();
  return result;
}

}  // namespace qwen_image::convert
