#include "server/api/job_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "files/base64.h"
#include "files/png.h"
#include "qwen_image/error.h"

namespace qwen_image::api {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const Pipeline& Tiny() {
  static const Pipeline pipeline(ModelFiles(QWEN_IMAGE_SOURCE_DIR "/models/tiny"));
  return pipeline;
}

jobs::Request Parse(const Json& fields) {
  Json body = fields;
  if (!body.contains("prompt")) body["prompt"] = "a red circle";
  return ParseJobRequest(body, Tiny());
}

std::string Refusal(const Json& fields) {
  try {
    Parse(fields);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage) << error.message();
    return error.message();
  }
  ADD_FAILURE() << "not refused: " << fields.dump().substr(0, 200);
  return "";
}

Image Plain(int64_t width, int64_t height, uint8_t value) {
  return {width, height, std::vector<uint8_t>(static_cast<size_t>(width * height * 3), value)};
}
std::string Base64Of(const Image& image) { return EncodeBase64(EncodePng(image)); }

TEST(JobFields, EveryFieldArrives) {
  const jobs::Request job = Parse({{"prompt", "two stars"},
                                   {"negative_prompt", "blurry"},
                                   {"size", "128x64"},
                                   {"steps", 7},
                                   {"cfg", 2.5},
                                   {"seed", 18446744073709551615ull},
                                   {"n", 3},
                                   {"vae_tiling", "on"},
                                   {"max_sequence_length", 9},
                                   {"reference_special_tokens", true},
                                   {"step_cache", 0.1}});
  const GenerateRequest& r = job.request;
  EXPECT_EQ(r.prompt, "two stars");
  EXPECT_EQ(r.negative_prompt, "blurry");
  EXPECT_EQ(r.width, 128);
  EXPECT_EQ(r.height, 64);
  EXPECT_EQ(r.steps, 7);
  EXPECT_EQ(r.cfg, 2.5);
  EXPECT_EQ(r.seed, 18446744073709551615ull);
  EXPECT_EQ(job.count, 3);
  EXPECT_EQ(r.vae_tiling, GenerateRequest::Tiling::kOn);
  EXPECT_EQ(r.step_cache, 0.1);
  EXPECT_EQ(r.max_sequence_length, 9);
  EXPECT_TRUE(r.reference_special_tokens);
  EXPECT_THAT(Refusal({{"resume_folder", "/tmp"}}), HasSubstr("\"resume_folder\" is not known"));
}

TEST(JobFields, SigmasAreTheSteps) {
  EXPECT_THAT(Parse({{"sigmas", {1, 0.7, 0.25}}}).request.sigmas, ElementsAre(1, 0.7, 0.25));
  EXPECT_THAT(Refusal({{"sigmas", "1,0.5"}}), HasSubstr("sigmas must be a list of 1 to 200 finite numbers"));
  const auto blamed = [](const Json& fields) {
    try {
      Parse(fields);
    } catch (const FieldError& error) {
      return error.field() + ": " + error.message();
    }
    return std::string("(not refused)");
  };
  EXPECT_THAT(blamed({{"sigmas", {0.5, 1}}}), testing::StartsWith("sigmas: the sigmas are not valid"));
  EXPECT_THAT(blamed({{"sigmas", {1, 0.5}}, {"steps", 3}}),
              testing::StartsWith("steps: 2 sigmas are 2 steps, not 3"));
  EXPECT_EQ(Parse({{"sigmas", {1, 0.5}}, {"steps", 2}}).request.steps, 2);
}

TEST(JobFields, BackgroundsOfAModelWithoutAlpha) {
  EXPECT_EQ(Parse({{"background", "#102030"}}).request.background, "#102030");
  try {
    Parse({{"background", "transparent"}});
    ADD_FAILURE() << "not refused";
  } catch (const FieldError& error) {
    EXPECT_EQ(error.field(), "background");
    EXPECT_THAT(error.message(), HasSubstr("draws no transparent pictures"));
  }
  EXPECT_THAT(Refusal({{"background", "pink"}}), HasSubstr("\"pink\" is not a background"));
  EXPECT_THAT(Refusal({{"background", 7}}), HasSubstr("background must be text, not 7"));
}

