// Against torch.randn: the values in tests/goldens/rng.json are torch's own.
#include "core/rng.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

namespace qwen_image {
namespace {

// torch's vectorised and plain code paths themselves differ by 1.2e-6.
constexpr float kTolerance = 2e-6f;

void ExpectNear(const float* got, const nlohmann::json& want, const std::string& what) {
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(got[i], want[i].get<float>(), kTolerance) << what << ", value " << i;
}

TEST(TorchGenerator, DrawsTorchsNumbers) {
  std::ifstream file(QWEN_IMAGE_SOURCE_DIR "/tests/goldens/rng.json");
  const auto goldens = nlohmann::json::parse(file);
  ASSERT_GT(goldens.at("rows").size(), 50u);
  for (const auto& row : goldens.at("rows")) {
    TorchGenerator generator(row.at("seed").get<uint64_t>());
    for (const auto& draw : row.at("draws")) {
      std::vector<float> values(draw.at("size").get<size_t>());
      generator.Normal(values.data(), static_cast<int64_t>(values.size()));
      const std::string what = "seed " + row.at("seed").dump() + ", size " + draw.at("size").dump();
      if (draw.contains("values")) {
        ASSERT_EQ(draw["values"].size(), values.size());
        ExpectNear(values.data(), draw["values"], what);
      } else {
        ExpectNear(values.data(), draw.at("first"), what + ", first");
        ExpectNear(values.data() + values.size() - draw.at("last").size(), draw.at("last"), what + ", last");
      }
    }
  }
}

}  // namespace
}  // namespace qwen_image
