#include "families/qwen_image/recognized_variant.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "files/testing.h"

namespace qwen_image {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Variant, IsToldByTheIndexOrByZeroCondT) {
  const auto tell = [](const char* pipeline, bool zero_cond_t, const char* asked = "") {
    const ModelParts parts{.root = "m", .pipeline_class = pipeline, .transformer = "m/transformer"};
    return NameOf(RecognizeVariant(parts, zero_cond_t, asked).variant);
  };
  EXPECT_EQ(tell("QwenImagePipeline", false), "qwen-image");
  EXPECT_EQ(tell("QwenImageEditPipeline", false), "edit");
  EXPECT_EQ(tell("QwenImageEditPlusPipeline", false), "edit-2509");
  EXPECT_EQ(tell("QwenImageEditPlusPipeline", true), "edit-2511");
  EXPECT_EQ(tell("", true), "edit-2511");
  EXPECT_EQ(tell("", false), "");
  EXPECT_EQ(tell("", false, "edit"), "edit");
  EXPECT_EQ(tell("QwenImageEditPlusPipeline", false, "edit-2511"), "edit-2511");
  EXPECT_THAT(MessageOf(ErrorKind::kUsage, [&] { tell("", true, "edit"); }),
              AllOf(HasSubstr("the variant edit contradicts"), HasSubstr("edit-2511")));
  EXPECT_THAT(MessageOf(ErrorKind::kUsage, [&] { tell("QwenImagePipeline", false, "edit"); }),
              HasSubstr("which say qwen-image"));
  EXPECT_THAT(MessageOf(ErrorKind::kUsage, [&] { tell("", false, "edit-2512"); }),
              HasSubstr("\"edit-2512\" is not a variant; there are qwen-image, edit, edit-2509, edit-2511"));
  // Another folder's index says nothing about a transformer from elsewhere.
  EXPECT_EQ(RecognizeVariant({.root = "m", .pipeline_class = "QwenImagePipeline", .transformer = "x.gguf"},
                             false, "")
                .variant,
            Variant::kUnknown);
}

TEST(Variant, AModelMaySayThatItServesSeveralPipelines) {
  const ModelParts parts{.root = "m", .pipeline_class = "QwenImagePipeline", .transformer = "m/transformer"};
  const std::vector<std::string> both = {"qwen-image", "edit-2509"};
  EXPECT_EQ(RecognizeVariant(parts, false, "", both).variant, Variant::kTextToImage);
  EXPECT_EQ(RecognizeVariant(parts, false, "", both).edit, Variant::kEdit2509);
  EXPECT_EQ(RecognizeVariant(parts, false, "", {}).edit, Variant::kUnknown);
  EXPECT_EQ(RecognizeVariant(parts, false, "edit-2509", both).variant, Variant::kEdit2509);
  EXPECT_THAT(MessageOf(ErrorKind::kUsage, [&] { RecognizeVariant(parts, false, "edit-2511", both); }),
              HasSubstr("contradicts"));
  const ModelParts edit{
      .root = "m", .pipeline_class = "QwenImageEditPipeline", .transformer = "m/transformer"};
  EXPECT_EQ(RecognizeVariant(edit, false, "").edit, Variant::kEdit);
}

}  // namespace
}  // namespace qwen_image
