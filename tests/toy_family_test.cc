// A second family is a folder and a line in a table: the toy family loads, draws, is recorded, traced and
// compared, and is examined by the doctor, though no file of src knows it.
#include "toy_family.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "doctor/diagnosis.h"
#include "draw/opened_model.h"
#include "files/testing.h"
#include "parity/compare/attribution.h"
#include "parity/compare/runs.h"
#include "parity/record/run_writer.h"
#include "parity/record/trace.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const fs::path kTiny = fs::path(QWEN_IMAGE_SOURCE_DIR) / "models/tiny";

GenerateRequest Request() {
  GenerateRequest request;
  request.prompt = "a toy";
  return request;
}

class ToyFamilyTest : public testing::Test {
 protected:
  fs::path Model(const std::string& name, const ToyFiles& files = {}) const {
    WriteToyModel(folder_.path() / name, files);
    return folder_.path() / name;
  }
  // Draws with the model and records everything.
  fs::path Record(const fs::path& model) const {
    const Pipeline pipeline(model, {.threads = 1});
    record::RunWriter recorder(model / "run", record::CheckpointSelection("all"));
    const Picture p = pipeline.Generate(Request(), {.checkpoints = &recorder});
    recorder.Finish({.prompt = p.prompt, .width = p.width, .height = p.height, .steps = p.steps}, 1, "cpu");
    return model / "run";
  }

  const TempFolder folder_;
  const ScopedFamily registered_{ToyFamily()};
};

TEST_F(ToyFamilyTest, LoadsAndDraws) {
  const fs::path model = Model("toy");
  const Pipeline pipeline(model, {.threads = 1});
  EXPECT_EQ(pipeline.variant(), "toy");
  EXPECT_EQ(draw::ModelOf(pipeline).model->vocabulary().name, "toy");
  EXPECT_THAT(KnownVariants(), testing::IsSupersetOf({"toy", "edit-2511"}));
  const Picture picture = pipeline.Generate(Request());
  EXPECT_EQ(picture.width, 32);
  EXPECT_EQ(picture.height, 16);
  EXPECT_EQ(picture.steps, 3);
  EXPECT_NE(*std::min_element(picture.pixels.begin(), picture.pixels.end()),
            *std::max_element(picture.pixels.begin(), picture.pixels.end()));
  GenerateRequest other = Request();
  other.prompt = "another toy";
  EXPECT_NE(pipeline.Generate(other).pixels, picture.pixels);
  EXPECT_EQ(pipeline.Generate(Request()).pixels, picture.pixels);
}

TEST_F(ToyFamilyTest, ItsGeometryDecidesWhatIsPossible) {
  const fs::path model = Model("toy");
  const Pipeline pipeline(model, {.threads = 1});
  GenerateRequest request = Request();
  request.width = 36;  // no multiple of 16, but of 4
  EXPECT_EQ(pipeline.Generate(request).width, 36);
  request.width = 38;
  EXPECT_THAT(MessageOf(ErrorKind::kUsage, [&] { pipeline.Check(request); }),
              HasSubstr("multiples of 4 from 4 to 256"));
  request = Request();
  request.input_images = {Image{4, 4, std::vector<uint8_t>(48)}};
  EXPECT_THAT(MessageOf(ErrorKind::kUsage, [&] { pipeline.Check(request); }), HasSubstr("toys do not edit"));
}

TEST_F(ToyFamilyTest, BeginsWithAPictureAndRepairsIt) {
  const fs::path model = Model("toy");
  const Pipeline pipeline(model, {.threads = 1});
  GenerateRequest request = Request();
  request.init_image = Image{32, 16, std::vector<uint8_t>(3 * 32 * 16, 200)};
  request.mask = GreyImage{2, 1, {0, 255}};  // the right half is redrawn
  const Picture picture = pipeline.Generate(request);
  EXPECT_EQ(picture.pixels[0], 200);
  EXPECT_NE(std::count(picture.pixels.begin(), picture.pixels.end(), 200),
            static_cast<std::ptrdiff_t>(picture.pixels.size()));
}

