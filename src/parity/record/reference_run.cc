#include "parity/record/reference_run.h"

#include "core/fail.h"
#include "families/vocabulary.h"
#include "files/json.h"
#include "files/safe_path.h"
#include "files/text.h"

namespace qwen_image::record {
namespace {

template <typename T>
T Field(const Json& manifest, const char* key, const std::string& where) {
  try {
    return manifest.at(key).get<T>();
  } catch (const Json::exception&) {
    Fail(ErrorKind::kBadInput, "{}: \"{}\" is missing or has a wrong type", where, key);
  }
}

std::string FileInside(const std::string& name, const char* key, const std::string& where) {
  if (!StaysInside(name))
    Fail(ErrorKind::kBadInput, "{}: \"{}\" names {}, which is not a file of the run's folder", where, key,
         Quoted(name));
  return name;
}

RunSettings ReadSettings(const Json& manifest, const std::string& where) {
  RunSettings s;
  s.prompt = Field<std::string>(manifest, "prompt", where);
  if (manifest.contains("negative_prompt") && !manifest["negative_prompt"].is_null()) {
    s.negative_prompt = Field<std::string>(manifest, "negative_prompt", where);
  }
  s.width = Field<int64_t>(manifest, "width", where);
  s.height = Field<int64_t>(manifest, "height", where);
  s.steps = Field<int64_t>(manifest, "steps", where);
  if (manifest.contains("sigmas")) s.sigmas = Field<std::vector<double>>(manifest, "sigmas", where);
  s.cfg = Field<double>(manifest, "cfg", where);
  s.seed = Field<uint64_t>(manifest, "seed", where);
  s.max_sequence_length = manifest.contains("max_sequence_length")
                              ? Field<int64_t>(manifest, "max_sequence_length", where)
                              : s.max_sequence_length;
  if (manifest.contains("pipeline")) s.pipeline = Field<std::string>(manifest, "pipeline", where);
  if (manifest.contains("images")) {
    for (const auto& name : Field<std::vector<std::string>>(manifest, "images", where))
      s.images.push_back(FileInside(name, "images", where));
  }
  if (manifest.contains("mask"))
    s.mask = FileInside(Field<std::string>(manifest, "mask", where), "mask", where);
  if (manifest.contains("strength")) s.strength = Field<double>(manifest, "strength", where);
  return s;
}

}  // namespace

bool RunSettings::edits() const { return !images.empty() && EditsPictures(pipeline); }

std::filesystem::path CheckpointFile(const std::string& name) { return name + ".npy"; }

std::optional<CheckpointSelection> RecordedSelection(const Json& manifest) {
  if (!manifest.is_object() || !manifest.contains("checkpoints_level") ||
      !manifest["checkpoints_level"].is_string())
    return std::nullopt;
  try {
    return CheckpointSelection(manifest["checkpoints_level"].get<std::string>());
  } catch (const Error&) {
    return std::nullopt;  // another program wrote the manifest, with levels of its own
  }
}

ReferenceRun::ReferenceRun(const std::filesystem::path& folder) : tensors_(TensorSet::Open(folder)) {
  const std::string where = (folder / "manifest.json").string();
  const Json& manifest = tensors_.manifest();
  if (manifest.is_null())
    Fail(ErrorKind::kBadInput, "{} is missing: {} is not a run", where, folder.string());
  if (manifest.contains("prompt"))
    settings_ = ReadSettings(manifest, where);  // a run of a single component has no settings
  for (const TensorInfo& tensor : tensors_.tensors()) order_.push_back(tensor.name);
}

NpyArray ReferenceRun::Read(const std::string& name) const {
  const TensorInfo* tensor = tensors_.Find(name);
  if (!tensor)
    Fail(ErrorKind::kBadInput, "{}: the run has no checkpoint {}", tensors_.path().string(), Quoted(name));
  NpyArray array{.shape = tensor->shape, .dtype = tensor->dtype, .values = {}};
  if (tensor->is_float) {
    array.values = tensors_.ReadAll(*tensor);
  } else {
    std::vector<double> values(static_cast<size_t>(tensor->count));
    tensors_.Read(*tensor, 0, tensor->count, values.data());
    array.values = std::vector<int64_t>(values.begin(), values.end());
  }
  return array;
}

}  // namespace qwen_image::record
