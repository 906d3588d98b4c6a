// Settings as text, as JSON and in records.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "options/json_form.h"
#include "options/python_form.h"
#include "options/record.h"
#include "options/text_form.h"

namespace qwen_image::options {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

GenerateRequest FromText(const char* name, std::string_view text) {
  GenerateRequest request;
  SetFromText(*FindField(name), text, name, request);
  return request;
}

std::string Refusal(const char* name, std::string_view text) {
  try {
    FromText(name, text);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return error.message();
  }
  ADD_FAILURE() << "not refused: " << name << " " << text;
  return "";
}

TEST(TextForm, EveryKind) {
  EXPECT_EQ(FromText("prompt", "a, b").prompt, "a, b");
  EXPECT_EQ(FromText("negative_prompt", "").negative_prompt, "");
  EXPECT_EQ(FromText("width", "-16").width, -16);  // which sizes are possible the model knows
  EXPECT_EQ(FromText("max_sequence_length", "7").max_sequence_length, 7);
  EXPECT_EQ(FromText("cfg", "2.5").cfg, 2.5);
  EXPECT_EQ(FromText("step_cache", ".1").step_cache, 0.1);
  EXPECT_EQ(FromText("seed", "18446744073709551615").seed, UINT64_MAX);
  EXPECT_THAT(FromText("sigmas", "1,0.9,.5").sigmas, ElementsAre(1, 0.9, 0.5));
  EXPECT_EQ(FromText("outpaint", "1,2,3,4").outpaint.bottom, 4);
  EXPECT_EQ(FromText("vae_tiling", "on").vae_tiling, GenerateRequest::Tiling::kOn);
  EXPECT_TRUE(FromText("keep_size", "true").keep_size);
  EXPECT_FALSE(FromText("blend", "0").blend);
  EXPECT_EQ(FromText("resume_folder", "a folder").resume_folder, "a folder");
}

TEST(TextForm, Refusals) {
  EXPECT_EQ(Refusal("steps", "2.5"), "steps must be a whole number from 1 to 1000, not \"2.5\"");
  EXPECT_THAT(Refusal("width", "99999999999999999999"), HasSubstr("width must be a whole number"));
  EXPECT_THAT(Refusal("width", ""), HasSubstr("width must be a whole number"));
  EXPECT_THAT(Refusal("width", "-"), HasSubstr("width must be a whole number"));
  EXPECT_THAT(Refusal("steps", "010"), HasSubstr("without a leading zero"));
  for (const char* number : {"nan", "inf", "", "1,5", "x"})
    EXPECT_THAT(Refusal("cfg", number), HasSubstr("cfg must be a number from 0 to 1000"));
  EXPECT_THAT(Refusal("seed", "-2"), HasSubstr("\"-2\" is not a seed"));
  for (const char* margins : {"", "1,2,3", "1,2,3,4,5", "0,0,0,0", "1,2,3,x", "1,2,3,", "-1,0,0,0"})
    EXPECT_THAT(Refusal("outpaint", margins), HasSubstr("are not margins"));
  EXPECT_THAT(Refusal("sigmas", "1,"), HasSubstr("are not noise levels"));
  EXPECT_THAT(Refusal("vae_tiling", "maybe"), HasSubstr("vae_tiling must be auto, on, off, not \"maybe\""));
  EXPECT_THAT(Refusal("keep_size", "yes"), HasSubstr("keep_size must be true or false"));
  EXPECT_THAT(Refusal("prompt", "\xff"), HasSubstr("the prompt is not valid UTF-8: \"\\xff\""));
  EXPECT_THAT(Refusal("mask", "mask.png"), HasSubstr("cannot be given as text"));
}

// What a setting is as JSON it is again after it was read.
TEST(JsonForm, ThereAndBack) {
  GenerateRequest request{.prompt = "a",
                          .negative_prompt = "b",
                          .width = 64,
                          .height = 32,
                          .steps = 3,
                          .sigmas = {1, 0.5, 0.2},
                          .cfg = 2.5,
                          .seed = UINT64_MAX,
                          .outpaint = {1, 2, 3, 4},
                          .strength = 0.25,
                          .blend = false,
                          .keep_size = true,
                          .background = "white",
                          .max_sequence_length = 7,
                          .reference_special_tokens = true,
                          .vae_tiling = GenerateRequest::Tiling::kOff,
                          .step_cache = 0.1,
                          .resume_folder = "folder"};
  GenerateRequest again;
  for (const Field& field : Fields()) {
    if (IsData(field)) continue;
    EXPECT_FALSE(IsDefault(field, request)) << field.name << " needs a value in this test";
    EXPECT_EQ(SetFromJson(field, ToJson(field, request), {}, again), "") << field.name;
    EXPECT_EQ(ToJson(field, again), ToJson(field, request)) << field.name;
  }
}

TEST(JsonForm, WhatIsAllowedIsSaid) {
  GenerateRequest request;
  const auto allowed = [&](const char* name, const Json& value, const JsonRules& rules = {}) {
    return SetFromJson(*FindField(name), value, rules, request);
  };
  EXPECT_EQ(allowed("steps", 0), "a whole number from 1 to 1000");
  EXPECT_EQ(allowed("steps", 300, {.most = 200}), "a whole number from 1 to 200");
  EXPECT_EQ(allowed("steps", 20.0), "");
  EXPECT_EQ(allowed("width", 1e300), "a whole number from 1 to 9007199254740992");
  EXPECT_EQ(allowed("cfg", INFINITY), "a finite number");
  EXPECT_EQ(allowed("seed", -1), "a whole number from 0 to 2^64 - 1");
  EXPECT_EQ(allowed("seed", -1, {.seed_may_be_drawn = true}), "");
  EXPECT_EQ(allowed("seed", "random", {.seed_may_be_drawn = true}), "");
  EXPECT_EQ(allowed("seed", 1.5, {.seed_may_be_drawn = true}),
            "a whole number from 0 to 2^64 - 1, or -1 or \"random\"");
  EXPECT_EQ(allowed("sigmas", Json::array()), "a list of 1 to 1000 finite numbers");
  EXPECT_EQ(allowed("sigmas", {1, "0.5"}), "a list of 1 to 1000 finite numbers");
  EXPECT_EQ(allowed("sigmas", {1, INFINITY}), "a list of 1 to 1000 finite numbers");
  EXPECT_EQ(allowed("sigmas", {1, 0.5}, {.most = 1}), "a list of 1 to 1 finite numbers");
  EXPECT_EQ(allowed("vae_tiling", 1), "auto or on or off");
  EXPECT_THAT(allowed("outpaint", {1, 2, 3, 1.5}), HasSubstr("a list of four whole numbers"));
  EXPECT_EQ(allowed("blend", 1), "true or false");
  EXPECT_EQ(allowed("mask", "x"), "a picture");
}

TEST(Record, HoldsWhatIsDeclaredAndIsRead) {
  const GenerateRequest drawn{
      .prompt = "a", .negative_prompt = " ", .width = 64, .height = 32, .steps = 3, .cfg = 4};
  Json record;
  WriteRecord(drawn, record);
  EXPECT_FALSE(record.contains("step_cache"));
  EXPECT_FALSE(record.contains("blend"));
  EXPECT_FALSE(record.contains("resume_folder"));
  EXPECT_EQ(record["vae_tiling"], "auto");
  EXPECT_EQ(record["negative_prompt"], " ");

  GenerateRequest again{.seed = 9};
  NameSet given = {"seed"};
  ReadRecord(record, "here", given, again);
  EXPECT_EQ(again.width, 64);
  EXPECT_EQ(again.seed, 9u) << "what was given counts";
  EXPECT_TRUE(given.contains("steps"));
  record.erase("cfg");
  NameSet none;
  EXPECT_THROW(ReadRecord(record, "here", none, again), Error);
}

TEST(Record, OfOlderVersions) {
  const Json record = {{"prompt", "a"},    {"size", "as the input"}, {"steps", 3}, {"cfg", 4}, {"seed", 0},
                       {"no_blend", true}, {"outpaint", "0,16,0,16"}};
  GenerateRequest request;
  NameSet given;
  ReadRecord(record, "here", given, request);
  EXPECT_FALSE(request.blend);
  EXPECT_EQ(request.outpaint.top, 16);
  EXPECT_FALSE(request.width) << "it was made from a picture, whose size decides";
}

TEST(PythonForm, PositionsDoNotMove) {
  EXPECT_THAT(PythonParameters(), testing::StartsWith("        prompt: str,\n"
                                                      "        negative_prompt: str | None = None,\n"
                                                      "        width: int | None = None,\n"
                                                      "        height: int | None = None,\n"
                                                      "        steps: int | None = None,\n"
                                                      "        cfg: float | None = None,\n"
                                                      "        seed: int = 0,\n"
                                                      "        *,\n"));
  EXPECT_THAT(PythonParameters(), HasSubstr("        vae_tiling: str = \"auto\",\n"));
}

}  // namespace
}  // namespace qwen_image::options
