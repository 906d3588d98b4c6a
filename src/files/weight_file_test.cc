#include "files/weight_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "files/gguf.h"
#include "files/gguf_testing.h"
#include "files/safetensors.h"

namespace qwen_image {
namespace {

using ::testing::HasSubstr;

TEST(OpenWeightFile, TellsFormatsApartByContent) {
  const TempFolder folder;
  const auto gguf =
      OpenWeightFile(folder.Write("a.safetensors", GgufBytes().Tensor("t", {1}, 0, 0).Data("1234").Bytes()));
  EXPECT_NE(dynamic_cast<const GgufFile*>(gguf.get()), nullptr);
  EXPECT_TRUE(gguf->tensors().contains("t"));
  const auto safetensors = OpenWeightFile(folder.Write("b.gguf", SafetensorsBytes("{}", "")));
  EXPECT_NE(dynamic_cast<const SafetensorsFile*>(safetensors.get()), nullptr);
}

TEST(OpenWeightFile, NamesWhatIsNeither) {
  const TempFolder folder;
  const auto message = [&](std::string_view bytes) {
    return MessageOf(ErrorKind::kBadInput, [&] { OpenWeightFile(folder.Write("w.gguf", bytes)); });
  };
  EXPECT_THAT(message("version https://git-lfs.github.com/spec/v1"), HasSubstr("Git LFS pointer"));
  EXPECT_THAT(message(""), HasSubstr("0 bytes"));
  EXPECT_THAT(message("GGU"), HasSubstr("3 bytes"));
  EXPECT_THAT(message("GUFF and more"),
              HasSubstr("has the name of a GGUF file, but does not begin with \"GGUF\""));
  EXPECT_THAT(message("GGUF"), HasSubstr("the file ends within the header"));
  MessageOf(ErrorKind::kBadInput, [&] { OpenWeightFile(folder.path() / "missing.gguf"); });
}

}  // namespace
}  // namespace qwen_image
