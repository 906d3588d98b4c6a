// A model that draws with alpha, behind all routes: the toy family.
#include <gmock/gmock.h>

#include "files/base64.h"
#include "files/colour.h"
#include "qwen_image/image_file.h"
#include "server/api/job_fields.h"
#include "server/api/testing.h"
#include "toy_family.h"

namespace qwen_image::api {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

struct ToyWithAlpha {
  ToyWithAlpha() { WriteToyModel(model.path() / "toy", {.channels = 4}); }
  TempFolder model;
  ScopedFamily registered{ToyFamily()};
};
struct OpenToy : ToyWithAlpha {
  Pipeline pipeline{model.path() / "toy", {.threads = 1}};
};

class AlphaRoutes : protected OpenToy, public RouteTest {
 protected:
  AlphaRoutes() : RouteTest(pipeline) {}

  static Image Decoded(const std::string& png) {
    return DecodeImage(png, "reply", {}, Transparency::kKept).image;
  }
  static Image Base64Image(const Json& text) { return Decoded(*DecodeBase64(text.get<std::string>())); }
  // As the library draws "a toy" with the seed 5.
  Image Expected() const {
    GenerateRequest request;
    request.prompt = "a toy";
    request.seed = 5;
    return pipeline.Generate(request).image();
  }
  Json OpenAi(Json fields) {
    fields.update({{"prompt", "a toy"}, {"seed", 5}, {"response_format", "b64_json"}});
    const http::Response response = Ask(Post("/v1/images/generations", fields.dump()));
    EXPECT_EQ(response.status, 200) << response.body;
    return JsonOf(response);
  }
  jobs::Job Draw(Json fields) {
    fields.update({{"prompt", "a toy"}, {"seed", 5}});
    const http::Response response = Ask(Post("/jobs", fields.dump()));
    EXPECT_EQ(response.status, 202) << response.body;
    return jobs::WaitForEnd(jobs_, JsonOf(response)["id"]);
  }
  Image PictureOf(const jobs::Job& job) {
    return Decoded(Ask(Get("/jobs/" + job.id + "/images/0.png")).body);
  }
};

TEST_F(AlphaRoutes, FormatsOfOpenAis) {
  const auto picture = [&](const Json& reply) {
    return DecodeImage(*DecodeBase64(reply["data"][0]["b64_json"].get<std::string>()), "reply", {},
                       Transparency::kKept)
        .image;
  };
  const Json webp = OpenAi({{"output_format", "webp"}});
  EXPECT_EQ(webp["background"], "transparent");
  EXPECT_EQ(picture(webp).pixels, picture(OpenAi(Json::object())).pixels);
  const Json jpeg = OpenAi({{"output_format", "jpeg"}});
  EXPECT_EQ(jpeg["background"], "opaque");
  EXPECT_EQ(picture(jpeg).channels, 3);
  EXPECT_THAT(Refusal(Post("/v1/images/generations",
                           R"({"prompt": "x", "output_format": "jpeg", "background": "transparent"})")),
              testing::HasSubstr("background must be auto or opaque for JPEG"));
}

TEST_F(AlphaRoutes, InfoTellsOfIt) {
  const Json info = JsonOf(Ask(Get("/info")));
  EXPECT_EQ(info["channels"], 4);
  EXPECT_EQ(info["side_multiple"], 4);
}

TEST_F(AlphaRoutes, JobsDrawItAndLayItOnColours) {
  const jobs::Job job = Draw(Json::object());
  ASSERT_EQ(job.images.size(), 1u) << job.error;
  EXPECT_EQ(job.images[0].channels, 4);
  EXPECT_EQ(JobJson(job)["images"][0]["alpha"], true);
  const Image expected = Expected();
  ASSERT_TRUE(expected.has_alpha());
  EXPECT_EQ(PictureOf(job).pixels, expected.pixels);
  const jobs::Job flat = Draw({{"background", "Navy"}});
  EXPECT_EQ(flat.settings.background, "Navy");
  EXPECT_EQ(flat.images.at(0).channels, 3);
  EXPECT_EQ(PictureOf(flat).pixels, Flatten(expected, {0, 0, 128}).pixels);
  EXPECT_THAT(flat.notes, IsEmpty());
  EXPECT_EQ(PictureOf(Draw({{"background", "transparent"}})).pixels, expected.pixels);
}

TEST_F(AlphaRoutes, PicturesThatAreSentKeepIt) {
  const std::string clear = EncodePng({32, 16, std::vector<uint8_t>(32 * 16 * 4, 60), 4});
  const jobs::Job job = Draw({{"init_image", EncodeBase64(clear)}});
  EXPECT_THAT(job.notes, IsEmpty());
  const std::string white = EncodePng(Flatten(Decoded(clear)));
  EXPECT_NE(PictureOf(job).pixels, PictureOf(Draw({{"init_image", EncodeBase64(white)}})).pixels);
  // Cropped to a shape, as AUTOMATIC1111's tools ask for.
  Image wide{4, 1, {}, 4};
  for (int i = 0; i < 16; ++i) wide.pixels.push_back(static_cast<uint8_t>(i));
  JobPictures pictures;
  pictures.files["init_image"] = {EncodePng(wide)};
  pictures.crop_to_size = true;
  const Json square = {{"prompt", "x"}, {"width", 16}, {"height", 16}};
  const Image cropped = MakeJobRequest(Fields(square), pictures, pipeline).request.init_image.value();
  EXPECT_EQ(cropped.channels, 4);
  EXPECT_THAT(cropped.pixels, testing::ElementsAre(4, 5, 6, 7));
}

TEST_F(AlphaRoutes, OpenAisBackgrounds) {
  const Image expected = Expected();
  for (const Json& fields :
       {Json::object(), Json({{"background", "auto"}}), Json({{"background", "transparent"}})}) {
    const Json reply = OpenAi(fields);
    EXPECT_EQ(reply["background"], "transparent");
    EXPECT_EQ(Base64Image(reply["data"][0]["b64_json"]).pixels, expected.pixels) << fields;
  }
  const Json opaque = OpenAi({{"background", "opaque"}});
  EXPECT_EQ(opaque["background"], "opaque");
  const Image picture = Base64Image(opaque["data"][0]["b64_json"]);
  EXPECT_EQ(picture.channels, 3);
  EXPECT_EQ(picture.pixels, Flatten(expected).pixels);
  EXPECT_THAT(Refusal(Post("/v1/images/generations", R"({"prompt": "x", "background": "#ffffff"})")),
              HasSubstr("background must be auto or opaque or transparent"));
}

TEST_F(AlphaRoutes, Automatic1111GetsItToo) {
  const Json reply = JsonOf(Ask(Post("/sdapi/v1/txt2img", R"({"prompt": "a toy", "seed": 5})")));
  EXPECT_EQ(Base64Image(reply["images"][0]).pixels, Expected().pixels);
}

}  // namespace
}  // namespace qwen_image::api
