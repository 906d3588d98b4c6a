#include "server/api/a1111.h"

#include <gmock/gmock.h>

#include "files/base64.h"
#include "qwen_image/image_file.h"
#include "server/api/testing.h"

namespace qwen_image::api {
namespace {

using testing::HasSubstr;

class A1111Routes : public RouteTest {
 protected:
  http::Response Draw(const char* route, Json fields) {
    fields.emplace("steps", 1);
    fields.emplace("width", 32);
    fields.emplace("height", 32);
    return Ask(Post(std::string("/sdapi/v1/") + route, fields.dump()));
  }
  std::string RefusalOf(const char* route, const Json& fields) {
    const http::Response response = Draw(route, fields);
    EXPECT_EQ(response.status, 400) << response.body;
    const Json body = JsonOf(response);
    EXPECT_EQ(body["detail"], body["error"]["message"]);
    return body["detail"];
  }
  static Image PictureOf(const Json& reply, size_t index) {
    return DecodeImage(*DecodeBase64(reply["images"][index].get<std::string>()), "reply").image;
  }
  static inline const std::string kPicture = EncodeBase64(EncodePng(PlainPicture(64, 64, 100)));
};

TEST_F(A1111Routes, OtherPathsAreNotTheirs) {
  for (const char* path :
       {"/", "/sdapi/v1/", "/sdapi/v1/extra-single-image", "/sdapi/v2/txt2img", "/sdapi/v1/txt2img/"})
    EXPECT_FALSE(A1111Route(Get(path), jobs::TinyPipeline(), jobs_)) << path;
}

TEST_F(A1111Routes, TextToImage) {
  const http::Response response = Draw("txt2img", {{"prompt", "a red circle"},
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
  EXPECT_EQ(PictureOf(reply, 1).pixels, SmallPicture(6));
}

TEST_F(A1111Routes, ARandomSeedIsTold) {
  const Json reply = JsonOf(Draw("txt2img", {{"prompt", "x"}, {"seed", -1}}));
  EXPECT_EQ(Json::parse(reply["info"].get<std::string>())["seed"], jobs_.List().front().settings.seed);
}

TEST_F(A1111Routes, ImageToImage) {
  const http::Response response = Draw("img2img", {{"prompt", "x"},
                                                   {"init_images", {"data:image/png;base64," + kPicture}},
                                                   {"denoising_strength", 0.5},
                                                   {"steps", 2}});
  ASSERT_EQ(response.status, 200) << response.body;
  const Json reply = JsonOf(response);
  EXPECT_EQ(PictureOf(reply, 0).width, 32);
  EXPECT_FALSE(reply["parameters"].contains("init_images"));
  EXPECT_EQ(jobs_.List().front().settings.strength, 0.5);
  EXPECT_EQ(Draw("img2img", {{"prompt", "x"}, {"init_images", {kPicture}}, {"steps", 4}}).status, 200);
  EXPECT_EQ(jobs_.List().front().settings.strength, 0.75);
}

TEST_F(A1111Routes, MasksAndInvertedMasks) {
  Image left = PlainPicture(64, 64, 0);  // white on the left
  for (size_t i = 0; i < left.pixels.size(); ++i) left.pixels[i] = i / 3 % 64 < 32 ? 255 : 0;
  const std::string mask = EncodeBase64(EncodePng(left));
  for (const int invert : {0, 1}) {
    const http::Response response = Draw("img2img", {{"prompt", "x"},
                                                     {"init_images", {kPicture}},
                                                     {"mask", mask},
                                                     {"steps", 2},
                                                     {"width", 64},
                                                     {"height", 64},
                                                     {"denoising_strength", 1},
                                                     {"inpainting_mask_invert", invert}});
    ASSERT_EQ(response.status, 200) << response.body;
    const Image drawn = PictureOf(JsonOf(response), 0);
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
  EXPECT_THAT(RefusalOf("txt2img", {{"cfg_scale", "7"}}), HasSubstr("cfg_scale must be a finite number"));
  EXPECT_THAT(RefusalOf("txt2img", {{"cfg_scale", 5000}}),
              HasSubstr("cfg_scale must be a number from 0 to 1000"));
  for (const int mode : {2, 3})
    EXPECT_THAT(RefusalOf("img2img", {{"init_images", {kPicture}}, {"resize_mode", mode}}),
                HasSubstr("resize_mode must be 0 (stretch to the size) or 1 (crop to its shape"));
  EXPECT_THAT(RefusalOf("img2img", {{"init_images", {kPicture}}, {"denoising_strength", 0}}),
              HasSubstr("denoising_strength must be more than 0, up to 1"));
  EXPECT_THAT(RefusalOf("img2img", Json::object()),
              HasSubstr("init_images must be a list of one picture, not absent"));
  EXPECT_THAT(RefusalOf("img2img", {{"init_images", {kPicture, kPicture}}}),
              HasSubstr("init_images must be a list of one picture"));
  EXPECT_THAT(RefusalOf("img2img", {{"init_images", {"http://x/y.png"}}}),
              HasSubstr("this server fetches nothing"));
  EXPECT_EQ(Ask(Get("/sdapi/v1/txt2img")).status, 405);
  EXPECT_EQ(Ask(Post("/sdapi/v1/progress", "{}")).status, 405);
}

TEST_F(A1111Routes, ErrorsNameTheirFields) {
  const auto field = [&](const char* route, const Json& fields) {
    return JsonOf(Draw(route, fields))["error"]["param"];
  };
  EXPECT_EQ(field("txt2img", {{"cfg_scale", 5000}}), "cfg_scale");
  EXPECT_EQ(field("txt2img", {{"steps", 0}}), "steps");
  EXPECT_EQ(field("txt2img", {{"width", 7}}), "width");
  EXPECT_EQ(field("txt2img", {{"tiling", true}}), "tiling");
  EXPECT_EQ(field("img2img", {{"init_images", {kPicture}}, {"denoising_strength", 2}}), "denoising_strength");
  EXPECT_EQ(field("img2img", {{"init_images", {"x"}}}), "init_images");
}

// Also those that are none of the route's own.
TEST_F(A1111Routes, EveryErrorHasADetail) {
  const auto expect_detail = [&](int status, const http::Response& response) {
    EXPECT_EQ(response.status, status) << response.body;
    const Json body = JsonOf(response);
    EXPECT_EQ(body["detail"], body["error"]["message"]);
    EXPECT_TRUE(body["detail"].is_string());
  };
  expect_detail(404, Ask(Get("/sdapi/v1/nothing")));
  expect_detail(405, Ask(Get("/sdapi/v1/txt2img")));
  expect_detail(400, Ask(Post("/sdapi/v1/txt2img", "{")));
  const http::Reply reply = routes_.Handle(Post("/sdapi/v1/txt2img", R"({"prompt": "x", "steps": 200})"));
  const auto& cancelled = std::get<http::LaterReply>(reply);
  jobs_.Cancel(cancelled.job_id);
  HearTheEnd(cancelled);
  expect_detail(410, cancelled.reply());
  const http::Reply drawn =
      routes_.Handle(Post("/sdapi/v1/txt2img", R"({"width": 32, "height": 32, "steps": 1})"));
  const auto& lost = std::get<http::LaterReply>(drawn);
  HearTheEnd(lost);
  EXPECT_TRUE(jobs_.Remove(lost.job_id));
  expect_detail(500, lost.reply());
  jobs::WaitForSteps(jobs_, jobs_.Submit(jobs::LongJob()));
  for (int i = 0; i < 2; ++i) jobs_.Submit(jobs::LongJob());
  expect_detail(429, Draw("txt2img", {{"prompt", "x"}}));
}

TEST_F(A1111Routes, SidesInStepsOfEightAreRoundedAndItIsSaid) {
  const Json reply = JsonOf(Draw("txt2img", {{"prompt", "x"}, {"width", 40}, {"height", 8}}));
  EXPECT_EQ(PictureOf(reply, 0).width, 32);
  EXPECT_EQ(PictureOf(reply, 0).height, 16);
  const Json info = Json::parse(reply["info"].get<std::string>());
  EXPECT_EQ(info["width"], 32);
  EXPECT_EQ(info["notes"],
            Json::array({"drawn with a width of 32 instead of 40 and a height of 16 instead of 8: the "
                         "model's sides are multiples of 16"}));
  const Json exact = JsonOf(Draw("txt2img", {{"prompt", "x"}}));
  EXPECT_EQ(Json::parse(exact["info"].get<std::string>())["notes"], Json::array());
}

// A strength of 0 is what some tools send when there is no picture to begin with.
TEST_F(A1111Routes, WithoutAPictureTheStrengthIsOfNoInterest) {
  EXPECT_EQ(Draw("txt2img", {{"prompt", "x"}, {"denoising_strength", 0}}).status, 200);
}

// White with a black stripe on either side; little noise, so the stripes show if they are not cut off.
TEST_F(A1111Routes, CropAndResize) {
  Image wide = PlainPicture(128, 64, 255);
  for (size_t i = 0; i < wide.pixels.size(); ++i) {
    if (const size_t x = i / 3 % 128; x < 32 || x >= 96) wide.pixels[i] = 0;
  }
  const auto draw = [&](const Image& picture, int mode) {
    const Json reply = JsonOf(Draw("img2img", {{"prompt", "x"},
                                               {"init_images", {EncodeBase64(EncodePng(picture))}},
                                               {"width", 64},
                                               {"height", 64},
                                               {"steps", 4},
                                               {"denoising_strength", 0.5},
                                               {"seed", 1},
                                               {"resize_mode", mode}}));
    return PictureOf(reply, 0).pixels;
  };
  EXPECT_EQ(draw(wide, 1), draw(PlainPicture(64, 64, 255), 0));
  EXPECT_NE(draw(wide, 0), draw(wide, 1));
}

TEST_F(A1111Routes, WhatToolsAskFirst) {
  const auto get = [&](const std::string& name) { return JsonOf(Ask(Get("/sdapi/v1/" + name))); };
  const std::string id = get("sd-models")[0]["title"];
  EXPECT_EQ(get("sd-models")[0]["model_name"], id);
  EXPECT_EQ(get("sd-models").size(), 1u);
  EXPECT_EQ(get("options")["sd_model_checkpoint"], id);
  EXPECT_EQ(get("samplers"), Json::parse(R"([{"name": "Euler", "aliases": ["euler"], "options": {}}])"));
  EXPECT_EQ(get("cmd-flags"), Json::parse(R"({"api": true})"));
  // The shapes are those of their models (modules/api/models.py).
  ASSERT_EQ(get("schedulers").size(), 1u);
  for (const char* key : {"name", "label", "aliases", "default_rho", "need_inner_model"})
    EXPECT_TRUE(get("schedulers")[0].contains(key)) << key;
  const Json ram = get("memory")["ram"];
  EXPECT_GT(ram["used"], 1'000'000);
  EXPECT_EQ(ram["total"], ram["used"].get<int64_t>() + ram["free"].get<int64_t>());
  EXPECT_TRUE(get("memory")["cuda"].contains("error"));
  EXPECT_EQ(get("embeddings"), Json::parse(R"({"loaded": {}, "skipped": {}})"));
  EXPECT_EQ(get("scripts"), Json::parse(R"({"txt2img": [], "img2img": []})"));
  for (const char* none :
       {"loras", "upscalers", "sd-vae", "prompt-styles", "hypernetworks", "latent-upscale-modes",
        "face-restorers", "realesrgan-models", "script-info", "extensions"})
    EXPECT_EQ(get(none), Json::array()) << none;
  const auto set = [&](const Json& options) { return Ask(Post("/sdapi/v1/options", options.dump())).status; };
  EXPECT_EQ(set({{"sd_model_checkpoint", id}}), 200);
  EXPECT_EQ(set({{"sd_model_checkpoint", "other"}}), 400);
}

TEST_F(A1111Routes, Progress) {
  const auto progress = [&] { return JsonOf(Ask(Get("/sdapi/v1/progress"))); };
  EXPECT_EQ(progress()["progress"], 0);
  EXPECT_EQ(progress()["state"]["job_count"], 0);
  EXPECT_TRUE(progress()["current_image"].is_null());
  jobs::Request job = jobs::LongJob();
  job.count = 2;
  const std::string id = jobs_.Submit(job);
  http::Request skipping = Get("/sdapi/v1/progress");
  skipping.query["skip_current_image"] = "true";
  Json running = JsonOf(Ask(skipping));
  while (running["state"]["sampling_step"] < 1) running = JsonOf(Ask(skipping));
  EXPECT_GT(running["progress"], 0);
  EXPECT_EQ(running["state"]["job"], id);
  EXPECT_EQ(running["state"]["job_count"], 2);
  EXPECT_EQ(running["state"]["sampling_steps"], *job.request.steps);
  EXPECT_GE(running["state"]["sampling_step"], 1);
  EXPECT_EQ(running["state"]["job_timestamp"].get<std::string>().size(), 14u);
  // Nobody watches the job: it is the question that has previews made.
  Json current;
  while (current.is_null()) current = progress()["current_image"];
  EXPECT_EQ(DecodeImage(*DecodeBase64(current.get<std::string>()), "preview").image.width, 128);
  EXPECT_TRUE(JsonOf(Ask(skipping))["current_image"].is_null());
  EXPECT_EQ(Ask(Post("/sdapi/v1/interrupt", "")).status, 200);
  EXPECT_EQ(jobs::WaitForEnd(jobs_, id).state, jobs::State::kCancelled);
}

}  // namespace
}  // namespace qwen_image::api
