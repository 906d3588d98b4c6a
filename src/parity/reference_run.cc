#include "parity/reference_run.h"

#include <cstring>

#include "core/dtype.h"
#include "core/fail.h"
#include "files/json.h"
#include "files/text.h"

namespace qwen_image {
namespace {

template <typename T>
T Field(const Json& manifest, const char* key, const std::string& where) {
  try {
    return manifest.at(key).get<T>();
  } catch (const Json::exception&) {
    Fail(ErrorKind::kBadInput, "{}: \"{}\" is missing or has a wrong type", where, key);
  }
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
  s.cfg = Field<double>(manifest, "cfg", where);
  s.seed = Field<uint64_t>(manifest, "seed", where);
  s.max_sequence_length = manifest.contains("max_sequence_length")
                              ? Field<int64_t>(manifest, "max_sequence_length", where)
                              : s.max_sequence_length;
  return s;
}

// A manifest may come from anywhere: its files must stay inside its folder.
bool StaysInside(const std::filesystem::path& file) {
  if (file.empty() || file.is_absolute()) return false;
  for (const auto& part : file) {
    if (part == "..") return false;
  }
  return true;
}

NpyArray ReadPacked(const SafetensorsFile& file, const std::string& name) {
  const auto found = file.tensors().find(name);
  if (found == file.tensors().end())
    Fail(ErrorKind::kBadInput, "{}: no tensor {}", file.path().string(), Quoted(name));
  const SafetensorsEntry& entry = found->second;
  const auto count = static_cast<size_t>(ElementCount(entry.shape));
  NpyArray array{.shape = entry.shape, .dtype = entry.dtype, .values = {}};
  if (const auto dtype = ComputeDType(entry.dtype)) {
    std::vector<float> values(count);
    ConvertToFloat(entry.bytes.data(), *dtype, static_cast<int64_t>(count), values.data());
    array.values = std::move(values);
  } else if (entry.dtype == "I64" || entry.dtype == "U8") {
    std::vector<int64_t> values(count);
    for (size_t i = 0; i < count; ++i) {
      if (entry.dtype == "U8") {
        values[i] = std::to_integer<int64_t>(entry.bytes[i]);
      } else {
        std::memcpy(&values[i], entry.bytes.data() + 8 * i, 8);
      }
    }
    array.values = std::move(values);
  } else {
    Fail(ErrorKind::kBadInput, "{}: {} has type {}, expected F32, F16, BF16, I64 or U8", file.path().string(),
         Quoted(name), entry.dtype);
  }
  return array;
}

}  // namespace

std::filesystem::path CheckpointFile(const std::string& name) { return name + ".npy"; }

ReferenceRun::ReferenceRun(const std::filesystem::path& folder) : folder_(folder) {
  const std::filesystem::path path = folder / "manifest.json";
  const std::string where = path.string();
  const Json manifest = ReadJsonFile(path);
  if (!manifest.is_object()) Fail(ErrorKind::kBadInput, "{}: expected a JSON object", where);
  if (manifest.contains("prompt"))
    settings_ = ReadSettings(manifest, where);  // else a single component's run
  level_ = Field<std::string>(manifest, "checkpoints_level", where);
  for (const Json& entry : Field<std::vector<Json>>(manifest, "checkpoints", where)) {
    const auto name = Field<std::string>(entry, "name", where);
    const std::filesystem::path file = Field<std::string>(entry, "file", where);
    if (!StaysInside(file))
      Fail(ErrorKind::kBadInput, "{}: the file {} of {} lies outside the run's folder", where,
           Quoted(file.string()), Quoted(name));
    if (!files_.emplace(name, folder / file).second)
      Fail(ErrorKind::kBadInput, "{}: {} is listed twice", where, Quoted(name));
    if (file.extension() == ".safetensors") packed_.try_emplace(folder / file, folder / file);
    order_.push_back(name);
  }
  if (order_.empty()) Fail(ErrorKind::kBadInput, "{}: the run holds no checkpoints", where);
}

NpyArray ReferenceRun::Read(const std::string& name) const {
  const std::filesystem::path& path = files_.at(name);
  const auto packed = packed_.find(path);
  return packed == packed_.end() ? ReadNpy(path) : ReadPacked(packed->second, name);
}

}  // namespace qwen_image
