// qwen-image doctor: what a model is, whether it is whole and fits, what would go wrong.
#pragma once

#include <string>

#include "qwen_image/cancel.h"
#include "qwen_image/model_files.h"

namespace CLI {
class App;
}

namespace qwen_image {

struct DoctorOptions {
  std::string path;  // the same as --model
  ModelFiles files;
  int threads = 0;
  bool json = false;
};

void AddDoctorOptions(CLI::App& command, DoctorOptions& options);

// Returns the exit code: 0 if a picture can be drawn, 1 if not. Throws Error.
int RunDoctor(const DoctorOptions& options, const CancelFlag& cancel);

}  // namespace qwen_image
