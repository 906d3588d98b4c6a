// Weight files that are damaged, hostile or change while they are in use: always an Error that names the
// file, the tensor and what is wrong with it, never a crash and never a wrong value.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstring>
#include <functional>
#include <limits>
#include <string>

#include "core/fail.h"
#include "families/qwen_image_21/vocabulary.h"
#include "files/testing.h"
#include "qwen_image/truncation_guard.h"
#include "weights/binder.h"
#include "weights/nonfinite.h"
#include "weights/testing.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

const fs::path kGoldens = fs::path(QWEN_IMAGE_SOURCE_DIR) / "tests/goldens";
const std::string kStem = "transformer_blocks.0.attn.to_q";

// Two rows of 128 values with 4 bits each in groups of 64, as MLX stores them.
MadeTensors MlxParts() {
  return {{kStem + ".weight", {"U32", {2, 16}, std::string(2 * 16 * 4, '\x21')}},
          {kStem + ".scales", Constant({2, 2}, 0)},
          {kStem + ".biases", Constant({2, 2}, 0)}};
}

// What a model says that expects such a matrix.
std::string MessageFor(const MadeTensors& parts, const Shape& wanted = {2, 128}) {
  const TempFolder folder;
  const fs::path path = folder.Write("w.safetensors", WeightsBytes(parts));
  WeightStore store(path, Component::kTransformer);
  WeightBinder binder(store);
  EXPECT_EQ(binder.Matrix(kStem + ".weight", wanted).data, nullptr);
  const std::string message = MessageOf(ErrorKind::kBadInput, [&] { binder.Finish(); });
  EXPECT_THAT(message, AllOf(HasSubstr("w.safetensors"), HasSubstr(kStem + ".weight")));
  return message;
}

// Opens and reads everything there is.
void ReadAll(const fs::path& path, Component component) {
  WeightStore store(path, component);
  WeightBinder binder(store);
  std::map<std::string, Shape> wanted;
  for (const auto& [name, tensor] : store.tensors()) {
    WeightTensor settled = tensor;
    settled.ChooseQuantization();
    wanted[name] = settled.shape();
  }
  for (const auto& [name, shape] : wanted) binder.Floats(name, shape);
  binder.Finish();
}

TEST(BadMlxWeights, WithoutScales) {
  MadeTensors parts = MlxParts();
  parts.erase(kStem + ".scales");
  EXPECT_THAT(MessageFor(parts), HasSubstr("holds packed values (U32), but its .scales are missing"));
}

TEST(BadMlxWeights, WithoutBiases) {
  MadeTensors parts = MlxParts();
  parts.erase(kStem + ".biases");
  EXPECT_THAT(MessageFor(parts), HasSubstr("its .biases are missing"));
}

TEST(BadMlxWeights, BitsAndGroupsThatFitNothing) {
  for (const Shape& scales : {Shape{2, 3}, Shape{3, 2}, Shape{4}, Shape{2, 0}, Shape{2, 16}}) {
    MadeTensors parts = MlxParts();
    for (const char* part : {".scales", ".biases"}) parts[kStem + part] = Constant(scales, 0);
    EXPECT_THAT(MessageFor(parts), HasSubstr("fit no number of bits and group size")) << ToString(scales);
  }
}

TEST(BadMlxWeights, ScalesAndBiasesThatDiffer) {
  MadeTensors parts = MlxParts();
  parts[kStem + ".biases"] = Constant({2, 1}, 0);
  EXPECT_THAT(MessageFor(parts), HasSubstr("the same shape is expected"));
  parts = MlxParts();
  parts[kStem + ".scales"].dtype = "I32";
  EXPECT_THAT(MessageFor(parts), HasSubstr("are I32; F32, F16 or BF16 is expected"));
}

TEST(BadMlxWeights, ShapesOfAnotherModel) {
  EXPECT_THAT(MessageFor(MlxParts(), {2, 96}), HasSubstr("has shape [2, 16], expected [2, 96]"));
}

