// Prove: examines a model, loads it, draws with it and compares, and tells all of it in one report. For
// people who hold weights that the authors of this program do not have.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "prove/report.h"
#include "qwen_image/cancel.h"
#include "qwen_image/qwen_image.h"

namespace qwen_image::prove {

struct Options {
  std::filesystem::path folder;     // of the report; tensors lie there for a while
  std::filesystem::path reference;  // a run that tools/reference/export.py wrote; empty: none
  bool quick = false;
  std::optional<std::pair<int64_t, int64_t>> size;  // of all pictures
  std::optional<int64_t> steps;                     // of all pictures
  int threads = 0;
  bool check_memory = true;
};

// What is going on, for a terminal. All may be empty.
struct Watch {
  const CancelFlag& cancel;
  std::function<void(int number, int count, const std::string& title)> on_part = {};
  std::function<void(const std::string& what)> on_drawing = {};
  std::function<void(const Progress&)> on_progress = {};
  std::function<void(const std::string& status, const std::string& why)> on_part_done = {};
};

// Problems of the model are in the report. Throws Error kUsage for a size or a number of steps that the model
// cannot draw, kOutOfMemory for a size that does not fit, kBadInput for a reference that is none, and
// kInterrupted.
Report Prove(const ModelFiles& model, const Options& options, const Watch& watch);

}  // namespace qwen_image::prove
