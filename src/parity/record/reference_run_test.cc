#include "parity/record/reference_run.h"

#include <gtest/gtest.h>

#include <fstream>

#include "files/json.h"
#include "files/testing.h"
#include "qwen_image/error.h"

namespace qwen_image::record {
namespace {

class ReferenceRunTest : public testing::Test {
 protected:
  void SetUp() override {
    manifest_ = {{"schema", 1},
                 {"prompt", "a"},
                 {"negative_prompt", nullptr},
                 {"width", 32},
                 {"height", 16},
                 {"steps", 2},
                 {"cfg", 1.0},
                 {"seed", uint64_t{1} << 63},
                 {"checkpoints_level", "blocks"},
                 {"checkpoints", {{{"name", "image"}, {"file", "image.npy"}}}}};
  }

  ReferenceRun Open() const {
    std::ofstream(folder_.path() / "manifest.json") << manifest_.dump();
    return ReferenceRun(folder_.path());
  }

  const TempFolder folder_;
  Json manifest_;
};

TEST_F(ReferenceRunTest, ReadsSettingsAndTensors) {
  const std::vector<float> values = {1, 2, 3};
  WriteNpy(folder_.path() / "image.npy", values.data(), {1, 3});
  const ReferenceRun run = Open();
  EXPECT_EQ(run.settings().seed, uint64_t{1} << 63);
  EXPECT_FALSE(run.settings().negative_prompt);
  EXPECT_EQ(run.checkpoints(), std::vector<std::string>{"image"});
  EXPECT_EQ(std::get<std::vector<float>>(run.Read("image").values), values);
}

TEST_F(ReferenceRunTest, RefusesBrokenManifests) {
  EXPECT_THROW(ReferenceRun{folder_.path()}, Error) << "no manifest";
  const Json good = manifest_;
  manifest_["checkpoints"] = Json::array();
  EXPECT_THROW(Open(), Error) << "no checkpoints";
  manifest_ = good;
  manifest_.erase("steps");
  EXPECT_THROW(Open(), Error) << "steps missing";
  manifest_ = good;
  manifest_["width"] = "wide";
  EXPECT_THROW(Open(), Error) << "width is a string";
  manifest_ = good;
  manifest_["checkpoints"].push_back(manifest_["checkpoints"][0]);
  EXPECT_THROW(Open(), Error) << "listed twice";
  for (const char* file : {"../image.npy", "/etc/passwd", "a/../../b.npy", ""}) {
    manifest_ = good;
    manifest_["checkpoints"][0]["file"] = file;
    EXPECT_THROW(Open(), Error) << file;
  }
}

}  // namespace
}  // namespace qwen_image::record
