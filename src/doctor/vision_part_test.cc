// The vision encoder as a part of a model: opened by edits alone, and from where it is named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "doctor/diagnosis.h"
#include "draw/opened_model.h"
#include "files/testing.h"

namespace qwen_image::doctor {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

const fs::path kSource = QWEN_IMAGE_SOURCE_DIR;
const fs::path kTiny = kSource / "models/tiny";
const fs::path kWithoutTower = kSource / "tests/goldens/formats/text_encoder_q8_0.gguf";
const fs::path kOtherWidth = kSource / "tests/goldens/vision/nested";

ModelFiles TinyWith(const fs::path& vision_encoder) {
  ModelFiles files = kTiny;
  files.vision_encoder = vision_encoder;
  return files;
}

std::string EditMessage(const ModelFiles& files) {
  const Pipeline pipeline(files, {.threads = 1});  // which does not mind
  return MessageOf(ErrorKind::kBadInput, [&] { draw::ModelOf(pipeline).model->conditioner().NeedVision(); });
}

TEST(VisionPart, IsOpenedWhenAskedFor) {
  const Pipeline pipeline(kTiny, {.threads = 1});
  const Model& model = *draw::ModelOf(pipeline).model;
  GenerateRequest request;
  request.prompt = "x";
  request.width = request.height = 32;
  request.steps = 2;
  pipeline.Generate(request, {});
  EXPECT_EQ(model.StoreOf(Component::kVisionEncoder), nullptr);
  model.conditioner().NeedVision();
  const WeightStore* vision = model.StoreOf(Component::kVisionEncoder);
  ASSERT_NE(vision, nullptr);
  model.conditioner().NeedVision();
  EXPECT_EQ(model.StoreOf(Component::kVisionEncoder), vision) << "opened once";
  EXPECT_EQ(vision->path(), kTiny / "text_encoder");
}

TEST(VisionPart, ComesFromWhereItIsNamed) {
  const TempFolder folder;
  folder.Write("model.safetensors", ReadBytes(kTiny / "text_encoder/model.safetensors"));
  folder.Write("config.json", ReadBytes(kTiny / "text_encoder/config.json"));
  const Pipeline pipeline(TinyWith(folder.path()), {.threads = 1});
  const Model& model = *draw::ModelOf(pipeline).model;
  model.conditioner().NeedVision();
  EXPECT_EQ(model.StoreOf(Component::kVisionEncoder)->path(), folder.path());
}

TEST(VisionPart, IsMissedByEditsAlone) {
  EXPECT_THAT(EditMessage(TinyWith(kWithoutTower)),
              AllOf(HasSubstr("has no vision tower (model.visual.*)"), HasSubstr("as the vision encoder")));
  EXPECT_THAT(EditMessage(TinyWith(kOtherWidth)),
              HasSubstr("the vision encoder's output is 16 wide, but the text encoder 128"));
}

TEST(VisionPart, MustBeThereIfNamed) {
  const TempFolder folder;
  const auto message = [](const fs::path& path) {
    return MessageOf(ErrorKind::kBadInput, [&] { FindModelParts(TinyWith(path)); });
  };
  EXPECT_THAT(message(folder.path() / "absent"), HasSubstr("there is no " + folder.path().string()));
  const fs::path other = folder.Write("other.safetensors", SafetensorsBytes("{}      ", ""));
  EXPECT_THAT(message(other), AllOf(HasSubstr("other.safetensors: the vision_encoder is expected here"),
                                    HasSubstr("no part of a Qwen-Image model")));
}

std::string DoctorOnVision(const ModelFiles& files) {
  ThreadPool pool(1);
  const Diagnosis found = Diagnose(files, pool, CancelFlag());
  EXPECT_TRUE(found.usable());
  for (const HealthFinding& finding : found.findings) {
    if (finding.subject == "vision tower")
      return (finding.health == Health::kGood ? "good: " : "warning: ") + finding.text;
  }
  return "";
}

TEST(VisionPart, IsExaminedByTheDoctor) {
  EXPECT_EQ(DoctorOnVision(kTiny), "good: there: 2 blocks of 64");
  EXPECT_THAT(DoctorOnVision(TinyWith(kOtherWidth)), HasSubstr("warning: edits will not work: "));
  ModelFiles files = TinyWith(kWithoutTower);
  EXPECT_THAT(DoctorOnVision(files), HasSubstr("warning: edits will not work: the text encoder "))
      << "the embedded model says that it edits";
  files.model.clear();
  files.transformer = kTiny / "transformer";
  files.text_encoder = kTiny / "text_encoder";
  files.vae = kTiny / "vae";
  EXPECT_EQ(DoctorOnVision(files), "good: not there; only edits need it");
  files.variant = "edit-2509";
  EXPECT_THAT(DoctorOnVision(files), HasSubstr("warning: edits will not work: the text encoder "));
}

}  // namespace
}  // namespace qwen_image::doctor
