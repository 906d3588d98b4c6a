#include "weights/model_name.h"

#include <gtest/gtest.h>

namespace qwen_image {
namespace {

TEST(ModelName, IsTheLastOfTheWay) {
  EXPECT_EQ(ModelName("/models/tiny"), "tiny");
  EXPECT_EQ(ModelName("models/tiny/"), "tiny");
  EXPECT_EQ(ModelName("tiny"), "tiny");
  ModelFiles parts;
  parts.transformer = "/models/transformer_q8_0.gguf";
  EXPECT_EQ(ModelName(parts), "transformer_q8_0.gguf");
}

TEST(ModelName, OfADownloadedModelIsThatOfItsRepository) {
  EXPECT_EQ(ModelName("/cache/models--owner--model/snapshots/0123"), "owner/model");
  EXPECT_EQ(ModelName("/cache/models--owner--a--b/snapshots/0123/"), "owner/a--b");
  for (const char* name :
       {"/x/models--only/snapshots/0123", "/x/models----/snapshots/0123", "/x/models--a--/snapshots/0123",
        "/x/other--a--b/snapshots/0123", "/x/models--a--b/0123"})
    EXPECT_EQ(ModelName(name), "0123") << name;
}

}  // namespace
}  // namespace qwen_image
