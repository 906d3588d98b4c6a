#include "server/api/job_pictures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "files/base64.h"
#include "files/npy.h"
#include "files/testing.h"
#include "server/api/job_fields.h"

namespace qwen_image::api {
namespace {

using testing::HasSubstr;

jobs::Request Parse(Json body) {
  static const Pipeline pipeline(ModelFiles(QWEN_IMAGE_SOURCE_DIR "/models/tiny"));
  body["prompt"] = "a red circle";
  return ParseJobRequest(body, pipeline);
}

TEST(JobPictures, NoiseOfOnesOwn) {
  const TempFolder folder;
  const std::vector<float> noise(4 * 64, 0.5f);
  WriteNpy(folder.path() / "noise.npy", noise.data(), {1, 4, 64});
  const std::string file = EncodeBase64(ReadBytes(folder.path() / "noise.npy"));
  const jobs::Request job = Parse({{"latents", file}, {"size", "32x32"}});
  EXPECT_EQ(job.request.latents->shape, (std::vector<int64_t>{1, 4, 64}));
  EXPECT_EQ(job.request.latents->values, noise);
  const auto blamed = [](const Json& fields) {
    try {
      Parse(fields);
    } catch (const FieldError& error) {
      return error.field() + ": " + error.message();
    }
    return std::string("(not refused)");
  };
  EXPECT_THAT(blamed({{"latents", file}, {"size", "64x32"}}), HasSubstr("the initial latents have shape"));
  EXPECT_THAT(blamed({{"latents", EncodeBase64("no array")}}), testing::StartsWith("latents: "));
  EXPECT_THAT(blamed({{"latents", file.substr(0, file.size() / 2)}}), testing::StartsWith("latents: "));
  EXPECT_THAT(blamed({{"latents", 5}}),
              HasSubstr("latents must be an array of floats (.npy): its file as base64"));
}

TEST(JobPictures, NamesAreThoseOfTheRequest) {
  JobPictures pictures;
  pictures.names["init_image"] = "image";
  EXPECT_EQ(pictures.NameOf("init_image"), "image");
  EXPECT_EQ(pictures.NameOf("mask"), "mask");
}

}  // namespace
}  // namespace qwen_image::api
