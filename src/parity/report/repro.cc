#include "parity/report/repro.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/fail.h"
#include "families/checkpoint_names.h"
#include "files/mmap.h"
#include "files/npy.h"
#include "files/output_file.h"
#include "parity/record/level.h"

namespace qwen_image::report {
namespace {

bool IsComponentInput(const compare::BisectResult& result, const std::string& name) {
  if (result.component == "text_encoder")
    return name == "input_ids" || name == "negative_input_ids" || name == "pixel_values" ||
           name == "image_grid_thw";
  if (result.component == "vae") {
    const bool encodes = ReproOperation(result).starts_with("vae.image");
    return encodes ? name.starts_with("vae_image") : name == "vae/pre_decode_latents";
  }
  return result.component == "transformer" &&
         (name == "prompt_embeds" || name == "negative_prompt_embeds" || name == "image_latents" ||
          name == fmt::format("packed_latents_step{}", result.step.value_or(0)));
}

// "transformer/step000.neg/img_in" → "transformer/step000.neg/"
std::string PassOf(const std::string& name) { return name.substr(0, name.rfind('/') + 1); }

void WriteText(const std::filesystem::path& path, const std::string& text) {
  OutputFile file(path);
  file.Write(text.data(), text.size());
  file.Commit();
}

void CopyTensor(const record::ReferenceRun& reference, const std::string& name,
                const std::filesystem::path& folder, Json& entries) {
  const NpyArray array = reference.Read(name);
  const std::filesystem::path file = record::CheckpointFile(name);
  std::error_code error;
  std::filesystem::create_directories((folder / file).parent_path(), error);  // a failure shows when writing
  std::visit([&](const auto& values) { WriteNpy(folder / file, values.data(), array.shape); }, array.values);
  const bool is_float = std::holds_alternative<std::vector<float>>(array.values);
  entries.push_back({{"name", name},
                     {"file", file.string()},
                     {"shape", array.shape},
                     {"dtype", is_float ? "float32" : "int64"}});
}

}  // namespace

const std::string& ReproOperation(const compare::BisectResult& result) {
  return result.culprit.empty() ? result.first_bad : result.culprit;
}

std::vector<std::string> ReproTensors(const record::ReferenceRun& reference,
                                      const compare::BisectResult& result) {
  const std::string& operation = ReproOperation(result);
  const std::vector<std::string>& all = reference.checkpoints();
  const auto end = std::find(all.begin(), all.end(), operation);
  if (end == all.end()) return {};
  std::set<std::string> wanted = {operation};
  for (const std::string& name : all) {
    if (IsComponentInput(result, name)) wanted.insert(name);
  }
  // The tensors before the operation in the part that was searched last.
  auto entry = end;
  for (auto name = all.begin(); name != end; ++name) {
    const bool in_rows = std::any_of(result.rows.begin(), result.rows.end(),
                                     [&](const compare::BisectRow& row) { return row.name == *name; });
    if (in_rows && record::LevelOf(operation) > record::CheckpointLevel::kBlocks) {
      wanted.insert(*name);
      entry = std::min(entry, name);
    }
  }
  // The inputs of that part: the last blocks before it, one for each stream.
  const size_t streams = std::max<size_t>(1, NamesFor(all).streams.size());
  size_t found = 0;
  while (entry != all.begin() && found < streams) {
    --entry;
    if (PassOf(*entry) != PassOf(operation)) break;
    if (record::LevelOf(*entry) != record::CheckpointLevel::kBlocks) continue;
    wanted.insert(*entry);
    ++found;
  }
  std::vector<std::string> names;
  std::copy_if(all.begin(), all.end(), std::back_inserter(names),
               [&](const std::string& name) { return wanted.contains(name); });
  return names;
}

void WriteRepro(const std::filesystem::path& folder, const record::ReferenceRun& reference,
                const compare::BisectResult& result, const std::vector<std::string>& weights,
                const std::string& command) {
  const std::string& operation = ReproOperation(result);
  const std::vector<std::string> names = ReproTensors(reference, result);
  std::error_code error;
  std::filesystem::create_directories(folder / "ref", error);
  Json entries = Json::array();
  std::string level;
  for (const std::string& name : names) {
    CopyTensor(reference, name, folder / "ref", entries);
    level += (level.empty() ? "" : ",") + name;
  }
  // The pictures that the run started from: they decide its sizes.
  std::vector<std::string> pictures = reference.settings().images;
  if (!reference.settings().mask.empty()) pictures.push_back(reference.settings().mask);
  for (const std::string& picture : pictures)
    WriteText(folder / "ref" / picture, std::string(MappedFile(reference.tensors().path() / picture).text()));
  Json manifest = reference.tensors().manifest();
  manifest["checkpoints"] = entries;
  manifest["checkpoints_level"] = level;
  WriteText(folder / "ref/manifest.json", manifest.dump(1) + "\n");

  std::vector<std::string> inputs = names;
  std::erase(inputs, operation);
  WriteText(folder / "repro.json", Json{{"operation", operation},
                                        {"expected_output", operation},
                                        {"inputs", inputs},
                                        {"weights", weights},
                                        {"conclusion", result.conclusion},
                                        {"command", command}}
                                           .dump(1) +
                                       "\n");
  std::string text = fmt::format("# {}\n\n{}.\n\n    {}\n\nInputs (in `ref/`, from the reference):\n\n",
                                 operation, result.conclusion, command);
  for (const std::string& name : inputs) text += fmt::format("- `{}`\n", name);
  text += fmt::format("\nExpected output: `ref/{}`\n", record::CheckpointFile(operation).string());
  if (!weights.empty()) text += "\nWeights:\n\n";
  for (const std::string& name : weights) text += fmt::format("- `{}`\n", name);
  WriteText(folder / "README.md", text);
}

}  // namespace qwen_image::report
