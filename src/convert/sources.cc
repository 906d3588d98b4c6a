#include "convert/sources.h"

#include "convert/working_folder.h"
#include "core/fail.h"
#include "files/file_times.h"
#include "files/folder.h"
#include "files/mmap.h"
#include "files/output_file.h"
#include "weights/files.h"

namespace qwen_image::convert {
namespace {

namespace fs = std::filesystem;

bool IsFile(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

void MakeFolders(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) Fail(ErrorKind::kCannotWrite, "cannot make the folder {}: {}", path.string(), error.message());
}

void CopyFile(const fs::path& from, const fs::path& to) {
  const MappedFile source(from);
  OutputFile file(to);
  file.Write(source.bytes().data(), source.bytes().size());
  file.Commit();
}

// The files of a folder, not those of folders in it. Links, as caches have them, are followed.
void CopyFolder(const fs::path& from, const fs::path& to) {
  MakeFolders(to);
  for (const std::string& name : ListFolder(from)) {
    if (!name.starts_with('.') && IsFile(from / name)) CopyFile(from / name, to / name);
  }
}

// Of the plain numbers that most parameters have; a quantized model computes in bfloat16.
std::string_view TorchDtype(const ComponentPlan& plan) {
  std::map<DType, int64_t> counts;
  for (const ShardPlan& shard : plan.shards) {
    for (const TensorPlan& tensor : shard.tensors)
      counts[tensor.choice.encoding.dtype] += ElementCount(tensor.shape);
  }
  const auto most = std::max_element(counts.begin(), counts.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most->first == DType::kF32 ? "float32" : most->first == DType::kF16 ? "float16" : "bfloat16";
}

void SetDtype(Json& config, std::string_view dtype) {
  if (!config.is_object()) return;
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (config.contains(key)) config[key] = dtype;
  }
}

}  // namespace

Json ConfigJson(const ModelPart& part, const ComponentPlan& plan) {
  Json config = part.Config();
  for (const char* key : {"quantization", "quantization_config"}) config.erase(key);
  SetDtype(config, TorchDtype(plan));
  if (config.contains("text_config")) SetDtype(config["text_config"], TorchDtype(plan));
  if (Json quantization = plan.Quantization(); !quantization.is_null())
    config["quantization"] = std::move(quantization);
  return config;
}

Json FileJson(const fs::path& path) {
  struct stat status = {};
  stat(path.c_str(), &status);
  std::error_code error;
  return {{"path", fs::absolute(path, error).lexically_normal().string()},
          {"bytes", status.st_size},
          {"changed", {ModifiedTime(status).tv_sec, ModifiedTime(status).tv_nsec}}};
}

Json FilesJson(const WeightStore& store) {
  Json list = Json::array();
  for (const auto& file : store.files()) list.push_back(FileJson(file->path()));
  return list;
}

ModelParts FindSourceParts(const ModelFiles& source, const std::vector<Component>& only) {
  if (!only.empty()) {
    ModelParts parts = LocateModelParts(source);
    for (const MissingPart& missing : MissingParts(parts)) {
      if (std::any_of(only.begin(), only.end(), [&](Component c) { return NameOf(c) == missing.name; }))
        Fail(ErrorKind::kBadInput, "there is no {} to convert; name it with {}", missing.name,
             missing.option);
    }
    return parts;
  }
  ModelParts parts = FindModelParts(source);
  if (!IsFolder(parts.tokenizer)) {
    Fail(ErrorKind::kBadInput,
         "{}: the tokenizer is inside this file and cannot be copied to a folder; name one with --tokenizer "
         "FOLDER, or convert single components with --only",
         parts.tokenizer.string());
  }
  return parts;
}

void CopyOtherFiles(const ModelParts& parts, const Family& family, const VariantInfo& variant,
                    const fs::path& to) {
  const bool processor = IsFolder(parts.root / "processor");  // of models for editing
  if (processor) CopyFolder(parts.root / "processor", to / "processor");
  // The processor's folder may be the tokenizer's too; another tokenizer then takes the place of its own.
  CopyFolder(parts.tokenizer, to / family.tokenizer_folder());
  if (parts.scheduler.empty() || variant.given) {
    MakeFolders(to / "scheduler");
    WriteJsonFile(to / "scheduler" / "scheduler_config.json",
                  SchedulerConfigJson(family.OfficialScheduler(variant)));
  } else {
    CopyFolder(parts.scheduler, to / "scheduler");
  }
  if (IsFile(parts.root / "qwen_image.json"))
    CopyFile(parts.root / "qwen_image.json", to / "qwen_image.json");
  if (IsFile(parts.root / "model_index.json") && !variant.given) {
    CopyFile(parts.root / "model_index.json", to / "model_index.json");
  } else {
    WriteJsonFile(to / "model_index.json", family.ModelIndex(variant, processor));
  }
}

}  // namespace qwen_image::convert
