#include "pipeline/edit_sizes.h"

#include <cmath>

#include "core/fail.h"

namespace qwen_image {
namespace {

double Quotient(int64_t a, int64_t b) { return static_cast<double>(a) / static_cast<double>(b); }

EditInputSizes SizesOf(ImageSize input, const EditAreas& areas) {
  if (input.width < 1 || input.height < 1) {
    Fail(ErrorKind::kUsage, "an input picture of {}x{} has no pixels", input.width, input.height);
  }
  const double ratio = Quotient(input.width, input.height);
  const ImageSize vae = CalculateDimensions(areas.vae_area, ratio);
  return {input, areas.condition_area ? CalculateDimensions(*areas.condition_area, ratio) : vae, vae};
}

// The pipelines cut a requested size down to whole tokens.
ImageSize WholeTokens(ImageSize size) {
  const ImageSize whole = {size.width / kVaeScaleFactor * kVaeScaleFactor,
                           size.height / kVaeScaleFactor * kVaeScaleFactor};
  if (whole.width < kVaeScaleFactor || whole.height < kVaeScaleFactor) {
    Fail(ErrorKind::kUsage, "the size {}x{} is too small: sides need at least {} pixels", size.width,
         size.height, kVaeScaleFactor);
  }
  return whole;
}

}  // namespace

ImageSize CalculateDimensions(int64_t target_area, double ratio) {
  constexpr int64_t kMultiple = 32;
  constexpr double kMaxSide = 1 << 20;
  // In the reference's order. nearbyint rounds halves to even, as Python does.
  const double width = std::sqrt(static_cast<double>(target_area) * ratio);
  const double height = width / ratio;
  const double columns = std::nearbyint(width / kMultiple), rows = std::nearbyint(height / kMultiple);
  if (!(columns >= 1 && rows >= 1 && columns <= kMaxSide / kMultiple && rows <= kMaxSide / kMultiple)) {
    Fail(ErrorKind::kBadInput,
         "a picture {:.4g} times as wide as high cannot be edited: at {} pixels it would be {:.0f}x{:.0f}. "
         "Cut "
         "it to a less extreme shape",
         ratio, target_area, width, height);
  }
  return {static_cast<int64_t>(columns) * kMultiple, static_cast<int64_t>(rows) * kMultiple};
}

EditSizes PlanEditSizes(const EditSizeRequest& request) {
  if (request.inputs.empty()) Fail(ErrorKind::kUsage, "an edit needs at least one input picture");
  EditSizes plan;
  for (const ImageSize& input : request.inputs) plan.inputs.push_back(SizesOf(input, request.areas));
  const EditInputSizes& edited = plan.edited();
  plan.working = WholeTokens(request.size.value_or(edited.vae));
  plan.output = request.keep_size ? edited.input : plan.working;
  plan.scale_x = Quotient(plan.working.width, edited.input.width);
  plan.scale_y = Quotient(plan.working.height, edited.input.height);
  const double output_x = Quotient(plan.output.width, edited.input.width);
  const double output_y = Quotient(plan.output.height, edited.input.height);
  plan.stretch_percent = 100 * (output_x / output_y - 1);
  plan.same_grid = plan.working == edited.vae;
  return plan;
}

}  // namespace qwen_image