// 4 × 64, 8 × 32 and 2 × 128 bits look alike. Nobody asks for any of them here, but for the shape of the
// words.
TEST(BadMlxWeights, PackedWordsAreNeverTakenForValues) {
  EXPECT_THAT(MessageFor(MlxParts(), {2, 16}), HasSubstr(kStem + ".weight has shape"));
}

TEST(BadMlxWeights, HugeShapesOfNoElements) {
  const int64_t huge = int64_t{1} << 57;
  EXPECT_THAT(MessageFor({{kStem + ".weight", {"U32", {0, huge}, ""}},
                          {kStem + ".scales", {"F32", {0, huge / 8}, ""}},
                          {kStem + ".biases", {"F32", {0, huge / 8}, ""}}}),
              HasSubstr("expected [2, 128]"));
}

TEST(NonFiniteWeights, NanInScalesIsFoundByFileAndTensor) {
  const float broken[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()};
  for (const float value : broken) {
    for (const char* part : {".scales", ".biases"}) {
      MadeTensors parts = MlxParts();
      std::memcpy(parts[kStem + part].bytes.data() + 12, &value, 4);
      const TempFolder folder;
      WeightStore store(folder.Write("w.safetensors", WeightsBytes(parts)), Component::kTransformer);
      WeightBinder binder(store);
      binder.Matrix(kStem + ".weight", {2, 128});
      EXPECT_THAT(FindNonFinite({&store}, std::chrono::minutes(1)),
                  HasSubstr("/w.safetensors: tensor \"" + kStem + part + "\" holds NaN or infinity"));
    }
  }
}

