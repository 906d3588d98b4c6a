#include "lora/alpha.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/fail.h"
#include "lora/set.h"
#include "weights/testing.h"

namespace qwen_image::lora {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr const char* kQuery = "transformer_blocks.0.attn.to_q";

TEST(SplitAlpha, NeitherMatrixBecomesTiny) {
  const auto split = [](double value) {
    const AlphaScales scales = SplitAlpha(value);
    EXPECT_EQ(scales.down * scales.up, value);
    return scales;
  };
  EXPECT_EQ(split(1).up, 1);
  EXPECT_EQ(split(3).up, 1);
  EXPECT_EQ(split(0.5).up, 1);
  EXPECT_EQ(split(0.25).up, 0.5);
  EXPECT_EQ(split(1.0 / 3).up, 0.5);
  EXPECT_EQ(split(1.0 / 64).up, 0.125);
}

MadeTensor Halves(const std::string& dtype, const Shape& shape, const std::vector<uint16_t>& bits) {
  std::string bytes;
  for (const uint16_t value : bits) bytes += LittleEndian(value, 2);
  return {dtype, shape, bytes};
}

MadeTensors LoraOf(const MadeTensor& down, const MadeTensor& up, float alpha) {
  const std::string module = kQuery;
  return {{module + ".lora_down.weight", down},
          {module + ".lora_up.weight", up},
          {module + ".alpha", Constant({}, alpha)}};
}

std::vector<float> Values(const WeightMatrix& matrix, float factor = 1) {
  std::vector<float> values(static_cast<size_t>(matrix.rows * matrix.cols));
  for (int64_t row = 0; row < matrix.rows; ++row)
    DecodeRow(matrix, row, 0, matrix.cols, values.data() + row * matrix.cols);
  for (float& value : values) value *= factor;
  return values;
}

std::vector<float> Floats(const std::vector<uint16_t>& bits, float (*convert)(uint16_t)) {
  std::vector<float> values;
  for (const uint16_t value : bits) values.push_back(convert(value));
  return values;
}

// alpha 1, rank 3: what _convert_non_diffusers_qwen_lora_to_diffusers of diffusers 0.42.1 makes of random
// numbers with torch 2.13.0, of the smallest ones of float16 too.
struct Case {
  const char* dtype;
  float (*convert)(uint16_t);
  std::vector<uint16_t> down, up, scaled_down, scaled_up;
};
const Case kCases[] = {
    {"F16",
     FloatFromF16,
     {0x8002, 0x260a, 0x3b93, 0xdd39, 0x001c, 0xa6df, 0xb5b1, 0x5dc7, 0x0002, 0xaa76, 0x3515, 0x50fb},
     {0x0001, 0x33b3, 0x3d95, 0x3d63, 0x40e0, 0x327d},
     {0x8001, 0x2407, 0x390d, 0xdaf7, 0x0013, 0xa495, 0xb397, 0x5bb4, 0x0001, 0xa84f, 0x32c7, 0x4ea4},
     {0x0000, 0x2fb3, 0x3995, 0x3963, 0x3ce0, 0x2e7d}},
    {"BF16",
     FloatFromBf16,
     {0x3624, 0x3d79, 0x3fe4, 0xc38a, 0xb4f6, 0xbcb2, 0x3fa4, 0xc395, 0x35f4, 0xbc94, 0x3fcf, 0x4411},
     {0x3dcd, 0xbdaa, 0xbf7c, 0xbfa0, 0xbe41, 0x3e91},
     {0x35db, 0x3d26, 0x3f98, 0xc338, 0xb4a4, 0xbc6d, 0x3f5b, 0xc347, 0x35a3, 0xbc45, 0x3f8a, 0x43c1},
     {0x3d4d, 0xbd2a, 0xbefc, 0xbf20, 0xbdc1, 0x3e11}},
};

TEST(LoraAlpha, IsAppliedAndRoundedAsDiffusersDoes) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.dtype);
    const TempFolder folder;
    const MadeTensors tensors = LoraOf(Halves(c.dtype, {3, 4}, c.down), Halves(c.dtype, {2, 3}, c.up), 1);
    Set loras({{.path = folder.Write("lora.safetensors", WeightsBytes(tensors)), .scale = 1}});
    const auto& updates = loras.Take(kQuery, 2, 4);
    loras.Finish();
    ASSERT_EQ(updates.size(), 1u);
    EXPECT_THAT(Values(updates[0].down), ElementsAreArray(Floats(c.scaled_down, c.convert)));
    EXPECT_THAT(Values(updates[0].up, updates[0].factor), ElementsAreArray(Floats(c.scaled_up, c.convert)));
    EXPECT_GT(loras.total_bytes(),
              static_cast<int64_t>(std::filesystem::file_size(folder.path() / "lora.safetensors")));
  }
}

// Then the matrices stay where they are, and the numbers are those of before.
TEST(LoraAlpha, NothingIsCopiedWhereNothingIsRounded) {
  const Case& bf16 = kCases[1];
  const MadeTensor down = Halves("BF16", {3, 4}, bf16.down), up = Halves("BF16", {2, 3}, bf16.up);
  const auto layer_of = [](const MadeTensors& tensors) {
    const TempFolder folder;
    const Contents contents = ReadContents(folder.Write("lora.safetensors", WeightsBytes(tensors)));
    return contents.layers.at(kQuery);
  };
  const Layer quarter = layer_of(LoraOf(down, up, 0.75f));
  EXPECT_EQ(quarter.scaled_down, nullptr);
  EXPECT_EQ(quarter.scaled_up, nullptr);
  EXPECT_EQ(quarter.factor, 0.25);
  const Layer floats = layer_of(LoraOf(Random({3, 4}, 1), Random({2, 3}, 2), 1));
  EXPECT_EQ(floats.scaled_down, nullptr);
  EXPECT_EQ(floats.factor, 1.0 / 3);
  EXPECT_EQ(layer_of(LoraOf(down, up, 0)).factor, 0);
  EXPECT_EQ(layer_of(LoraOf(down, up, -1)).factor, -1.0 / 3);
}

TEST(LoraAlpha, NumbersThatBecomeInfiniteAreRefused) {
  const TempFolder folder;
  const MadeTensors tensors = LoraOf(Halves("F16", {1, 1}, {0x7bff}), Halves("F16", {1, 1}, {0x3c00}), 3);
  Set loras({{.path = folder.Write("lora.safetensors", WeightsBytes(tensors)), .scale = 1}});
  loras.Take(kQuery, 1, 1);
  EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [&] { loras.Finish(); }),
              HasSubstr("its numbers times 3 (alpha / rank) are too large for their type"));
}

}  // namespace
}  // namespace qwen_image::lora
