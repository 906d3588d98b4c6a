#include "keep/run_state.h"

#include <charconv>

#include "core/fail.h"
#include "files/digest.h"
#include "files/folder.h"
#include "files/output_file.h"
#include "qwen_image/qwen_image.h"

namespace qwen_image::keep {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "qwen-image run 1";
constexpr const char* kResumeEnding = ".resume.safetensors";
constexpr const char* kLatents = "latents";
constexpr const char* kStepsDone = "steps_done";

// 0 if the file does not say.
int64_t StepsDone(const std::map<std::string, std::string>& metadata, int64_t steps) {
  const auto found = metadata.find(kStepsDone);
  int64_t done = 0;
  if (found != metadata.end())
    std::from_chars(found->second.data(), found->second.data() + found->second.size(), done);
  return done >= 1 && done <= steps ? done : 0;
}

}  // namespace

RunStateFile::RunStateFile(const fs::path& folder, std::string identity, std::string prompt)
    : identity_(std::move(identity)), prompt_(std::move(prompt)) {
  constexpr size_t kNameDigits = 32;
  std::error_code error;
  fs::create_directories(folder, error);  // if that fails, CheckWritable says why
  path_ = folder / (Sha256(identity_).substr(0, kNameDigits) + kResumeEnding);
  CheckWritable(path_);
}

std::optional<RunState> RunStateFile::Load(const Shape& latents, int64_t steps,
                                           std::map<std::string, Shape> more) const {
  if (!Exists(path_)) return std::nullopt;
  ExpectedTensors expected{.metadata = {{"format", kFormat}, {"run", identity_}},
                           .shapes = {{kLatents, latents}}};
  expected.shapes.merge(more);
  TensorFile kept = ReadTensorFile(path_, expected);
  RunState state{.steps_done = StepsDone(kept.metadata, steps)};
  if (state.steps_done == 0)
    Fail(ErrorKind::kBadInput, "{} does not say which step was finished", path_.string());
  state.latents = std::move(kept.tensors.at(kLatents));
  state.more = std::move(kept);
  return state;
}

void RunStateFile::Save(RunState state) const {
  TensorFile kept = std::move(state.more);
  kept.metadata["format"] = kFormat;
  kept.metadata["run"] = identity_;
  kept.metadata["prompt"] = prompt_;  // for people that look into the file
  kept.metadata[kStepsDone] = std::to_string(state.steps_done);
  kept.tensors.emplace(kLatents, std::move(state.latents));
  WriteTensorFile(path_, kept);
}

}  // namespace qwen_image::keep

namespace qwen_image {

void RemoveResumeState(const Picture& picture) {
  if (picture.resume_file.empty()) return;
  std::error_code error;
  std::filesystem::remove(picture.resume_file, error);
  RemoveLeftovers(picture.resume_file);
}

}  // namespace qwen_image
