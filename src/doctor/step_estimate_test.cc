#include "families/step_estimate.h"

#include <gtest/gtest.h>

#include "convert/model.h"
#include "doctor/diagnosis.h"
#include "families/family.h"
#include "files/testing.h"

namespace qwen_image::doctor {
namespace {

const std::filesystem::path kTiny = std::filesystem::path(QWEN_IMAGE_SOURCE_DIR) / "models/tiny";

std::string ProductOf(const std::filesystem::path& model, Precision precision) {
  ThreadPool pool(1);
  const ModelParts parts = FindModelParts(model);
  const auto opened = FamilyFor(parts).Open(parts, model, {.precision = precision});
  const StepEstimate estimate(opened->denoiser(), pool);
  EXPECT_GT(estimate.Seconds({4, 4}), 0);
  EXPECT_GT(estimate.Seconds({8, 8}), estimate.Seconds({4, 4}));
  return estimate.product();
}

// Quantized models are drawn by 8-bit products unless exactness is asked for; plain ones never.
TEST(StepEstimate, TimesTheProductThatDraws) {
  const TempFolder folder;
  const auto quantized = folder.path() / "q8";
  convert::ConvertModel(kTiny, quantized, {.to = {.bits = 8}}, CancelFlag());
  EXPECT_EQ(ProductOf(quantized, Precision::kFast), std::string("int8"));
  EXPECT_EQ(ProductOf(quantized, Precision::kExact), std::string("fp32"));
  EXPECT_EQ(ProductOf(kTiny, Precision::kFast), std::string("fp32"));
  ThreadPool pool(1);
  EXPECT_EQ(Diagnose(quantized, pool, CancelFlag()).timed_product, "int8");
}

}  // namespace
}  // namespace qwen_image::doctor
