#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "families/qwen_image/vocabulary.h"
#include "weights/store.h"
#include "weights/testing.h"

namespace qwen_image {
namespace {

using ::testing::UnorderedElementsAreArray;

// The decoder of a VAE of three levels, as the file that was published before diffusers calls it, and as
// diffusers does. Every level has one residual block more than num_res_blocks; all but the last end with an
// upsampler.
struct DecoderNames {
  MadeTensors original;
  std::vector<std::string> expected;
};
DecoderNames Decoder(int res_blocks) {
  DecoderNames names;
  const auto add = [&](const std::string& original, const std::string& expected) {
    names.original[original] = Constant({2}, 1);
    names.expected.push_back(expected);
  };
  add("decoder.conv1.weight", "decoder.conv_in.weight");
  int index = 0;
  for (int level = 0; level < 3; ++level) {
    for (int block = 0; block <= res_blocks; ++block) {
      add(fmt::format("decoder.upsamples.{}.residual.2.weight", index++),
          fmt::format("decoder.up_blocks.{}.resnets.{}.conv1.weight", level, block));
    }
    if (level == 2) break;
    add(fmt::format("decoder.upsamples.{}.resample.1.weight", index++),
        fmt::format("decoder.up_blocks.{}.upsamplers.0.resample.1.weight", level));
  }
  return names;
}

std::vector<std::string> NamesIn(const WeightStore& store) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : store.tensors()) names.push_back(name);
  return names;
}

TEST(ForeignNames, LevelsOfTheVaeEndWhereTheTensorsOrTheConfigSay) {
  for (const int res_blocks : {1, 2, 3, 5}) {
    SCOPED_TRACE(res_blocks);
    const DecoderNames names = Decoder(res_blocks);
    const TempFolder folder;
    folder.Write("model.safetensors", WeightsBytes(names.original));
    EXPECT_THAT(NamesIn(WeightStore(folder.path(), Component::kVae)),
                UnorderedElementsAreArray(names.expected));
    folder.Write("config.json", fmt::format(R"({{"z_dim": 16, "num_res_blocks": {}}})", res_blocks));
    EXPECT_THAT(NamesIn(WeightStore(folder.path(), Component::kVae)),
                UnorderedElementsAreArray(names.expected));
  }
}

// One level has no upsampler that would tell.
TEST(ForeignNames, TheConfigCountsBeforeTheTensors) {
  const Json config = {{"num_res_blocks", 4}};
  const std::string_view stored = "decoder.upsamples.4.residual.0.gamma";
  EXPECT_EQ(QwenImageRenamer(Component::kVae, std::span(&stored, 1), config)(stored),
            "decoder.up_blocks.0.resnets.4.norm1.gamma");
  EXPECT_EQ(QwenImageRenamer(Component::kVae, std::span(&stored, 1), nullptr)(stored),
            "decoder.up_blocks.1.resnets.0.norm1.gamma");
}

TEST(ForeignNames, LevelsOfMfluxEncodersAreNumberedInOneList) {
  const std::vector<std::string_view> stored = {"encoder.down_blocks.0.resnets.0.conv1.conv3d.weight",
                                                "encoder.down_blocks.0.resnets.2.conv1.conv3d.weight",
                                                "encoder.down_blocks.0.downsamplers.0.resample_conv.weight",
                                                "encoder.down_blocks.1.resnets.0.conv1.conv3d.weight"};
  const Renamer rename = QwenImageRenamer(Component::kVae, stored, nullptr);
  EXPECT_EQ(rename(stored[1]), "encoder.down_blocks.2.conv1.weight");
  EXPECT_EQ(rename(stored[2]), "encoder.down_blocks.3.resample.1.weight");
  EXPECT_EQ(rename(stored[3]), "encoder.down_blocks.4.conv1.weight");
}

}  // namespace
}  // namespace qwen_image
