#include "prove/precisions.h"

#include <algorithm>
#include <cmath>

#include "draw/opened_model.h"
#include "files/scratch_folder.h"
#include "parity/compare/checker.h"
#include "parity/compare/image.h"
#include "prove/blocks.h"
#include "prove/drawing.h"

namespace qwen_image::prove {
namespace {

constexpr const char* kLevel = "blocks";
constexpr int64_t kSteps = 4, kQuickSteps = 2;

GenerateRequest RequestFor(const Pipeline& pipeline, const Options& options) {
  GenerateRequest request;
  request.prompt = kPlainPrompt;
  std::tie(request.width, request.height) = options.size.value_or(SmallSize(pipeline));
  request.steps = options.steps ? options.steps : StepsFor(pipeline, options.quick ? kQuickSteps : kSteps);
  request.cfg = 1;  // the second pass of guidance is the same code
  return request;
}

// Passes all on, and notes where values first are not finite: a picture of such is an error, so nobody
// compares the tensors then.
class FiniteCheck : public CheckpointSink {
 public:
  explicit FiniteCheck(CheckpointSink& inner) : inner_(inner) {}

  bool Wants(std::string_view name) const override { return inner_.Wants(name); }
  void OnCheckpoint(const std::string& name, const CheckpointView& view) override {
    const auto* values = std::get_if<float*>(&view.data);
    if (values && broken_.empty() &&
        !std::all_of(*values, *values + ElementCount(view.shape), [](float v) { return std::isfinite(v); }))
      broken_ = name;
    inner_.OnCheckpoint(name, view);
  }
  const std::string& broken() const { return broken_; }

 private:
  CheckpointSink& inner_;
  std::string broken_;
};

// Throws what drawing throws, with the place where it began.
Drawn DrawFinite(const Pipeline& pipeline, const GenerateRequest& request, const std::string& what,
                 const Watch& watch, CheckpointSink& sink) {
  FiniteCheck finite(sink);
  try {
    return Draw(pipeline, request, what, watch, &finite);
  } catch (const Error& error) {
    if (finite.broken().empty()) throw;
    throw Error(error.kind(),
                fmt::format("{}: NaN or infinity, first in {}; {}", what, finite.broken(), error.message()));
  }
}

record::RunSettings SettingsOf(const Picture& picture) {
  return {.prompt = picture.prompt,
          .negative_prompt = picture.negative_prompt,
          .width = picture.width,
          .height = picture.height,
          .steps = picture.steps,
          .cfg = picture.cfg,
          .seed = picture.seed};
}

std::string Judgement(const Comparisons& comparisons) {
  if (const std::string broken = FirstBroken(comparisons.accumulated); !broken.empty())
    return fmt::format("NaN or infinity, first in {}", broken);
  if (const compare::TensorComparison* first = comparisons.isolated.first_divergence())
    return fmt::format("computed from the same inputs, fast is too far from exact, first in {}", first->name);
  if (!comparisons.isolated.passed()) return "the two runs did not compute the same tensors";
  return "";
}

}  // namespace

void ComparePrecisions(const ModelFiles& model, const Pipeline& fast, const Options& options,
                       const Watch& watch, Json& part) {
  const GenerateRequest request = RequestFor(fast, options);
  fast.Check(request);
  const ScratchFolder folder(options.folder, ".tensors-");
  Drawn exact_drawn;
  {
    const Pipeline exact(model, {.threads = options.threads,
                                 .check_memory = options.check_memory,
                                 .precision = Precision::kExact,
                                 .device = Device::kCpu});
    record::RunWriter recorder(folder.path(), record::CheckpointSelection(kLevel));
    exact_drawn = DrawFinite(exact, request, "exact", watch, recorder);
    recorder.Finish(SettingsOf(exact_drawn.picture), exact.threads(), "cpu");
  }
  const record::ReferenceRun reference(folder.path());
  Comparisons found;
  compare::RunChecker alone(reference, record::CheckpointSelection(kLevel), {}, nullptr);
  const Drawn fast_drawn = DrawFinite(fast, request, "fast, by itself", watch, alone);
  found.accumulated = alone.comparison();
  const bool identical = Identical(found.accumulated);
  if (identical) {
    found.isolated = found.accumulated;
  } else {
    compare::RunChecker substituted(reference, record::CheckpointSelection(kLevel), {"*"}, nullptr);
    Draw(fast, request, "fast, every block on the tensors of exact", watch, &substituted);
    found.isolated = substituted.comparison();
  }
  for (compare::TensorComparison& tensor : found.isolated.tensors)
    compare::HoldToNmse(compare::kRoundedBlockNmse, tensor);
  const compare::ImageComparison picture =
      compare::CompareImages(compare::ToFloatImage(exact_drawn.picture.image()),
                             compare::ToFloatImage(fast_drawn.picture.image()), 255);
  const Model& opened = *draw::ModelOf(fast).model;
  const CheckpointNames& names = *opened.vocabulary().checkpoints;
  part["identical"] = identical;
  part["limit"] = compare::kRoundedBlockNmse;
  part["isolated"] = Verdict(found.isolated);
  part["blocks"] = BlockTable(names, found, opened.published_size() ? names.known_range : nullptr);
  part["steps"] = StepTable(found.accumulated);
  part["picture"] = {{"psnr", picture.psnr}, {"ssim", picture.ssim}, {"max_levels", picture.max_levels}};
  part["drawn"] = {{"exact", exact_drawn.facts}, {"fast", fast_drawn.facts}};
  const std::string why = Judgement(found);
  part["why"] = why;
  part["status"] = why.empty() ? kPassed : kFailed;
}

}  // namespace qwen_image::prove
