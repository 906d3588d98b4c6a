// The state of an unfinished run, in a file: latents after the last finished step, and what else the next
// steps depend on. A run that was killed goes on from there to the identical picture.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "core/tensor.h"
#include "keep/tensor_file.h"

namespace qwen_image::keep {

struct RunState {
  int64_t steps_done = 0;
  Tensor latents;
  TensorFile more;  // of others that have a state, such as the step cache
};

class RunStateFile {
 public:
  // The file of the run with this identity. Makes the folder. Throws Error kCannotWrite if nothing can be
  // written there.
  RunStateFile(const std::filesystem::path& folder, std::string identity, std::string prompt);

  const std::filesystem::path& path() const { return path_; }

  // Nothing if there is no file. `more`: the shapes of the other tensors. Throws Error kBadInput for a file
  // that is damaged or has more steps than `steps`.
  std::optional<RunState> Load(const Shape& latents, int64_t steps, std::map<std::string, Shape> more) const;
  void Save(RunState state) const;  // throws Error kCannotWrite

 private:
  std::filesystem::path path_;
  std::string identity_, prompt_;
};

}  // namespace qwen_image::keep