TEST(JobFields, AModelWithoutAlphaGetsPicturesOnWhite) {
  const Image clear{2, 1, {9, 9, 9, 0, 10, 20, 30, 255}, 4};
  const jobs::Request job = Parse({{"init_image", Base64Of(clear)}});
  EXPECT_EQ(job.request.init_image->channels, 3);
  EXPECT_THAT(job.request.init_image->pixels, ElementsAre(255, 255, 255, 10, 20, 30));
  EXPECT_THAT(job.notes, ElementsAre("init_image: transparent parts are laid on white"));
}

TEST(JobFields, DefaultsAreLeftToThePipeline) {
  const jobs::Request job = Parse(Json::object());
  EXPECT_FALSE(job.request.width || job.request.steps || job.request.cfg || job.request.negative_prompt);
  EXPECT_EQ(job.count, 1);
  EXPECT_FALSE(Parse({{"size", "auto"}}).request.width);
  EXPECT_EQ(Parse({{"width", 64}, {"height", 32}}).request.height, 32);
}

TEST(JobFields, SeedsThatAreNotGivenAreDrawn) {
  for (const Json& seed : std::vector<Json>{nullptr, -1, "random"}) {
    // Four equal ones by chance: once in 2^96.
    std::set<uint64_t> seeds;
    for (int i = 0; i < 4; ++i) seeds.insert(Parse({{"seed", seed}}).request.seed);
    EXPECT_GT(seeds.size(), 1u);
  }
  EXPECT_EQ(Parse({{"seed", 0}}).request.seed, 0u);
}

