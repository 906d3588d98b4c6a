// Files written by the official package, and what it reads from them: tools/reference/gguf_goldens.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "core/block_format.h"
#include "files/gguf.h"
#include "files/safetensors.h"
#include "files/testing.h"

namespace qwen_image {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Optional;

const std::filesystem::path kGoldens = std::filesystem::path(QWEN_IMAGE_SOURCE_DIR) / "tests/goldens/gguf";

TEST(GgufGolden, EveryFormatHasTheBitsOfTheReference) {
  const GgufFile file(kGoldens / "all_types.gguf");
  const SafetensorsFile expected(kGoldens / "all_types.safetensors");
  EXPECT_EQ(expected.tensors().size(), 24u);
  for (const auto& [name, values] : expected.tensors()) {
    ASSERT_TRUE(file.tensors().contains(name)) << name;
    const StoredTensor& stored = file.tensors().at(name);
    EXPECT_EQ(stored.shape, values.shape) << name;
    const BlockFormat* format = FindBlockFormat(NameOf(stored.dtype));
    ASSERT_NE(format, nullptr) << NameOf(stored.dtype);
    const int64_t blocks = ElementCount(stored.shape) / format->values;
    ASSERT_EQ(stored.bytes.size(), static_cast<size_t>(blocks * format->bytes)) << name;
    std::vector<float> decoded(values.bytes.size() / sizeof(float));
    format->decode(stored.bytes.data(), blocks, decoded.data());
    for (size_t i = 0; i < decoded.size(); ++i) {
      uint32_t bits;
      std::memcpy(&bits, values.bytes.data() + 4 * i, 4);
      ASSERT_EQ(std::bit_cast<uint32_t>(decoded[i]), bits)
          << name << '[' << i << "]: " << decoded[i] << " for " << std::bit_cast<float>(bits);
    }
  }
}

TEST(GgufGolden, EveryDecodedFormatIsCovered) {
  const GgufFile file(kGoldens / "all_types.gguf");
  const SafetensorsFile expected(kGoldens / "all_types.safetensors");
  for (uint32_t number = 0; const BlockFormat* type = FindGgmlType(number); ++number) {
    if (!type->decode) continue;
    EXPECT_TRUE(std::any_of(file.tensors().begin(), file.tensors().end(), [&](const auto& tensor) {
      return tensor.second.dtype == type->dtype && expected.tensors().contains(tensor.first);
    })) << type->name;
  }
}

TEST(GgufGolden, TypesThatAreNotDecodedAreListed) {
  const GgufFile file(kGoldens / "all_types.gguf");
  int unread = 0;
  for (const auto& [name, tensor] : file.tensors()) {
    if (!name.starts_with("unread.")) continue;
    EXPECT_EQ("unread." + std::string(NameOf(tensor.dtype)), name);
    EXPECT_EQ(FindBlockFormat(NameOf(tensor.dtype)), nullptr) << name;
    ++unread;
  }
  EXPECT_EQ(unread, 16);
}

TEST(GgufGolden, SizesOfAllTypes) {
  const GgufFile file(kGoldens / "all_types.gguf");
  const std::vector<std::string> names = file.StringArray("layout.names").value();
  const std::vector<int64_t> bytes = file.IntArray("layout.bytes").value();
  ASSERT_EQ(names.size(), file.tensors().size());
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(file.tensors().at(names[i]).bytes.size(), static_cast<size_t>(bytes[i])) << names[i];
  }
}

TEST(GgufGolden, ShapesAreTorchs) {
  const GgufFile file(kGoldens / "all_types.gguf");
  EXPECT_THAT(file.tensors().at("plain.I8").shape, ElementsAre(2, 2, 7));
  EXPECT_THAT(file.tensors().at("random.Q4_K").shape, ElementsAre(2, 768));
  EXPECT_THAT(file.tensors().at("folded.weight").shape, ElementsAre(6, 2, 2, 4, 4));  // more than ggml's four
}

