// Which member of the family a model is: by its index, by its user, or not known.
#include "families/qwen_image_21/variant_of_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "families/family.h"
#include "files/testing.h"

namespace qwen_image::qwen_image_21 {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const fs::path kBase = fs::path(QWEN_IMAGE_SOURCE_DIR) / "tests/goldens/models/21-micro";

// A folder of the base model, and one with the same weights that is Turbo's.
class Variants : public ::testing::Test {
 protected:
  Variants() {
    fs::copy(kBase, turbo_, fs::copy_options::recursive);
    Json index = ReadJsonFile(kBase / "model_index.json");
    index["sample_sigmas"] = {1.0, 0.9, 0.4};
    folder_.Write("turbo/model_index.json", index.dump());
    folder_.Write("turbo/scheduler/scheduler_config.json", SchedulerConfigJson(TurboScheduler()).dump());
  }
  static ModelFiles With(const fs::path& folder, const fs::path& transformer,
                         const std::string& variant = "") {
    ModelFiles files = folder;
    if (!transformer.empty()) files.transformer = transformer / "transformer";
    files.variant = variant;
    return files;
  }
  static std::unique_ptr<Model> Open(const ModelFiles& files) {
    const ModelParts parts = FindModelParts(files);
    return FamilyFor(parts).Open(parts, files, {});
  }

  const TempFolder folder_;
  const fs::path turbo_ = folder_.path() / "turbo";
};

TEST_F(Variants, AreToldByTheIndexOfTheirFolder) {
  EXPECT_EQ(Open(kBase)->variant(), "2.1");
  const auto turbo = Open(turbo_);
  EXPECT_EQ(turbo->variant(), "2.1-turbo");
  EXPECT_EQ(turbo->traits().defaults.steps, 3);
  EXPECT_THAT(turbo->traits().note, IsEmpty());
  EXPECT_THAT(MessageOf(ErrorKind::kUsage, [&] { Open(With(turbo_, "", "2.1")); }),
              HasSubstr("2.1 contradicts the model's files"));
}

// Turbo's folder knows no schedule of the base model.
TEST_F(Variants, ATransformerFromElsewhereInTurbosFolder) {
  const auto unknown = Open(With(turbo_, kBase)), base = Open(With(turbo_, kBase, "2.1"));
  for (const auto& model : {unknown.get(), base.get()}) {
    EXPECT_TRUE(model->traits().scheduler.use_dynamic_shifting);
    EXPECT_THAT(model->traits().sigmas, IsEmpty());
    EXPECT_EQ(model->traits().defaults.steps, 40);
  }
  EXPECT_THAT(unknown->traits().note, HasSubstr("--variant 2.1-turbo says that it is Turbo"));
  EXPECT_THAT(base->traits().note, IsEmpty());
  const auto turbo = Open(With(turbo_, kBase, "2.1-turbo"));
  EXPECT_EQ(turbo->traits().sigmas, TurboSigmas());
  EXPECT_FALSE(turbo->traits().scheduler.use_dynamic_shifting);
}

TEST_F(Variants, ATransformerFromElsewhereInAFolderOfTheBaseModel) {
  const auto model = Open(With(kBase, turbo_));
  EXPECT_EQ(model->variant(), "");
  EXPECT_THAT(model->traits().note, IsEmpty());  // most have such files, and the schedule is right
  EXPECT_TRUE(model->traits().scheduler.use_dynamic_shifting);
}

}  // namespace
}  // namespace qwen_image::qwen_image_21