TEST(NonFiniteWeights, InPlainTensorsAndBlocks) {
  const auto find = [](const MadeTensor& part) {
    const TempFolder folder;
    const WeightStore store(folder.Write("w.safetensors", WeightsBytes({{"own.name", part}})),
                            Component::kVae);
    return FindNonFinite({&store}, std::chrono::minutes(1));
  };
  const std::string zeros(70'000 * 2, '\0');
  EXPECT_EQ(find({"BF16", {70'000}, zeros}), "");
  EXPECT_THAT(find({"BF16", {70'000}, zeros.substr(2) + "\xff\x7f"}), HasSubstr("\"own.name\" holds NaN"));
  EXPECT_THAT(find({"F16", {70'000}, zeros.substr(2) + std::string("\0\x7c", 2)}), HasSubstr("own.name"));
  EXPECT_EQ(find({"I64", {1}, std::string(8, '\xff')}), "") << "not readable, so nobody computed with it";
}

TEST(NonFiniteWeights, UndecidedWordsAreNotBlamed) {  // as floats these are NaN
  MadeTensors parts = MlxParts();
  parts[kStem + ".weight"].bytes.assign(2 * 16 * 4, '\xff');
  const TempFolder folder;
  const WeightStore store(folder.Write("w.safetensors", WeightsBytes(parts)), Component::kTransformer);
  EXPECT_EQ(FindNonFinite({&store}, std::chrono::minutes(1)), "");
}

TEST(NonFiniteWeights, TheSearchEndsInTime) {
  const TempFolder folder;
  const WeightStore store(folder.Write("w", WeightsBytes({{"t", {"F32", {1}, "\xff\xff\xff\xff"}}})),
                          Component::kVae);
  EXPECT_EQ(FindNonFinite({&store}, std::chrono::milliseconds(-1)), "");
}

TEST(BadScaledWeights, ValuesThatAreNoNumbers) {
  for (const char* dtype : {"I64", "BOOL"}) {
    const size_t element = dtype == std::string("I64") ? 8 : 1;
    const std::string name = kStem + ".weight";
    EXPECT_THAT(MessageFor({{name + "._data", {dtype, {2, 2}, std::string(4 * element, '\1')}},
                            {name + "._scale", Constant({2, 1}, 0)}},
                           {2, 2}),
                HasSubstr(fmt::format("has type {} and a scale, which this version does not read", dtype)));
  }
}

TEST(BadScaledWeights, RotatedOnesWhoseNumbersAreAbsurd) {
  const auto message = [](const std::string& group, const Shape& scale) {
    const std::string note =
        R"({"format": "int8_tensorwise", "convrot": true, "convrot_groupsize": )" + group + "}";
    return MessageFor({{kStem + ".weight", {"I8", {2, 4}, std::string(8, '\1')}},
                       {kStem + ".weight_scale", Constant(scale, 1)},
                       {kStem + ".comfy_quant", {"U8", {static_cast<int64_t>(note.size())}, note}}},
                      {2, 4});
  };
  for (const char* group :
       {"0", "-4", "5", "18446744073709551615", "9223372036854775807", "4.5", "\"4\"", "null", "[]"})
    EXPECT_THAT(message(group, {2}), AllOf(HasSubstr(kStem), HasSubstr("convrot"))) << group;
  for (const Shape& scale : {Shape{3}, Shape{0}, Shape{2, 2}})
    EXPECT_THAT(message("4", scale), HasSubstr("its scale has type F32 and shape")) << ToString(scale);
}

TEST(BadScaledWeights, ANoteThatIsNestedWithoutEnd) {
  std::string note = "{\"format\":" + std::string(200'000, '[') + std::string(200'000, ']') + "}";
  EXPECT_THAT(MessageFor({{kStem + ".weight", {"F8_E4M3", {2, 2}, std::string(4, '\0')}},
                          {kStem + ".comfy_quant", {"U8", {static_cast<int64_t>(note.size())}, note}}},
                         {2, 2}),
              HasSubstr("which this version does not read"));
}

// A file that is cut anywhere.
struct Golden {
  const char* path;
  Component component;
};

class CutWeights : public ::testing::TestWithParam<Golden> {};

TEST_P(CutWeights, AreRefusedAtEvery64thByte) {
  const ScopedVocabulary newer(kQwenImage21Vocabulary);
  const TempFolder folder;
  const fs::path path = folder.Write("w", ReadBytes(kGoldens / GetParam().path));
  for (uintmax_t size = fs::file_size(path) / 64 * 64;; size -= 64) {
    fs::resize_file(path, size);
    const std::string message = MessageOf(ErrorKind::kBadInput, [&] { ReadAll(path, GetParam().component); });
    ASSERT_THAT(message, HasSubstr(path.string())) << size;
    if (size == 0) break;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, CutWeights,
                         ::testing::Values(Golden{"mlx/quantized.safetensors", Component::kTransformer},
                                           Golden{"mlx/all_modes.safetensors", Component::kTransformer},
                                           Golden{"formats/comfy_quant.safetensors", Component::kTransformer},
                                           Golden{"formats/sdcpp_types.gguf", Component::kTransformer},
                                           Golden{"formats21/comfy_int8_convrot.safetensors",
                                                  Component::kTransformer},
                                           Golden{"gguf/all_types.gguf", Component::kTransformer}),
                         [](const auto& info) {
                           std::string name = info.param.path;
                           std::replace_if(
                               name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); },
                               '_');
                           return name;
                         });

TEST(ChangedWeights, AreNoticedByTheStore) {
  InstallTruncationGuard();
  const TempFolder folder;
  const std::string bytes = WeightsBytes({{"t", Constant({1 << 16}, 0)}});
  const fs::path path = folder.Write("w.safetensors", bytes);
  WeightStore store(path, Component::kVae);
  store.ThrowIfDamaged();
  fs::resize_file(path, 8192);
  WeightBinder binder(store);
  EXPECT_EQ(binder.Floats("t", {1 << 16}).size(), size_t{1} << 16) << "and no signal ends the process";
  for (const auto& check : {std::function<void()>([&] { store.ThrowIfDamaged(); }),
                            std::function<void()>([&] { binder.Finish(); })}) {
    EXPECT_THAT(MessageOf(ErrorKind::kBadInput, check),
                HasSubstr("w.safetensors was changed or truncated while it was in use"));
  }
}

}  // namespace
}  // namespace qwen_image
