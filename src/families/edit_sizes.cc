#include "families/edit_sizes.h"

#include <cmath>

#include "core/fail.h"

namespace qwen_image {
namespace {

double Quotient(int64_t a, int64_t b) { return static_cast<double>(a) / static_cast<double>(b); }

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
         "{:.4g} times as wide as high, it cannot be edited: at {} pixels it would be {:.0f}x{:.0f}. Cut it "
         "to "
         "a less extreme shape",
         ratio, target_area, width, height);
  }
  return {static_cast<int64_t>(columns) * kMultiple, static_cast<int64_t>(rows) * kMultiple};
}

EditInputSizes SizesOf(ImageSize input, const EditAreas& areas) {
  if (input.width < 1 || input.height < 1) {
    Fail(ErrorKind::kUsage, "an input picture of {}x{} has no pixels", input.width, input.height);
  }
  const double ratio = Quotient(input.width, input.height);
  try {
    const ImageSize vae = CalculateDimensions(areas.vae_area, ratio);
    return {input, areas.condition_area ? CalculateDimensions(*areas.condition_area, ratio) : vae, vae};
  } catch (const Error& error) {
    Fail(error.kind(), "the picture of {}x{}: {}", input.width, input.height, error.message());
  }
}

}  // namespace qwen_image
