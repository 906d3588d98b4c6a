#include "a1111_routes.h"

#include <gmock/gmock.h>

#include "files/base64.h"
#include "files/image.h"
#include "routes_testing.h"

namespace qwen_image::server {
namespace {

using testing::HasSubstr;

class A1111Routes : public RouteTest {
 protected:
  HttpResponse Draw(const char* route, Json fields) {
    fields.emplace("steps", 1);
    fields.emplace("width", 32);
    fields.emplace("height", 32);
    return Ask(Post(std::string("/sdapi/v1/") + route, fields.dump()));
  }
  std::string RefusalOf(const char* route, const Json& fields) {
    const HttpResponse response = Draw(route, fields);
    EXPECT_EQ(response.status, 400) << response.body;
    const Json body = JsonOf(response);
    EXPECT_EQ(body["detail"], body["error"]["message"]);
    return body["detail"];
  }
  static RgbImage PictureOf(const Json& reply, size_t index) {
    return DecodeImage(*DecodeBase64(reply["images"][index].get<std::string>()), "reply").image;
  }
  static inline const std::string kPicture = EncodeBase64(EncodePng(PlainPicture(64, 64, 100)));
};

TEST_F(A1111Routes, OtherPathsAreNotTheirs) {
  for (const char* path :
       {"/", "/sdapi/v1/", "/sdapi/v1/extra-single-image", "/sdapi/v2/txt2img", "/sdapi/v1/txt2img/"})
    EXPECT_FALSE(A1111Route(Get(path), TinyPipeline(), jobs_)) << path;
}

TEST_F(A1111Routes, TextToImage) {
  const HttpResponse response = Draw("txt2img", {{"prompt", "a red circle"},
                                                 {"negative_prompt", "x"},
                                                 {"seed", 5},
                                                 {"cfg_scale", 1},
                                                 {"batch_size", 2},
                                                 {"n_iter", 1},
                                                 {"sampler_name", "Euler a"},
                                                 {"enable_hr", false},
                                                 {"styles", Json::array()},
                                                 {"denoising_strength", 0.7},
                                                 {"alwayson_scripts", Json::object()},
                                                 {"override_settings", Json::object()},
                                                 {"s_churn", 0}});
  ASSERT_EQ(response.status, 200) << response.body;
  const Json reply = JsonOf(response);
  ASSERT_EQ(reply["images"].size(), 2u);
  EXPECT_EQ(reply["parameters"]["batch_size"], 2);
  const Json info = Json::parse(reply["info"].get<std::string>());
  EXPECT_EQ(info["all_seeds"], Json::array({5, 6}));
  EXPECT_EQ(info["seed"], 5);
  EXPECT_EQ(info["steps"], 1);
  EXPECT_EQ(info["sampler_name"], "Euler");
  EXPECT_EQ(info["infotexts"].size(), 2u);
  EXPECT_THAT(
      info["infotexts"][1].get<std::string>(),
      HasSubstr(
          "a red circle\nNegative prompt: x\nSteps: 1, Sampler: Euler, CFG scale: 1, Seed: 6, Size: 32x32"));
  GenerateRequest request;
  request.prompt = "a red circle";
  request.negative_prompt = "x";
  request.width = request.height = 32;
  request.steps = 1;
  request.cfg = 1;
  request.seed = 6;
  EXPECT_EQ(PictureOf(reply, 1).pixels, TinyPipeline().Generate(request).rgb);
}

TEST_F(A1111Routes, ARandomSeedIsTold) {
  const Json reply = JsonOf(Draw("txt2img", {{"prompt", "x"}, {"seed", -1}}));
  EXPECT_EQ(Json::parse(reply["info"].get<std::string>())["seed"], jobs_.List().front().seed);
}

TEST_F(A1111Routes, ImageToImage) {
  const HttpResponse response = Draw("img2img", {{"prompt", "x"},
                                                 {"init_images", {"data:image/png;base64," + kPicture}},
                                                 {"denoising_strength", 0.5},
                                                 {"steps", 2}});
  ASSERT_EQ(response.status, 200) << response.body;
  const Json reply = JsonOf(response);
  EXPECT_EQ(PictureOf(reply, 0).width, 32);
  EXPECT_FALSE(reply["parameters"].contains("init_images"));
  EXPECT_EQ(jobs_.List().front().strength, 0.5);
  EXPECT_EQ(Draw("img2img", {{"prompt", "x"}, {"init_images", {kPicture}}, {"steps", 4}}).status, 200);
  EXPECT_EQ(jobs_.List().front().strength, 0.75);
}

TEST_F(A1111Routes, MasksAndInvertedMasks) {
  RgbImage left = PlainPicture(64, 64, 0);  // white on the left
  for (size_t i = 0; i < left.pixels.size(); ++i) left.pixels[i] = i / 3 % 64 < 32 ? 255 : 0;
  const std::string mask = EncodeBase64(EncodePng(left));
  for (const int invert : {0, 1}) {
    const HttpResponse response = Draw("img2img", {{"prompt", "x"},
                                                   {"init_images", {kPicture}},
                                                   {"mask", mask},
                                                   {"steps", 2},
                                                   {"width", 64},
                                                   {"height", 64},
                                                   {"denoising_strength", 1},
                                                   {"inpainting_mask_invert", invert}});
    ASSERT_EQ(response.status, 200) << response.body;
    const RgbImage drawn = PictureOf(JsonOf(response), 0);
    bool kept = true;
    for (int64_t y = 0; y < 64; ++y) {
      for (int64_t x = 0; x < 24; ++x)
        kept = kept && drawn.pixels[static_cast<size_t>((y * 64 + x + (invert ? 0 : 40)) * 3)] == 100;
    }
    EXPECT_TRUE(kept) << invert;
    EXPECT_NE(drawn.pixels, PlainPicture(64, 64, 100).pixels);
  }
}

TEST_F(A1111Routes, WhatCannotBeDoneIsRefused) {
  EXPECT_THAT(RefusalOf("txt2img", {{"enable_hr", true}}), HasSubstr("enable_hr is not offered"));
  EXPECT_THAT(RefusalOf("txt2img", {{"tiling", true}}), HasSubstr("tiling is not offered"));
  EXPECT_THAT(RefusalOf("txt2img", {{"styles", {"a"}}}), HasSubstr("styles is not offered"));
  EXPECT_THAT(RefusalOf("txt2img", {{"alwayson_scripts", {{"controlnet", 1}}}}),
              HasSubstr("alwayson_scripts is not offered"));
  EXPECT_THAT(RefusalOf("txt2img", {{"override_settings", {{"sd_model_checkpoint", "v1-5"}}}}),
              HasSubstr("the model \"v1-5\" is not here"));
  EXPECT_THAT(RefusalOf("txt2img", {{"override_settings", 5}}), HasSubstr("JSON object"));
  EXPECT_THAT(RefusalOf("txt2img", {{"batch_size", 4}, {"n_iter", 4}}),
              HasSubstr("batch_size times n_iter is 16; at most 10"));
  EXPECT_THAT(RefusalOf("txt2img", {{"batch_size", 1'000'000'000}}), HasSubstr("batch_size must be"));
  EXPECT_THAT(RefusalOf("txt2img", {{"steps", 0}}), HasSubstr("steps must be"));
  EXPECT_THAT(RefusalOf("txt2img", {{"width", 7}}), HasSubstr("multiples of 16"));
  EXPECT_THAT(RefusalOf("txt2img", {{"cfg_scale", "7"}}), HasSubstr("cfg must be a finite number"));
  EXPECT_THAT(RefusalOf("img2img", Json::object()),
              HasSubstr("init_images must be a list of one picture, not absent"));
  EXPECT_THAT(RefusalOf("img2img", {{"init_images", {kPicture, kPicture}}}),
              HasSubstr("init_images must be a list of one picture"));
  EXPECT_THAT(RefusalOf("img2img", {{"init_images", {"http://x/y.png"}}}),
              HasSubstr("this server fetches nothing"));
  EXPECT_EQ(Ask(Get("/sdapi/v1/txt2img")).status, 405);
  EXPECT_EQ(Ask(Post("/sdapi/v1/progress", "{}")).status, 405);
}

TEST_F(A1111Routes, WhatToolsAskFirst) {
  const auto get = [&](const std::string& name) { return JsonOf(Ask(Get("/sdapi/v1/" + name))); };
  const std::string id = get("sd-models")[0]["title"];
  EXPECT_EQ(get("sd-models")[0]["model_name"], id);
  EXPECT_EQ(get("sd-models").size(), 1u);
  EXPECT_EQ(get("options")["sd_model_checkpoint"], id);
  EXPECT_EQ(get("samplers"), Json::parse(R"([{"name": "Euler", "aliases": ["euler"], "options": {}}])"));
  EXPECT_EQ(get("cmd-flags"), Json::parse(R"({"api": true})"));
  for (const char* none : {"loras", "upscalers", "sd-vae", "prompt-styles"})
    EXPECT_EQ(get(none), Json::array());
  const auto set = [&](const Json& options) { return Ask(Post("/sdapi/v1/options", options.dump())).status; };
  EXPECT_EQ(set({{"sd_model_checkpoint", id}}), 200);
  EXPECT_EQ(set({{"sd_model_checkpoint", "other"}}), 400);
}

TEST_F(A1111Routes, Progress) {
  const auto progress = [&] { return JsonOf(Ask(Get("/sdapi/v1/progress"))); };
  EXPECT_EQ(progress()["progress"], 0);
  EXPECT_EQ(progress()["state"]["job_count"], 0);
  EXPECT_TRUE(progress()["current_image"].is_null());
  JobRequest job = LongJob();
  job.count = 2;
  const std::string id = jobs_.Submit(job);
  WaitForSteps(jobs_, id);
  const Json running = progress();
  EXPECT_GT(running["progress"], 0);
  EXPECT_EQ(running["state"]["job"], id);
  EXPECT_EQ(running["state"]["job_count"], 2);
  EXPECT_EQ(running["state"]["sampling_steps"], *job.request.steps);
  EXPECT_GE(running["state"]["sampling_step"], 1);
  EXPECT_EQ(running["state"]["job_timestamp"].get<std::string>().size(), 14u);
  EXPECT_EQ(Ask(Post("/sdapi/v1/interrupt", "")).status, 200);
  EXPECT_EQ(WaitForEnd(jobs_, id).state, JobState::kCancelled);
}

}  // namespace
}  // namespace qwen_image::server