TEST(GgufGolden, SingleValuesAsText) {
  const GgufFile file(kGoldens / "all_types.gguf");
  const std::pair<const char*, const char*> values[] = {{"general.architecture", "qwen_image"},
                                                        {"scalar.uint8", "200"},
                                                        {"scalar.int8", "-100"},
                                                        {"scalar.uint16", "60000"},
                                                        {"scalar.int16", "-30000"},
                                                        {"scalar.uint32", "4000000000"},
                                                        {"scalar.int32", "-2000000000"},
                                                        {"scalar.uint64", "18446744073709551615"},
                                                        {"scalar.int64", "-9223372036854775808"},
                                                        {"scalar.float32", "1e-06"},
                                                        {"scalar.float64", "0.1"},
                                                        {"scalar.bool", "true"},
                                                        {"scalar.bool_false", "false"},
                                                        {"scalar.string", "Grüße, 世界\n"}};
  for (const auto& [key, text] : values) EXPECT_EQ(file.metadata().at(key), text);
  EXPECT_EQ(file.metadata().size(), std::size(values));
}

TEST(GgufGolden, ArraysWhenTheyAreAskedFor) {
  const GgufFile file(kGoldens / "all_types.gguf");
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min(), kMax = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(file.StringArray("array.string"), Optional(ElementsAre("Ġthe", "", "世界")));
  EXPECT_THAT(file.IntArray("array.uint8"), Optional(ElementsAre(0, 255)));
  EXPECT_THAT(file.IntArray("array.int8"), Optional(ElementsAre(-128, 127)));
  EXPECT_THAT(file.IntArray("array.uint16"), Optional(ElementsAre(0, 65535)));
  EXPECT_THAT(file.IntArray("array.int16"), Optional(ElementsAre(-32768, 32767)));
  EXPECT_THAT(file.IntArray("array.uint32"), Optional(ElementsAre(0, 4294967295)));
  EXPECT_THAT(file.IntArray("array.int32"), Optional(ElementsAre(-2147483648LL, 2147483647)));
  EXPECT_THAT(file.IntArray("array.uint64"), Optional(ElementsAre(0, kMax)));
  EXPECT_THAT(file.IntArray("array.int64"), Optional(ElementsAre(kMin, kMax)));
  EXPECT_EQ(file.StringArray("array.missing"), std::nullopt);
  EXPECT_EQ(file.IntArray("array.missing"), std::nullopt);
}

TEST(GgufGolden, ArraysOfAnotherKind) {
  const GgufFile file(kGoldens / "all_types.gguf");
  const auto int_message = [&](const char* key) {
    return MessageOf(ErrorKind::kBadInput, [&] { file.IntArray(key); });
  };
  for (const char* key : {"array.string", "array.bool", "array.float32", "array.float64", "array.nested"}) {
    EXPECT_THAT(int_message(key), HasSubstr("an array of integers is expected"));
  }
  EXPECT_THAT(int_message("scalar.int32"), HasSubstr("\"scalar.int32\" is a single value"));
  EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [&] { file.StringArray("array.uint8"); }),
              HasSubstr("is an array of type uint8, an array of strings is expected"));
}

TEST(GgufGolden, AnotherAlignment) {
  const GgufFile file(kGoldens / "alignment.gguf");
  EXPECT_EQ(file.metadata().at("general.alignment"), "256");
  for (const char* name : {"a", "b", "c"}) {
    const StoredTensor& tensor = file.tensors().at(name);
    EXPECT_EQ((tensor.bytes.data() - file.file().bytes().data()) % 256, 0) << name;
    for (size_t i = 0; i < tensor.bytes.size() / 4; ++i) {
      float value;
      std::memcpy(&value, tensor.bytes.data() + 4 * i, 4);
      EXPECT_EQ(value, static_cast<float>(i)) << name;
    }
  }
}

TEST(GgufGolden, CutAnywhereItIsRefused) {
  const std::string whole = ReadBytes(kGoldens / "all_types.gguf");
  const TempFolder folder;
  for (size_t size = 0; size + 32 < whole.size(); size += 64) {  // the last tensor's padding may be missing
    const auto path = folder.Write("w.gguf", std::string_view(whole).substr(0, size));
    MessageOf(ErrorKind::kBadInput, [&] { GgufFile file(path); });
  }
}

}  // namespace
}  // namespace qwen_image
