#include "weights/model_defaults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "files/testing.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

const fs::path kTiny = fs::path(QWEN_IMAGE_SOURCE_DIR) / "models/tiny";

TEST(ModelDefaults, AreThoseOfTheTinyModel) {
  const ModelDefaults defaults = ReadModelDefaults(kTiny);
  EXPECT_EQ(defaults.name, "tiny");
  EXPECT_EQ(defaults.width, 128);
  EXPECT_EQ(defaults.height, 128);
  EXPECT_EQ(defaults.steps, 20);
  EXPECT_EQ(defaults.cfg, 4.0);
  EXPECT_EQ(defaults.negative_prompt, " ");
  EXPECT_EQ(defaults.pipelines, (std::vector<std::string>{"qwen-image", "edit-2509"}));
  EXPECT_EQ(defaults.vae_area, 128 * 128);
  EXPECT_EQ(defaults.condition_area, 128 * 128);
}

TEST(ModelDefaults, AreOptional) {
  const TempFolder folder;
  EXPECT_FALSE(ReadModelDefaults(folder.path()).steps);
  folder.Write("qwen_image.json", R"({"steps": 8, "cfg": 1})");
  const ModelDefaults defaults = ReadModelDefaults(folder.path());
  EXPECT_EQ(defaults.steps, 8);
  EXPECT_EQ(defaults.cfg, 1.0);
  EXPECT_FALSE(defaults.name || defaults.width || defaults.height || defaults.negative_prompt);
}

TEST(ModelDefaults, AreCheckedStrictly) {
  const TempFolder folder;
  const std::pair<const char*, const char*> cases[] = {
      {R"({"steps": 0})", "\"steps\" is 0, expected a whole number from 1"},
      {R"({"steps": -1})", "\"steps\" is -1"},
      {R"({"steps": 20.0})", "\"steps\" is 20.0"},
      {R"({"steps": "20"})", "\"steps\" is \"20\""},
      {R"({"steps": 18446744073709551615})", "\"steps\""},
      {R"({"steps": null})", "\"steps\" is null"},
      {R"({"width": 100})", "multiple of 16"},
      {R"({"height": 1000000})", "\"height\""},
      {R"({"cfg": -1})", "\"cfg\" is -1, expected a number from 0 to 100"},
      {R"({"cfg": "4"})", "\"cfg\""},
      {R"({"name": 3})", "\"name\" is 3, expected a string"},
      {R"({"negative_prompt": [1, 2]})", "\"negative_prompt\" is array"},
      {R"({"pipelines": "edit"})",
       "\"pipelines\" is \"edit\", expected a list of names out of qwen-image, edit"},
      {R"({"pipelines": ["edit", "paint"]})", "\"pipelines\" is \"paint\""},
      {R"({"vae_area": 10})", "\"vae_area\" is 10"},
      {R"({"condition_area": 1e9})", "\"condition_area\""},
      {R"({"stesp": 3})", "unknown key \"stesp\""},
      {"[]", "a JSON object is expected"},
      {"{", "not valid JSON"}};
  for (const auto& [text, message] : cases) {
    folder.Write("qwen_image.json", text);
    EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [&] { ReadModelDefaults(folder.path()); }),
                AllOf(HasSubstr("qwen_image.json"), HasSubstr(message)))
        << text;
  }
}

TEST(ModelDefaults, ALinkToNowhereIsAnError) {
  const TempFolder folder;
  fs::create_symlink("absent", folder.path() / "qwen_image.json");
  EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [&] { ReadModelDefaults(folder.path()); }),
              HasSubstr("cannot open"));
}

}  // namespace
}  // namespace qwen_image
