#include "parity/record/run_writer.h"

#include "files/npy.h"
#include "files/output_file.h"

namespace qwen_image::record {
namespace {

// The old manifest must not describe the new run before it is complete. The old tensors must not be mistaken
// for new ones.
void RemoveEarlierRun(const std::filesystem::path& folder) {
  std::error_code error;
  std::vector<std::filesystem::path> old = {folder / "manifest.json", folder / "report.json"};
  for (std::filesystem::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() == ".npy") old.push_back(it->path());
  }
  for (const std::filesystem::path& path : old) std::filesystem::remove(path, error);
}

}  // namespace

void RunWriter::OnCheckpoint(const std::string& name, const CheckpointView& view) {
  const std::filesystem::path file = CheckpointFile(name);
  std::error_code error;
  if (checkpoints_.empty()) RemoveEarlierRun(folder_);
  std::filesystem::create_directories((folder_ / file).parent_path(), error);  // a failure shows when writing
  const bool is_float = std::holds_alternative<float*>(view.data);
  if (is_float) {
    WriteNpy(folder_ / file, std::get<float*>(view.data), view.shape);
  } else {
    WriteNpy(folder_ / file, std::get<const int64_t*>(view.data), view.shape);
  }
  checkpoints_.push_back({{"name", name},
                          {"file", file.string()},
                          {"shape", view.shape},
                          {"dtype", is_float ? "float32" : "int64"}});
}

// A run of one component lacks the checkpoints of the others at every level. So its "level" lists the names
// that it holds.
std::string RunWriter::RecordedLevel() const {
  if (component_.empty()) return selection_.text();
  std::string names;
  for (const Json& entry : checkpoints_) {
    if (!names.empty()) names += ',';
    names += entry["name"].get<std::string>();
  }
  return names;
}

void RunWriter::Finish(const RunSettings& s, int threads, const std::string& device) {
  const bool guided = s.negative_prompt && s.cfg > 1;  // otherwise the negative prompt is unused
  Json manifest = {{"schema", 1},
                   {"tool", "qwen-image.cpp"},
                   {"pipeline", s.pipeline},
                   {"prompt", s.prompt},
                   {"negative_prompt", guided ? Json(*s.negative_prompt) : Json()},
                   {"width", s.width},
                   {"height", s.height},
                   {"steps", s.steps},
                   {"cfg", s.cfg},
                   {"seed", s.seed},
                   {"max_sequence_length", s.max_sequence_length},
                   {"dtype", "float32"},
                   {"checkpoints_level", RecordedLevel()},
                   {"threads", threads},
                   {"device", device},
                   {"checkpoints", checkpoints_}};
  if (!s.sigmas.empty()) manifest["sigmas"] = s.sigmas;
  if (!substituted_.empty()) manifest["substituted"] = substituted_;
  const std::string text = manifest.dump(1) + "\n";
  OutputFile file(folder_ / "manifest.json");
  file.Write(text.data(), text.size());
  file.Commit();
}

}  // namespace qwen_image::record
