#include "server/api/openai.h"

#include <gmock/gmock.h>

#include <cmath>

#include "files/base64.h"
#include "files/picture_file.h"
#include "options/testing.h"
#include "qwen_image/image_file.h"
#include "server/api/testing.h"

namespace qwen_image::api {
namespace {

using testing::HasSubstr;

class OpenAiRoutes : public RouteTest {
 protected:
  http::Response Generate(const Json& fields) {
    return Ask(Post("/v1/images/generations", Small(fields).dump()));
  }
  std::string RefusalOf(const Json& fields) {
    return Refusal(Post("/v1/images/generations", Small(fields).dump()));
  }
  static Json Small(Json fields) {
    if (!fields.contains("prompt")) fields["prompt"] = "a red circle";
    if (!fields.contains("size")) fields["size"] = "32x32";
    if (!fields.contains("steps")) fields["steps"] = 1;
    return fields;
  }

  // fields: name, contents; a name that begins with @ is a file
  static http::Request Form(const std::vector<std::pair<std::string, std::string>>& fields) {
    std::string body;
    for (const auto& [name, contents] : fields) {
      const bool file = name.starts_with('@');
      body += "--XX\r\nContent-Disposition: form-data; name=\"" + name.substr(file ? 1 : 0) + '"' +
              (file ? "; filename=\"a.png\"" : "") + "\r\n\r\n" + contents + "\r\n";
    }
    return Post("/v1/images/edits", body + "--XX--\r\n", "multipart/form-data; boundary=XX");
  }
  static inline const std::string kPicture = EncodePng(PlainPicture(64, 64, 100));
};

TEST_F(OpenAiRoutes, OtherPathsAreNotTheirs) {
  for (const char* path :
       {"/", "/v1", "/v1/images", "/v1/images/generations/", "/v1/modelsx", "/jobs", "/v1/images/variations"})
    EXPECT_FALSE(OpenAiRoute(Get(path), jobs::TinyPipeline(), jobs_)) << path;
}

TEST_F(OpenAiRoutes, Base64) {
  const Json reply = JsonOf(Generate(
      {{"n", 2}, {"response_format", "b64_json"}, {"seed", 7}, {"cfg", 1}, {"negative_prompt", "x"}}));
  ASSERT_EQ(reply["data"].size(), 2u);
  EXPECT_GT(reply["created"], 1'600'000'000);
  EXPECT_EQ(reply["data"][1]["seed"], 8);
  EXPECT_FALSE(reply["data"][0].contains("url"));
  const Image picture =
      DecodeImage(*DecodeBase64(reply["data"][0]["b64_json"].get<std::string>()), "reply").image;
  EXPECT_EQ(picture.width, 32);
  EXPECT_EQ(picture.pixels, SmallPicture(7));
}

TEST_F(OpenAiRoutes, OtherFormats) {
  const auto picture = [&](const char* format, int compression) {
    const Json reply = JsonOf(Generate({{"output_format", format},
                                        {"output_compression", compression},
                                        {"seed", 7},
                                        {"cfg", 1},
                                        {"negative_prompt", "x"}}));
    EXPECT_EQ(reply["output_format"], format);
    const std::string bytes = *DecodeBase64(reply["data"][0]["b64_json"].get<std::string>());
    EXPECT_TRUE(DecodePictureText(bytes, "reply").contains("qwen-image")) << format;
    EXPECT_THAT(bytes, HasSubstr("trainedAlgorithmicMedia"));
    // At its address it is the same.
    const std::string url = reply["data"][0]["url"];
    const size_t path = url.find("/jobs/"), question = std::min(url.find('?'), url.size());
    http::Request request = Get(url.substr(path, question - path));
    EXPECT_EQ(question == url.size(), compression == 100);
    if (question < url.size()) request.query["compression"] = url.substr(url.find('=') + 1);
    const http::Response there = Ask(request);
    EXPECT_EQ(there.body, bytes);
    EXPECT_EQ(there.content_type, std::string("image/") + format);
    return bytes;
  };
  EXPECT_EQ(DecodeImage(picture("webp", 100), "reply").image.pixels, SmallPicture(7));
  EXPECT_THAT(picture("webp", 50), testing::StartsWith("RIFF"));
  EXPECT_LT(picture("jpeg", 10).size(), picture("jpeg", 100).size());
  EXPECT_THAT(picture("jpeg", 90), testing::StartsWith("\xff\xd8\xff"));
  const std::string job = "/jobs/" + jobs_.List().front().id;
  for (const char* file :
       {"/images/0.gif", "/images/0", "/images/.png", "/images/0.png.jpeg", "/images/1.jpeg"})
    EXPECT_EQ(Ask(Get(job + file)).status, 404) << file;
  http::Request request = Get(job + "/images/0.jpeg");
  request.query["compression"] = "101";
  EXPECT_EQ(Ask(request).status, 400);
}

TEST_F(OpenAiRoutes, AQualityIsAShareOfTheModelsSteps) {
  const auto steps = [&](Json fields) {
    fields.update({{"prompt", "x"}, {"size", "32x32"}, {"cfg", 1}});
    const http::Response response = Ask(Post("/v1/images/generations", fields.dump()));
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_EQ(JsonOf(response).value("quality", ""), fields.value("quality", ""));
    return jobs_.List().front().steps();
  };
  const int64_t usual = steps(Json::object());
  for (const char* quality : {"auto", "standard", "high", "hd"})
    EXPECT_EQ(steps({{"quality", quality}}), usual);
  EXPECT_EQ(steps({{"quality", "low"}}), std::ceil(0.4 * static_cast<double>(usual)));
  EXPECT_EQ(steps({{"quality", "medium"}}), std::ceil(0.7 * static_cast<double>(usual)));
  EXPECT_EQ(steps({{"quality", "low"}, {"steps", 3}}), 3);
  EXPECT_EQ(steps({{"quality", "low"}, {"sigmas", {1, 0.4}}}), 2);
  EXPECT_THAT(RefusalOf({{"quality", "best"}}), HasSubstr("quality must be"));
}

class TurboRoutes : public RouteTest {
 protected:
  TurboRoutes() : RouteTest(Turbo()) {}
  static const Pipeline& Turbo() {
    static const Pipeline pipeline(
        std::filesystem::path(QWEN_IMAGE_SOURCE_DIR) / "tests/goldens/models/21-micro-turbo", {.threads = 1});
    return pipeline;
  }
};

TEST_F(TurboRoutes, NoQualityChangesTheNoiseLevelsThatAModelIsMadeFor) {
  const http::Response response =
      Ask(Post("/v1/images/generations", R"({"prompt": "x", "size": "32x32", "quality": "low"})"));
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(jobs_.List().front().steps(), 3);
}

TEST_F(OpenAiRoutes, Urls) {
  const Json reply = JsonOf(Generate({{"response_format", "url"}}));
  const std::string url = reply["data"][0]["url"];
  const std::string id = jobs_.List().front().id;
  EXPECT_EQ(url, "http://127.0.0.1:8080/jobs/" + id + "/images/0.png");
  EXPECT_TRUE(jobs_.ReadPng(id, 0));
  EXPECT_FALSE(reply["data"][0].contains("b64_json"));
  EXPECT_EQ(reply["size"], "32x32");
  const Json both = JsonOf(Generate(Json::object()))["data"][0];
  EXPECT_TRUE(both.contains("url") && both.contains("b64_json"));
}

TEST_F(OpenAiRoutes, FieldsOfOpenAis) {
  const std::string id = JsonOf(Ask(Get("/v1/models")))["data"][0]["id"];
  EXPECT_EQ(Generate({{"model", id},
                      {"quality", "hd"},
                      {"style", "vivid"},
                      {"user", "me"},
                      {"background", "auto"},
                      {"output_format", "png"},
                      {"moderation", "low"},
                      {"stream", false}})
                .status,
            200);
  EXPECT_THAT(RefusalOf({{"model", "dall-e-3"}}),
              HasSubstr("the model \"dall-e-3\" is not here; this server draws with"));
  EXPECT_THAT(RefusalOf({{"output_format", "gif"}}), HasSubstr("output_format must be png or jpeg or webp"));
  EXPECT_THAT(RefusalOf({{"output_compression", 50}}), HasSubstr("output_compression must be 100 for PNG"));
  EXPECT_THAT(RefusalOf({{"output_format", "jpeg"}, {"output_compression", 101}}),
              HasSubstr("from 0 to 100"));
  EXPECT_THAT(RefusalOf({{"background", "transparent"}}), HasSubstr("background must be auto or opaque"));
  EXPECT_THAT(RefusalOf({{"stream", true}, {"n", 2}}), HasSubstr("n must be 1 for a stream"));
  EXPECT_THAT(RefusalOf({{"stream", true}, {"partial_images", 4}}), HasSubstr("from 0 to 3"));
  EXPECT_THAT(RefusalOf({{"partial_images", 2}}), HasSubstr("partial_images must be 0 without \"stream\""));
  EXPECT_THAT(RefusalOf({{"response_format", "png"}}), HasSubstr("response_format must be b64_json or url"));
  EXPECT_THAT(RefusalOf({{"sed", 5}}), HasSubstr("\"sed\" is not known"));
  EXPECT_THAT(RefusalOf({{"n", 11}}), HasSubstr("n must be a whole number from 1 to 10"));
  EXPECT_THAT(RefusalOf({{"size", "33x33"}}), HasSubstr("multiples of 16"));
  EXPECT_EQ(jobs_.List().size(), 1u);  // refused ones leave no job
}

TEST_F(OpenAiRoutes, BackgroundsOfAModelWithoutAlpha) {
  const http::Response refused =
      Ask(Post("/v1/images/generations", Small({{"background", "transparent"}}).dump()));
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(JsonOf(refused)["error"]["param"], "background");
  EXPECT_THAT(JsonOf(refused)["error"]["message"].get<std::string>(), HasSubstr("no transparent pictures"));
  EXPECT_THAT(RefusalOf({{"background", "white"}}),
              HasSubstr("background must be auto or opaque or transparent"));
  const Json reply = JsonOf(Generate({{"background", "opaque"}}));
  EXPECT_EQ(reply["background"], "opaque");
  EXPECT_THAT(jobs_.List().front().notes, testing::IsEmpty()) << "it is what was asked for";
}

TEST_F(OpenAiRoutes, Sigmas) {
  Json body = Small({{"sigmas", {1, 0.4}}});
  body.erase("steps");
  EXPECT_EQ(Ask(Post("/v1/images/generations", body.dump())).status, 200);
  EXPECT_EQ(jobs_.List().front().steps(), 2);
  EXPECT_EQ(Ask(Form({{"prompt", "x"}, {"@image", kPicture}, {"sigmas", "[1, 0.6, 0.2]"}})).status, 200);
  EXPECT_THAT(jobs_.List().front().settings.sigmas, testing::ElementsAre(1, 0.6, 0.2));
  EXPECT_THAT(Refusal(Form({{"prompt", "x"}, {"@image", kPicture}, {"sigmas", "0.5"}})),
              HasSubstr("sigmas must be a list"));
}

// Additional fields are those that are declared, in JSON and in forms.
TEST_F(OpenAiRoutes, SettingsAreAdditionalFields) {
  const options::ScopedField trial({.name = "trial_share",
                                    .member = &GenerateRequest::step_cache,
                                    .decides = options::Decides::kLatents,
                                    .recorded = options::Recorded::kIfSet,
                                    .help = "A trial"});
  EXPECT_EQ(Generate({{"trial_share", 0.1}, {"vae_tiling", "on"}, {"max_sequence_length", 9}}).status, 200);
  EXPECT_THAT(RefusalOf({{"trial_share", "x"}}), HasSubstr("trial_share must be a finite number"));
  EXPECT_EQ(Ask(Form({{"prompt", "x"},
                      {"@image", kPicture},
                      {"steps", "1"},
                      {"trial_share", "0.1"},
                      {"outpaint", "[0, 16, 0, 16]"},
                      {"vae_tiling", "on"}}))
                .status,
            200);
  EXPECT_THAT(RefusalOf({{"resume_folder", "/tmp"}}), HasSubstr("\"resume_folder\" is not known"));
  EXPECT_THAT(RefusalOf({{"init_image", "x"}}), HasSubstr("\"init_image\" is not known"));
}

TEST_F(OpenAiRoutes, BodiesAndMethods) {
  EXPECT_THAT(Refusal(Post("/v1/images/generations", "{")), HasSubstr("not valid JSON"));
  EXPECT_THAT(Refusal(Post("/v1/images/generations", "")), HasSubstr("no body"));
  EXPECT_THAT(Refusal(Get("/v1/images/generations"), 405), HasSubstr("\"GET\" is not possible here"));
  const http::Response wrong = Ask(Post("/v1/models", "{}"));
  EXPECT_EQ(wrong.status, 405);
  EXPECT_THAT(wrong.headers, testing::ElementsAre(testing::Pair("Allow", "OPTIONS, GET, HEAD")));
}

TEST_F(OpenAiRoutes, Models) {
  const Json list = JsonOf(Ask(Get("/v1/models")));
  EXPECT_EQ(list["object"], "list");
  ASSERT_EQ(list["data"].size(), 1u);
  const std::string id = list["data"][0]["id"];
  EXPECT_EQ(JsonOf(Ask(Get("/v1/models/" + id))), list["data"][0]);
  const http::Response other = Ask(Get("/v1/models/gpt-image-1"));
  EXPECT_EQ(other.status, 404);
  EXPECT_EQ(JsonOf(other)["error"]["code"], "model_not_found");
}

TEST_F(OpenAiRoutes, Edits) {
  const http::Response response = Ask(Form({{"prompt", "make it green"},
                                            {"@image", kPicture},
                                            {"steps", "1"},
                                            {"n", "2"},
                                            {"seed", "3"},
                                            {"cfg", "1.0"},
                                            {"response_format", "b64_json"},
                                            {"keep_size", "true"}}));
  ASSERT_EQ(response.status, 200) << response.body;
  const Json data = JsonOf(response)["data"];
  ASSERT_EQ(data.size(), 2u);
  EXPECT_EQ(DecodeImage(*DecodeBase64(data[0]["b64_json"].get<std::string>()), "reply").image.width, 64);
  EXPECT_EQ(jobs_.List().front().input_images, 1);
  EXPECT_EQ(jobs_.List().front().settings.seed, 3u);
  EXPECT_EQ(
      Ask(Form({{"prompt", "x"}, {"@image[]", kPicture}, {"@image[]", kPicture}, {"steps", "1"}})).status,
      200);
  EXPECT_EQ(jobs_.List().front().input_images, 2);
}

// Transparent where it is redrawn; the rest comes back bit by bit.
TEST_F(OpenAiRoutes, EditsWithAMask) {
  // Drawn with Pillow: 2 × 1, RGBA, opaque white and transparent white.
  const std::string mask = *DecodeBase64(
      "iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAYAAAD0In+KAAAAEUlEQVR4nGP8////fwYGBkYAGfkD/3ZDTbIAAAAASUVORK5CYII=");
  const http::Response response = Ask(Form({{"prompt", "x"},
                                            {"@image", kPicture},
                                            {"@mask", mask},
                                            {"steps", "2"},
                                            {"strength", "1"},
                                            {"response_format", "b64_json"}}));
  ASSERT_EQ(response.status, 200) << response.body;
  const Image drawn =
      DecodeImage(*DecodeBase64(JsonOf(response)["data"][0]["b64_json"].get<std::string>()), "reply").image;
  ASSERT_EQ(drawn.width, 64);
  const auto half_changed = [&](int64_t from) {
    for (int64_t y = 0; y < 64; ++y) {
      for (int64_t x = from; x < from + 24; ++x) {
        if (drawn.pixels[static_cast<size_t>((y * 64 + x) * 3)] != 100) return true;
      }
    }
    return false;
  };
  EXPECT_FALSE(half_changed(0));
  EXPECT_TRUE(half_changed(40));
}

TEST_F(OpenAiRoutes, WrongForms) {
  const auto refusal = [&](const http::Request& request) { return Refusal(request); };
  EXPECT_THAT(refusal(Form({{"prompt", "x"}})), HasSubstr("nothing to edit"));
  EXPECT_THAT(refusal(Form({{"prompt", "x"}, {"prompt", "y"}, {"@image", kPicture}})),
              HasSubstr("\"prompt\" twice"));
  EXPECT_THAT(
      refusal(Form({{"prompt", "x"}, {"@image", kPicture}, {"@mask", kPicture}, {"@mask", kPicture}})),
      HasSubstr("\"mask\" twice"));
  EXPECT_THAT(refusal(Form({{"prompt", "x"}, {"@image", "no picture"}})), HasSubstr("image[0]"));
  EXPECT_THAT(refusal(Form({{"prompt", "x"}, {"@image", kPicture}, {"steps", "1.5"}})),
              HasSubstr("steps must be a whole number"));
  EXPECT_THAT(refusal(Form({{"prompt", "x"}, {"@image", kPicture}, {"steps", "1e999"}})),
              HasSubstr("steps must be a whole number"));
  EXPECT_THAT(refusal(Form({{"prompt", "x"}, {"@image", kPicture}, {"n", "two"}})),
              HasSubstr("n must be a whole number from 1 to 10, not \"two\""));
  EXPECT_THAT(refusal(Form({{"prompt", "\xff"}, {"@image", kPicture}})),
              HasSubstr("prompt is not valid UTF-8"));
  EXPECT_THAT(refusal(Form({{"\xff", "x"}, {"@image", kPicture}})),
              HasSubstr("name of a field is not valid UTF-8"));
  EXPECT_THAT(refusal(Form({{"prompt", "x"}, {"@image", kPicture}, {"image_url", "x"}})),
              HasSubstr("\"image_url\" is not known"));
  EXPECT_THAT(refusal(Post("/v1/images/edits", "{}")), HasSubstr("multipart/form-data is expected"));
  EXPECT_THAT(refusal(Post("/v1/images/edits", "--XX\r\n", "multipart/form-data; boundary=XX")),
              HasSubstr("headers without an end"));
}

TEST_F(OpenAiRoutes, AFullQueueSaysWhenToComeAgain) {
  jobs::WaitForSteps(jobs_, jobs_.Submit(jobs::LongJob()));
  for (int i = 0; i < 2; ++i) jobs_.Submit(jobs::LongJob());
  const http::Response response = Generate(Json::object());
  EXPECT_EQ(response.status, 429);
  EXPECT_EQ(JsonOf(response)["error"]["type"], "rate_limit_error");
  ASSERT_EQ(response.headers.size(), 1u);
  EXPECT_EQ(response.headers[0].first, "Retry-After");
  EXPECT_GE(std::stoi(response.headers[0].second), 1);
  for (const jobs::Job& job : jobs_.List()) jobs_.Cancel(job.id);
}

TEST_F(OpenAiRoutes, TheFieldToBlameIsNamed) {
  const auto field = [&](const Json& fields) { return JsonOf(Generate(fields))["error"]["param"]; };
  EXPECT_EQ(field({{"model", "dall-e-3"}}), "model");
  EXPECT_EQ(field({{"stream", "yes"}}), "stream");
  EXPECT_EQ(field({{"cfg", 5000}}), "cfg");
  EXPECT_EQ(field({{"size", "33x33"}}), "size");
}

TEST_F(OpenAiRoutes, CancelledJobsAreNotAskedForAgain) {
  const auto reply = OpenAiRoute(Post("/v1/images/generations", R"({"prompt": "x", "steps": 200})"),
                                 jobs::TinyPipeline(), jobs_);
  const auto& cancelled = std::get<http::LaterReply>(*reply);
  jobs_.Cancel(cancelled.job_id);
  HearTheEnd(cancelled);
  const http::Response response = cancelled.reply();
  EXPECT_EQ(response.status, 410);
  EXPECT_EQ(JsonOf(response)["error"]["code"], "cancelled");
}

}  // namespace
}  // namespace qwen_image::api