TEST(JobFields, WrongValuesAreNamed) {
  EXPECT_EQ(Refusal({{"n", 1'000'000'000}}), "n must be a whole number from 1 to 10, not 1000000000");
  EXPECT_THAT(Refusal({{"n", 0}}), HasSubstr("n must be"));
  for (const Json& steps : std::vector<Json>{-1, 0, 1'000'000'000, 1.5, "20"})
    EXPECT_THAT(Refusal({{"steps", steps}}), HasSubstr("steps must be a whole number from 1 to 200, not "));
  for (const char* size : {"0x0", "7x7", "1000000x1", "128x7"})
    EXPECT_THAT(Refusal({{"size", size}}), HasSubstr("is impossible: both sides must be multiples of 16"));
  for (const char* size :
       {"axb", "", "128", "128x", "x128", "-128x128", "128x128x3", "99999999999x16", "128 x 128"})
    EXPECT_THAT(Refusal({{"size", size}}),
                HasSubstr("size must be WIDTHxHEIGHT, for example 1024x768, or auto, not"));
  EXPECT_THAT(Refusal({{"size", 512}}), HasSubstr("size must be text, not 512"));
  EXPECT_THAT(Refusal({{"size", "128x128"}, {"width", 128}}), HasSubstr("either size or width and height"));
  EXPECT_THAT(Refusal({{"width", -16}}), HasSubstr("width must be"));
  EXPECT_THAT(Refusal({{"width", 1e18}}), HasSubstr("width must be"));
  EXPECT_THAT(Refusal({{"cfg", INFINITY}}), HasSubstr("cfg must be a finite number"));
  EXPECT_THAT(Refusal({{"cfg", -1}}), HasSubstr("cfg must be a number from 0 to 1000"));
  EXPECT_THAT(Refusal({{"step_cache", 2}}), HasSubstr("step cache must be a number from 0 (off) to 1"));
  EXPECT_THAT(Refusal({{"vae_tiling", "maybe"}}), HasSubstr("vae_tiling must be auto or on or off"));
  EXPECT_THAT(Refusal({{"strength", 0.5}}), HasSubstr("strength needs"));
  EXPECT_THAT(Refusal({{"blend", false}}), HasSubstr("blend says how a mask is used"));
  EXPECT_THAT(Refusal({{"keep_size", true}}), HasSubstr("keeping the size needs an input picture"));
  for (const Json& seed : std::vector<Json>{-2, 1.5, "x", true, 1e30})
    EXPECT_THAT(Refusal({{"seed", seed}}), HasSubstr("seed must be a whole number from 0 to 2^64 - 1"));
  EXPECT_THAT(Refusal({{"stpes", 5}}), HasSubstr("the field \"stpes\" is not known; known are prompt, "));
}

// What the library refuses knows no fields; the reply does.
TEST(JobFields, TheFieldToBlameIsNamed) {
  const auto field = [](const Json& fields) {
    try {
      Parse(fields);
    } catch (const FieldError& error) {
      return error.field();
    }
    return std::string("none");
  };
  const std::string grey = Base64Of(Plain(64, 64, 200)), black = Base64Of(Plain(64, 64, 0));
  EXPECT_EQ(field({{"cfg", 5000}}), "cfg");
  EXPECT_EQ(field({{"step_cache", 2}}), "step_cache");
  EXPECT_EQ(field({{"size", "33x32"}}), "size");
  EXPECT_EQ(field({{"size", "100000x100000"}}), "size");
  EXPECT_EQ(field({{"width", 33}}), "width");
  EXPECT_EQ(field({{"width", 33}, {"height", 32}}), "width");
  EXPECT_EQ(field({{"width", 32}, {"height", 33}}), "height");
  EXPECT_EQ(field({{"width", 33}, {"height", 33}}), "width");
  EXPECT_EQ(field({{"width", 33}, {"cfg", 5000}}), "width");
  EXPECT_EQ(field({{"height", 1 << 20}}), "height");
  EXPECT_EQ(field({{"strength", 0.5}}), "strength");
  EXPECT_EQ(field({{"init_image", grey}, {"strength", 2}}), "strength");
  EXPECT_EQ(field({{"init_image", grey}, {"mask", black}}), "mask");
  EXPECT_EQ(field({{"init_image", grey}, {"outpaint", {1 << 20, 0, 0, 0}}}), "outpaint");
  EXPECT_EQ(field({{"init_image", grey}, {"input_images", {grey}}}), "init_image");
  EXPECT_EQ(field({{"keep_size", true}}), "keep_size");
  EXPECT_EQ(field({{"input_images", {grey, "x"}}}), "input_images");
  EXPECT_EQ(field({{"mask", grey}}), "mask");
  EXPECT_EQ(field({{"prompt", nullptr}}), "prompt");
}

TEST(JobFields, Prompts) {
  EXPECT_THAT(Refusal({{"prompt", nullptr}}), HasSubstr("the prompt is missing"));
  EXPECT_THAT(Refusal({{"prompt", 5}}), HasSubstr("prompt must be text"));
  EXPECT_THAT(Refusal({{"prompt", std::string(10 << 20, 'a')}}),
              HasSubstr("prompt has 10485760 bytes; at most 32768 are taken"));
  EXPECT_THAT(Refusal({{"negative_prompt", std::string(10 << 20, 'a')}}), HasSubstr("negative_prompt has"));
  EXPECT_THAT(Refusal({{"prompt", std::string("a\0b", 3)}}), HasSubstr("prompt holds a NUL character"));
  EXPECT_THAT(Refusal({{"prompt", "\xff"}}), HasSubstr("prompt is not valid UTF-8"));
  // Plain text, as the command line treats it.
  const jobs::Request job = Parse({{"prompt", "<|im_start|>system"}});
  EXPECT_EQ(job.request.prompt, "<|im_start|>system");
  EXPECT_FALSE(job.request.reference_special_tokens);
}

TEST(JobFields, AsManyPixelsAsAllowed) {
  EXPECT_EQ(Parse({{"size", "2400x1792"}}).request.width, 2400);
  EXPECT_EQ(Parse({{"size", "1536x2752"}}).request.height, 2752);
  EXPECT_THAT(Refusal({{"size", "2416x1792"}}),
              HasSubstr("a picture of 2416x1792 has 4329472 pixels; this server draws at most 4300800"));
  EXPECT_THAT(Refusal({{"width", 8192}, {"height", 8192}}),
              HasSubstr("at most 4300800, for example 2064x2064"));
  EXPECT_THAT(Refusal({{"size", "1000000x1000000"}}), HasSubstr("for example 2064x2064"));
  // 4300800 = 6560 · 655.6 at this ratio
  EXPECT_THAT(Refusal({{"size", "10007x1000"}}), HasSubstr("for example 6560x640"));
  // None of the sizes of this ratio is possible.
  EXPECT_THAT(Refusal({{"size", "1000000x64"}}), testing::Not(HasSubstr("for example")));
  EXPECT_EQ(Parse({{"width", 8192}}).request.width, 8192);  // 8192x128
}

TEST(JobFields, PicturesAreDecoded) {
  const std::string red = Base64Of(Plain(32, 16, 200));
  jobs::Request job = Parse({{"input_images", {red, "data:image/png;base64," + red}}});
  ASSERT_EQ(job.request.input_images.size(), 2u);
  EXPECT_EQ(job.request.input_images[1].pixels, Plain(32, 16, 200).pixels);
  job = Parse({{"init_image", red},
               {"mask", Base64Of(Plain(32, 16, 255))},
               {"strength", 0.5},
               {"outpaint", {0, 16, 0, 16}},
               {"blend", false},
               {"keep_size", true}});
  EXPECT_EQ(job.request.init_image->width, 32);
  EXPECT_EQ(job.request.mask->pixels.front(), 255);
  EXPECT_EQ(job.request.strength, 0.5);
  EXPECT_EQ(job.request.outpaint.top, 16);
  EXPECT_EQ(job.request.outpaint.bottom, 16);
  EXPECT_FALSE(job.request.blend);
  EXPECT_TRUE(job.request.keep_size);
}

TEST(JobFields, WrongPicturesAreNamed) {
  const std::string grey = Base64Of(Plain(32, 16, 200));
  EXPECT_THAT(Refusal({{"input_images", grey}}),
              HasSubstr("input_images must be a list of at most 10 pictures"));
  EXPECT_THAT(Refusal({{"input_images", std::vector<std::string>(11, grey)}}),
              HasSubstr("at most 10 pictures, not a list of 11"));
  EXPECT_THAT(Refusal({{"input_images", {grey, 5}}}), HasSubstr("input_images[1] must be a picture"));
  for (const char* url :
       {"http://localhost/x.png", "https://example.com/x.png", "file:///etc/passwd", "ftp://x/y"})
    EXPECT_THAT(Refusal({{"input_images", {url}}}), HasSubstr("this server fetches nothing"));
  EXPECT_THAT(Refusal({{"init_image", "/etc/passwd"}}), HasSubstr("init_image is not base64 of a picture"));
  EXPECT_THAT(Refusal({{"init_image", ""}}), HasSubstr("it is empty"));
  EXPECT_THAT(Refusal({{"init_image", "data:image/png;base64,"}}), HasSubstr("it is empty"));
  EXPECT_THAT(Refusal({{"init_image", "data:image/png,abc"}}), HasSubstr("without \";base64,\""));
  EXPECT_THAT(Refusal({{"init_image", EncodeBase64("GIF89a")}}), HasSubstr("init_image"));
  EXPECT_THAT(Refusal({{"init_image", grey.substr(0, 60)}}), HasSubstr("init_image"));
  EXPECT_THAT(
      Refusal({{"mask", grey}}),
      HasSubstr("mask changes a picture, but the request has none; send one in init_image or input_images"));
  EXPECT_THAT(Refusal({{"outpaint", {16, 0, 0, 0}}}),
              HasSubstr("outpaint changes a picture, but the request has none"));
  EXPECT_THAT(Refusal({{"mask", 1}}), HasSubstr("mask must be a picture"));
  for (const Json& margins :
       std::vector<Json>{5, Json::array({1, 2, 3}), Json::array({1, 2, 3, -4}), Json::array({1, 2, 3, 1.5}),
                         Json::array({1, 2, 3, 1e18}), Json::array({1, 2, 3, "4"})})
    EXPECT_THAT(Refusal({{"init_image", grey}, {"outpaint", margins}}),
                HasSubstr("outpaint must be a list of four whole numbers"));
}

TEST(JobFields, PixelsOfAllPicturesTogether) {
  const RequestLimits limits{.image_pixels = 2 * 64 * 64};
  const auto refusal = [&](const Json& fields) {
    try {
      ParseJobRequest(fields, Tiny(), limits);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      return error.message();
    }
    return std::string();
  };
  const std::string fits = Base64Of(Plain(64, 64, 7)), larger = Base64Of(Plain(64, 65, 7));
  EXPECT_EQ(refusal({{"prompt", "x"}, {"input_images", {fits, fits}}}), "");
  EXPECT_THAT(
      refusal({{"prompt", "x"}, {"input_images", {fits, larger}}}),
      HasSubstr("input_images[1] is a PNG picture of 64 x 65 pixels; 1 to 16384 a side and 4096 in all are "
                "accepted: all pictures of a request may have 8192 together, and 4096 of these are left"));
  EXPECT_THAT(refusal({{"prompt", "x"}, {"input_images", {fits, EncodeBase64("GIF89a")}}}),
              testing::Not(HasSubstr("together")));
  EXPECT_THAT(refusal({{"prompt", "x"}, {"input_images", {fits, fits}}, {"mask", fits}}), HasSubstr("mask"));
  EXPECT_EQ(refusal({{"prompt", "x"}, {"init_image", fits}, {"outpaint", {0, 0, 64, 0}}}), "");
  EXPECT_THAT(refusal({{"prompt", "x"}, {"init_image", fits}, {"outpaint", {0, 0, 65, 0}}}),
              HasSubstr("with outpaint the picture would have 129x64 pixels"));
  EXPECT_THAT(Refusal({{"init_image", fits}, {"outpaint", {8000, 8000, 0, 0}}}),
              HasSubstr("with outpaint the picture would have 8064x8064 pixels"));
  EXPECT_THAT(Refusal({{"init_image", fits}, {"outpaint", {1 << 30, 0, 0, 0}}}),
              HasSubstr("margins to outpaint"));
}

// A black picture with a clear square: a hole, by either rule; one colour with clear ground is where they
// differ.
TEST(JobFields, MasksOfOpenAiAreTransparentWhereTheyRedraw) {
  Image red = Plain(16, 16, 0);
  const Json settings = {{"prompt", "x"}};
  JobPictures pictures;
  pictures.files["input_images"] = {EncodePng(red)};
  // RGBA, 2 × 1, drawn with Pillow: opaque white, transparent white.
  const std::string clear_white = *DecodeBase64(
      "iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAYAAAD0In+KAAAAEUlEQVR4nGP8////fwYGBkYAGfkD/3ZDTbIAAAAASUVORK5CYII=");
  pictures.files["mask"] = {clear_white};
  pictures.mask_is_hole = true;
  EXPECT_THAT(MakeJobRequest(Fields(settings), pictures, Tiny()).request.mask->pixels, ElementsAre(0, 255));
  pictures.mask_is_hole = false;
  EXPECT_THAT(MakeJobRequest(Fields(settings), pictures, Tiny()).request.mask->pixels, ElementsAre(255, 0));
  // What is said about it reaches the user.
  EXPECT_THAT(MakeJobRequest(Fields(settings), pictures, Tiny()).notes,
              ElementsAre(HasSubstr("mask: a mask of one colour")));
}

TEST(JobFields, PicturesAreCroppedToTheSizesShape) {
  Image image = Plain(6, 2, 0);  // columns 255 … 0
  for (size_t i = 0; i < image.pixels.size(); ++i)
    image.pixels[i] = static_cast<uint8_t>(255 - i / 3 % 6 * 51);
  JobPictures pictures;
  pictures.files["init_image"] = pictures.files["mask"] = {EncodePng(image)};
  pictures.crop_to_size = true;
  const auto make = [&](const Json& size) {
    Json settings = {{"prompt", "x"}};
    settings.update(size);
    return MakeJobRequest(Fields(settings), pictures, Tiny()).request;
  };
  const GenerateRequest square = make({{"size", "64x64"}});
  EXPECT_EQ(square.init_image->width, 2);
  EXPECT_EQ(square.init_image->height, 2);
  EXPECT_THAT(square.init_image->pixels,
              ElementsAre(153, 153, 153, 102, 102, 102, 153, 153, 153, 102, 102, 102));
  EXPECT_THAT(square.mask->pixels, ElementsAre(153, 102, 153, 102));
  const GenerateRequest wide = make({{"size", "96x16"}});
  EXPECT_EQ(wide.init_image->width, 6);
  EXPECT_EQ(wide.init_image->height, 1);
  EXPECT_THAT(wide.mask->pixels, ElementsAre(255, 204, 153, 102, 51, 0));
  const GenerateRequest high = make({{"size", "16x96"}});  // no whole pixel has this shape
  EXPECT_EQ(high.init_image->width, 1);
  EXPECT_EQ(high.init_image->height, 2);
  EXPECT_THROW(make({{"width", 64}}), FieldError);
  EXPECT_THROW(make(Json::object()), FieldError);
}

TEST(JobFields, AMaskIsInvertedBeforeItIsChecked) {
  JobPictures pictures;
  pictures.files["init_image"] = {EncodePng(Plain(64, 64, 100))};
  pictures.files["mask"] = {EncodePng(Plain(64, 64, 0))};
  const Json settings = {{"prompt", "x"}};
  EXPECT_THROW(MakeJobRequest(Fields(settings), pictures, Tiny()), FieldError);
  pictures.invert_mask = true;
  EXPECT_EQ(MakeJobRequest(Fields(settings), pictures, Tiny()).request.mask->pixels.front(), 255);
}

TEST(JobFields, JobsAsJson) {
  jobs::Job job;
  job.id = "abc";
  job.state = jobs::State::kRunning;
  job.created = 1000;
  job.started = 2000;
  job.settings.prompt = "x";
  job.settings.seed = 5;
  job.count = 2;
  job.progress.stage = "denoise";
  job.progress.step = 3;
  job.images = {{64, 32, 5}};
  job.notes = {"a note"};
  const Json json = JobJson(job);
  EXPECT_EQ(json["state"], "running");
  EXPECT_EQ(json["started"], 2000);
  EXPECT_TRUE(json["finished"].is_null());
  EXPECT_EQ(json["n"], 2);
  EXPECT_EQ(json["images"],
            Json::parse(R"([{"url": "/jobs/abc/images/0.png", "width": 64, "height": 32, "seed": 5}])"));
  EXPECT_EQ(json["progress"]["stage"], "denoise");
  EXPECT_TRUE(json["strength"].is_null());
  EXPECT_TRUE(json["sigmas"].is_null());
  EXPECT_TRUE(json["background"].is_null());
  EXPECT_TRUE(json["error"].is_null());
  job.settings.sigmas = {1, 0.5};
  job.settings.background = "white";
  job.images.push_back({64, 32, 6, 4});
  EXPECT_EQ(JobJson(job)["sigmas"], Json({1, 0.5}));
  EXPECT_EQ(JobJson(job)["background"], "white");
  EXPECT_FALSE(JobJson(job)["images"][0].contains("alpha"));
  EXPECT_EQ(JobJson(job)["images"][1]["alpha"], true);
  job.error = "broken";
  EXPECT_EQ(JobJson(job)["error"], "broken");
  EXPECT_STREQ(Name(jobs::State::kInterrupted), "interrupted");
  EXPECT_STREQ(Name(jobs::State::kCancelled), "cancelled");
}

}  // namespace
}  // namespace qwen_image::api
