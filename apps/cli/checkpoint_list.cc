#include "checkpoint_list.h"

#include "core/checkpoint.h"
#include "model_options.h"
#include "parity/record/level.h"
#include "print.h"

namespace qwen_image::cli {
namespace {

const char* LevelName(record::CheckpointLevel level) {
  switch (level) {
    case record::CheckpointLevel::kBoundaries:
      return "boundaries";
    case record::CheckpointLevel::kBlocks:
      return "blocks";
    case record::CheckpointLevel::kAll:
      return "all";
    case record::CheckpointLevel::kOnRequest:
      return "by name";
  }
  return "?";
}

class NamePrinter : public CheckpointSink {
 public:
  explicit NamePrinter(const DebugOptions& debug) {
    if (!debug.checkpoints.empty()) selection_.emplace(debug.checkpoints);
  }
  bool Wants(std::string_view name) const override { return !selection_ || selection_->Contains(name); }
  void OnCheckpoint(const std::string& name, const CheckpointView&) override {
    Print(stdout, "{:<10}  {}\n", LevelName(record::LevelOf(name)), name);
  }

 private:
  std::optional<record::CheckpointSelection> selection_;  // none: every one
};

}  // namespace

int ListCheckpoints(const GenerateOptions& options, const DebugOptions& debug, const CancelFlag& cancel) {
  // The names depend on the model, the steps, guidance and the number of pictures only: the smallest ones
  // pass them all.
  const Pipeline pipeline(FindModel(options.model),
                          {.threads = options.machine.threads, .device = Device::kCpu});
  GenerateRequest request;
  const Image small{32, 32, std::vector<uint8_t>(32 * 32 * 3, 128)};
  request.width = request.height = 32;
  if (options.edit)
    request.input_images.assign(std::max<size_t>(1, options.Files("input_images").size()), small);
  if (!options.Files("init_image").empty()) request.init_image = small;
  if (!options.Files("mask").empty()) request.mask = GreyImage{32, 32, std::vector<uint8_t>(32 * 32, 255)};
  if (options.edit && request.mask) request.width = request.height = std::nullopt;
  request.steps = options.request.steps.value_or(1);
  request.cfg = options.request.cfg;
  NamePrinter printer(debug);
  pipeline.Generate(request, {.on_progress = {}, .cancel = &cancel, .checkpoints = &printer});
  return 0;
}

}  // namespace qwen_image::cli
