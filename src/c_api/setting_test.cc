// Settings by their names.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>
#include <string>

#include "c_api/handles.h"
#include "c_api/testing.h"
#include "qwen_image/c_api.h"

namespace qwen_image {
namespace {

TEST(CSettings, AreSetByTheirNames) {
  const RequestHandle request = SmallRequest();
  EXPECT_EQ(qwen_image_request_set(request.get(), "vae_tiling", "on"), QWEN_IMAGE_OK);
  EXPECT_EQ(request->request.vae_tiling, GenerateRequest::Tiling::kOn);
  EXPECT_EQ(qwen_image_request_set(request.get(), "max_sequence_length", "9"), QWEN_IMAGE_OK);
  EXPECT_EQ(request->request.max_sequence_length, 9);
  EXPECT_EQ(qwen_image_request_set(request.get(), "outpaint", "1,2,3,4"), QWEN_IMAGE_OK);
  EXPECT_EQ(request->request.outpaint.right, 3);
  EXPECT_EQ(qwen_image_request_set_number(request.get(), "cfg", 2.5), QWEN_IMAGE_OK);
  EXPECT_EQ(request->request.cfg, 2.5);
  EXPECT_EQ(qwen_image_request_set_number(request.get(), "seed", 9007199254740992.0), QWEN_IMAGE_OK);
  EXPECT_EQ(request->request.seed, uint64_t{1} << 53);
  EXPECT_EQ(qwen_image_request_set_number(request.get(), "blend", 0), QWEN_IMAGE_OK);
  EXPECT_FALSE(request->request.blend);
}

TEST(CSettings, ATextMayHoldNul) {
  const RequestHandle request = SmallRequest();
  EXPECT_EQ(qwen_image_request_set_text(request.get(), "prompt", "a\0b", 3), QWEN_IMAGE_OK);
  EXPECT_EQ(request->request.prompt, std::string("a\0b", 3));
  EXPECT_EQ(qwen_image_request_set_text(request.get(), "seed", "123", 2), QWEN_IMAGE_OK);
  EXPECT_EQ(request->request.seed, 12u);
  EXPECT_EQ(qwen_image_request_set_text(request.get(), "prompt", "a", -1), QWEN_IMAGE_USAGE);
  EXPECT_EQ(qwen_image_request_set_text(request.get(), "prompt", nullptr, 0), QWEN_IMAGE_USAGE);
}

TEST(CSettings, Refusals) {
  const RequestHandle request = SmallRequest();
  EXPECT_EQ(qwen_image_request_set(request.get(), "stpes", "4"), QWEN_IMAGE_USAGE);
  EXPECT_STREQ(qwen_image_last_error(), "there is no setting \"stpes\"; see qwen_image_setting_name");
  EXPECT_EQ(qwen_image_request_set(request.get(), "steps", "four"), QWEN_IMAGE_USAGE);
  EXPECT_STREQ(qwen_image_last_error(), "steps must be a whole number from 1 to 1000, not \"four\"");
  EXPECT_EQ(qwen_image_request_set(request.get(), "mask", "mask.png"), QWEN_IMAGE_USAGE);
  EXPECT_EQ(qwen_image_request_set_number(request.get(), "steps", 2.5), QWEN_IMAGE_USAGE);
  EXPECT_STREQ(qwen_image_last_error(), "steps must be a whole number from 1 to 1000, not 2.5");
  EXPECT_EQ(qwen_image_request_set_number(request.get(), "seed", -1), QWEN_IMAGE_USAGE);
  EXPECT_EQ(qwen_image_request_set_number(request.get(), "prompt", 1), QWEN_IMAGE_USAGE);
  for (const char* name : {"steps", static_cast<const char*>(nullptr)}) {
    EXPECT_EQ(qwen_image_request_set(nullptr, name, "4"), QWEN_IMAGE_USAGE);
    EXPECT_EQ(qwen_image_request_set_number(nullptr, name, 4), QWEN_IMAGE_USAGE);
    EXPECT_EQ(qwen_image_request_set(request.get(), name, nullptr), QWEN_IMAGE_USAGE);
  }
}

TEST(CSettings, AreListed) {
  std::set<std::string> names;
  std::map<std::string, std::string> kinds;
  for (int64_t i = 0; i < qwen_image_setting_count(); ++i) {
    names.insert(qwen_image_setting_name(i));
    kinds[qwen_image_setting_name(i)] = qwen_image_setting_kind(i);
    EXPECT_STREQ(qwen_image_setting_choices(i),
                 std::strcmp(qwen_image_setting_kind(i), "choice") == 0 ? "auto, on, off" : "");
    EXPECT_GT(std::strlen(qwen_image_setting_help(i)), 5u);
  }
  EXPECT_TRUE(names.contains("step_cache") && names.contains("resume_folder"));
  EXPECT_EQ(kinds["prompt"], "text");
  EXPECT_EQ(kinds["blend"], "truth");
  EXPECT_EQ(kinds["steps"], "whole");
  EXPECT_EQ(kinds["seed"], "seed");
  EXPECT_EQ(kinds["strength"], "number");
  EXPECT_EQ(kinds["sigmas"], "numbers");
  EXPECT_EQ(kinds["vae_tiling"], "choice");
  EXPECT_EQ(kinds["outpaint"], "margins");
  EXPECT_EQ(kinds["resume_folder"], "path");
  EXPECT_EQ(kinds["latents"], "latents");
  EXPECT_EQ(kinds["input_images"], "pictures");
  EXPECT_EQ(kinds["init_image"], "picture");
  EXPECT_EQ(kinds["mask"], "mask");
  for (const int64_t none : {int64_t{-1}, qwen_image_setting_count()}) {
    EXPECT_STREQ(qwen_image_setting_name(none), "");
    EXPECT_STREQ(qwen_image_setting_help(none), "");
    EXPECT_STREQ(qwen_image_setting_kind(none), "");
    EXPECT_STREQ(qwen_image_setting_choices(none), "");
  }
}

}  // namespace
}  // namespace qwen_image
