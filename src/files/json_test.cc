#include "files/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "files/testing.h"

namespace qwen_image {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string JsonMessage(std::string_view text) {
  return MessageOf(ErrorKind::kBadInput, [&] { ParseJson(text, "config.json"); });
}

TEST(ParseJson, ReadsEveryKindOfValue) {
  const std::string_view text =
      R"( {"a": [1, -2, 2.5, true, null, [], {}], "b": {"a": "é\u00e9"}, "": 18446744073709551615} )";
  EXPECT_EQ(ParseJson(text, "t"), Json::parse(text));
  EXPECT_EQ(ParseJson("7", "t"), Json(7));
  EXPECT_TRUE(ParseJson("7", "t").is_number_unsigned());
}

TEST(ParseJson, ReadsTheModelsFiles) {
  const std::filesystem::path tiny = std::filesystem::path(QWEN_IMAGE_SOURCE_DIR) / "models/tiny";
  for (const char* name : {"model_index.json", "tokenizer/tokenizer.json", "transformer/config.json"}) {
    EXPECT_EQ(ReadJsonFile(tiny / name), Json::parse(ReadBytes(tiny / name))) << name;
  }
}

TEST(ParseJson, DuplicateKeysAreRefusedWithTheirPlace) {
  EXPECT_THAT(
      JsonMessage("{\"x\": {\"a\": 1,\n \"a\": 2}}"),
      AllOf(HasSubstr("config.json"), HasSubstr("\"a\" occurs twice"), HasSubstr("line 2, column 4")));
  EXPECT_EQ(ParseJson(R"({"a": {"a": 1}, "b": {"a": 1}})", "t").size(),
            2u);  // the same key elsewhere is fine
}

TEST(ParseJson, DepthIsBounded) {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_NO_THROW(ParseJson(nested(64), "t"));
  EXPECT_THAT(JsonMessage(nested(65)), HasSubstr("deeper than 64"));
  const std::string millions(10'000'000, '[');  // NOLINT(bugprone-string-constructor): that long on purpose
  EXPECT_THAT(JsonMessage(millions), HasSubstr("deeper than 64"));
}

TEST(ParseJson, TheNumberOfValuesIsBounded) {
  std::string text = "[0";
  for (int i = 0; i < 4'000'000; ++i) text += ",0";
  EXPECT_THAT(JsonMessage(text + "]"), HasSubstr("more than 4000000 values"));
}

TEST(ParseJson, BrokenTextIsRefusedWithItsPlace) {
  EXPECT_THAT(JsonMessage("{\"a\": 1,\n nope}"), HasSubstr("line 2, column 3"));
  EXPECT_THAT(JsonMessage("{} x"), HasSubstr("line 1, column 4"));
  EXPECT_THAT(JsonMessage(std::string_view("{}\0x", 4)), HasSubstr("NUL byte at line 1, column 3"));
  EXPECT_THAT(JsonMessage("{\"a\xff\": 1}"), HasSubstr("UTF-8"));
  EXPECT_THAT(JsonMessage("{\"a\": 1"), HasSubstr("line 1"));
  EXPECT_THAT(JsonMessage("{\"a\": 1e999}"), HasSubstr("1e999"));
  EXPECT_THAT(JsonMessage("[NaN]"), HasSubstr("line 1"));
  EXPECT_THAT(JsonMessage("{'a': 1}"), HasSubstr("line 1"));
  EXPECT_THAT(JsonMessage(""), HasSubstr("line 1"));
}

TEST(ParseJson, MessagesStayShortAndOnOneLine) {
  const std::string message = JsonMessage("[\"" + std::string(1'000'000, 'x'));
  EXPECT_LT(message.size(), 400u);
  EXPECT_EQ(JsonMessage("{\"a\nb\": 1}").find('\n'), std::string::npos);
}

TEST(ReadJsonFile, ChecksTheSize) {
  const TempFolder folder;
  const auto path = folder.Write("a.json", "[1, 2]");
  EXPECT_EQ(ReadJsonFile(path, 6).size(), 2u);
  EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [&] { ReadJsonFile(path, 5); }),
              HasSubstr("a.json has 6 bytes"));
  const auto empty = folder.Write("b.json", "");
  EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [&] { ReadJsonFile(empty); }), HasSubstr("b.json is empty"));
}

}  // namespace
}  // namespace qwen_image
