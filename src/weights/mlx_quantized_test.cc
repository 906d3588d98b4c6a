#include "weights/mlx_quantized.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/fail.h"
#include "files/safetensors.h"
#include "files/testing.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Written by MLX itself: tools/reference/mlx_goldens.py.
const fs::path kGoldens = fs::path(QWEN_IMAGE_SOURCE_DIR) / "tests/goldens/mlx";

MlxQuantizedTensor Open(const SafetensorsFile& file, const std::string& name, MlxQuantization q) {
  const auto& tensors = file.tensors();
  return MlxQuantizedTensor(name, tensors.at(name + ".weight"), tensors.at(name + ".scales"),
                            tensors.at(name + ".biases"), q);
}

TEST(MlxQuantized, DequantizesWhatMlxPackedInEveryMode) {
  const SafetensorsFile file(kGoldens / "all_modes.safetensors");
  for (const int bits : kMlxBits) {
    for (const int group_size : kMlxGroupSizes) {
      const std::string name = fmt::format("bits{}_group{}", bits, group_size);
      SCOPED_TRACE(name);
      const MlxQuantizedTensor tensor = Open(file, name, {bits, group_size});
      const StoredTensor& expected = file.tensors().at(name + ".expected");
      ASSERT_EQ(tensor.shape(), expected.shape);
      std::vector<float> want(static_cast<size_t>(ElementCount(expected.shape)));
      ConvertToFloat(expected.bytes.data(), DType::kF32, static_cast<int64_t>(want.size()), want.data());
      std::vector<float> got(want.size());
      tensor.Dequantize(0, tensor.group_count(), got.data());
      // MLX may fuse the product and the sum: one rounding of the product, which is at most 8 here.
      for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 8 * 0x1p-23) << i;
    }
  }
}

TEST(MlxQuantized, ReadsGroupsInTheMiddle) {
  const SafetensorsFile file(kGoldens / "all_modes.safetensors");
  const MlxQuantizedTensor tensor = Open(file, "bits3_group32", {3, 32});
  std::vector<float> all(static_cast<size_t>(ElementCount(tensor.shape()))), part(64);
  tensor.Dequantize(0, tensor.group_count(), all.data());
  tensor.Dequantize(3, 2, part.data());
  EXPECT_EQ(part, std::vector<float>(all.begin() + 96, all.begin() + 160));
}

TEST(MlxQuantized, ShapesLeaveSeveralPossibilities) {
  EXPECT_THAT(PossibleMlxQuantizations({8, 16}, {8, 2}),
              ElementsAre(MlxQuantization{2, 128}, MlxQuantization{4, 64}, MlxQuantization{8, 32}));
  EXPECT_THAT(PossibleMlxQuantizations({3072, 480}, {3072, 48}), ElementsAre(MlxQuantization{5, 64}));
  EXPECT_THAT(PossibleMlxQuantizations({8, 16}, {8, 3}), IsEmpty());
  EXPECT_THAT(PossibleMlxQuantizations({8, 16}, {7, 2}), IsEmpty());
  EXPECT_THAT(PossibleMlxQuantizations({8, 16}, {2}), IsEmpty());
  EXPECT_THAT(PossibleMlxQuantizations({}, {}), IsEmpty());
  EXPECT_THAT(PossibleMlxQuantizations({8, 0}, {8, 0}), IsEmpty());
  const int64_t huge = int64_t{1} << 58;  // a file can say so if another dimension is 0
  EXPECT_THAT(PossibleMlxQuantizations({0, 8 * huge}, {0, huge}), IsEmpty());
}

TEST(MlxQuantized, ThePackedValuesDecide) {
  const SafetensorsFile file(kGoldens / "quantized.safetensors");
  const auto likely = [&](const std::string& name) {
    return LikelyMlxQuantization(name, file.tensors().at(name + ".weight"),
                                 file.tensors().at(name + ".scales"), file.tensors().at(name + ".biases"));
  };
  EXPECT_EQ(likely("layers.0.proj"), (MlxQuantization{4, 64}));
  EXPECT_EQ(likely("layers.1.proj"), (MlxQuantization{8, 32}));
  EXPECT_EQ(likely("layers.2.proj"), (MlxQuantization{2, 128}));
  const SafetensorsFile small(kGoldens / "all_modes.safetensors");
  EXPECT_EQ(LikelyMlxQuantization("few", small.tensors().at("bits4_group64.weight"),
                                  small.tensors().at("bits4_group64.scales"),
                                  small.tensors().at("bits4_group64.biases")),
            std::nullopt)
      << "four groups are too few to tell";
}

TEST(MlxQuantized, RefusesPartsThatDoNotFit) {
  const SafetensorsFile file(kGoldens / "all_modes.safetensors");
  const auto refuse = [&](StoredTensor weight, StoredTensor scales, StoredTensor biases) {
    return MessageOf(ErrorKind::kBadInput, [&] { MlxQuantizedTensor("x", weight, scales, biases, {4, 64}); });
  };
  const StoredTensor weight = file.tensors().at("bits4_group64.weight");
  const StoredTensor scales = file.tensors().at("bits4_group64.scales");
  EXPECT_THAT(refuse(weight, scales, file.tensors().at("bits4_group32.biases")), HasSubstr("the same shape"));
  EXPECT_THAT(refuse(weight, file.tensors().at("bits4_group128.scales"), scales),
              HasSubstr("not 4-bit in groups of 64"));
  StoredTensor other = weight;
  other.dtype = DType::kI32;
  EXPECT_THAT(refuse(other, scales, scales), HasSubstr("packed values are U32"));
  other = scales;
  other.dtype = DType::kI32;
  EXPECT_THAT(refuse(weight, other, scales), HasSubstr("the scales of \"x\" are I32"));
}

}  // namespace
}  // namespace qwen_image
