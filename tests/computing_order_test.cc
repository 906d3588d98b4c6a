// The order that names tell is the order in which the official pipelines computed the recorded runs.
#include "families/computing_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "families/checkpoint_names.h"
#include "files/json.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAreArray;

// What no tensor before it enters into stands at another place in some recorded runs; so do the mergers of
// deepstack, whose blocks their names do not tell.
bool MayStandElsewhere(const std::string& name) {
  return name == "sigmas" || name == "timesteps" || name == "initial_latents_packed" ||
         name == "noise_packed" || name == "position_ids" || name == "negative_position_ids" ||
         name.find("deepstack_merger_list") != name.npos;
}

TEST(PlaceOf, IsThatOfRecordedRuns) {
  size_t runs = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(QWEN_IMAGE_SOURCE_DIR) / "tests/goldens")) {
    if (!fs::exists(entry.path() / "manifest.json")) continue;
    SCOPED_TRACE(entry.path().filename());
    std::vector<std::string> recorded;
    const Json manifest = ReadJsonFile(entry.path() / "manifest.json");
    if (!manifest.contains("checkpoints")) continue;
    for (const Json& checkpoint : manifest["checkpoints"]) recorded.push_back(checkpoint["name"]);
    const auto& order = NamesFor(recorded).order();
    std::erase_if(recorded, MayStandElsewhere);
    for (const std::string& name : recorded) ASSERT_TRUE(PlaceOf(order, name)) << name;
    std::vector<std::string> sorted = recorded;
    std::reverse(sorted.begin(), sorted.end());
    std::stable_sort(sorted.begin(), sorted.end(), [&](const std::string& a, const std::string& b) {
      return PlaceOf(order, a) < PlaceOf(order, b);
    });
    EXPECT_THAT(sorted, ElementsAreArray(recorded));
    ++runs;
  }
  EXPECT_GE(runs, 10);
}

TEST(PlaceOf, KnowsNoOtherNames) {
  const auto& order = NamesFor({}).order();
  for (const char* name : {"", "a", "transformer/step000/mine", "transformer/img_in", "noise_pred_stepx",
                           "vae/", "noise_pred_step99999999999999999999", "theirs/step000/img_in"})
    EXPECT_FALSE(PlaceOf(order, name)) << name;
}

}  // namespace
}  // namespace qwen_image