TEST_F(ToyFamilyTest, APlantedDifferenceIsFoundAtItsCheckpoint) {
  const record::TensorSet ref = record::TensorSet::Open(Record(Model("right")));
  const record::TensorSet run = record::TensorSet::Open(Record(Model("wrong", {.mixer_1 = 0.25f})));
  const compare::Comparison comparison = compare::CompareSets(ref, run, {});
  const compare::TensorComparison* bad = comparison.first_divergence();
  ASSERT_NE(bad, nullptr);
  EXPECT_EQ(bad->name, "transformer/step000/mixers.1.mix");
  EXPECT_EQ(record::LevelOf(bad->name), record::CheckpointLevel::kAll);
  EXPECT_EQ(record::LevelOf("transformer/step000/mixers.1"), record::CheckpointLevel::kBlocks);

  std::vector<std::string> names;
  for (const record::TensorInfo& tensor : ref.tensors()) names.push_back(tensor.name);
  EXPECT_EQ(&NamesFor(names), kToyVocabulary.checkpoints);
  const compare::CheckpointRole role = compare::RoleOf(NamesFor(names), bad->name);
  EXPECT_EQ(role.role, "mixing");
  EXPECT_EQ(role.blocks, "mixers");
  EXPECT_EQ(role.block, 1);
  const compare::Attribution who = compare::Attribute(&comparison, nullptr);
  const auto mixing = std::find_if(who.by_role.begin(), who.by_role.end(),
                                   [](const compare::AttributedError& row) { return row.what == "mixing"; });
  ASSERT_NE(mixing, who.by_role.end());
  EXPECT_GT(*mixing->accumulated, 0);
}

TEST_F(ToyFamilyTest, IsTraced) {
  const auto trace = [&](const fs::path& model) {
    const Pipeline pipeline(model, {.threads = 1});
    const CheckpointNames& names = *draw::ModelOf(pipeline).model->vocabulary().checkpoints;
    record::RunTracer tracer(names, record::CheckpointSelection("blocks"), names.known_range, nullptr);
    pipeline.Generate(Request(), {.checkpoints = &tracer});
    return tracer;
  };
  const record::RunTracer right = trace(Model("right"));
  EXPECT_TRUE(right.healthy()) << right.Table();
  EXPECT_THAT(right.Table(), HasSubstr("transformer/mixers.1"));
  EXPECT_FALSE(trace(Model("wrong", {.mixer_1 = 1e4f})).healthy());
}

TEST_F(ToyFamilyTest, IsExaminedByTheDoctor) {
  ThreadPool pool(1);
  const doctor::Diagnosis found = doctor::Diagnose(Model("toy"), pool, CancelFlag());
  EXPECT_TRUE(found.usable());
  EXPECT_EQ(found.what, "Toy, variant toy");
  EXPECT_EQ(found.timed_product, "fp32");
  ASSERT_FALSE(found.pictures.empty());
  EXPECT_EQ(found.pictures[0].width, 32);
}

TEST_F(ToyFamilyTest, StandsBesideTheOthers) {
  const Pipeline pipeline(kTiny, {.threads = 1});
  EXPECT_EQ(draw::ModelOf(pipeline).model->vocabulary().name, "qwen-image");
}

TEST(ToyFamily, IsUnknownUnlessRegistered) {
  const TempFolder folder;
  WriteToyModel(folder.path() / "toy");
  { const ScopedFamily registered(ToyFamily()); }
  EXPECT_THROW(Pipeline(folder.path() / "toy"), Error);
  EXPECT_EQ(record::LevelOf("transformer/step000/mixers.1"), record::CheckpointLevel::kAll);
}

}  // namespace
}  // namespace qwen_image
