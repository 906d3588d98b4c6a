#include "weights/fused.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/fail.h"
#include "families/qwen_image_21/vocabulary.h"
#include "files/gguf_testing.h"
#include "inspect/testing.h"
#include "weights/store.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kBlock = "transformer_blocks.0.img_mlp.";
constexpr int64_t kRows = 6, kCols = 64;

MadeTensor Bytes(const std::string& dtype, const Shape& shape, unsigned seed) {
  const int64_t size = dtype == "U32" || dtype == "F32" ? 4 : dtype == "BF16" ? 2 : 1;
  std::mt19937 engine(seed);
  std::string bytes(static_cast<size_t>(ElementCount(shape) * size), '\0');
  for (char& byte : bytes) byte = static_cast<char>(engine() & 0x3f);  // finite in every type
  return {dtype, shape, bytes};
}

MadeTensor Note(const std::string& json) { return {"U8", {static_cast<int64_t>(json.size())}, json}; }

constexpr const char* kRotated = R"({"format": "int8_tensorwise", "convrot": true, "convrot_groupsize": 64})";

struct Form {
  friend void PrintTo(const Form& form, std::ostream* os) { *os << form.name; }
  std::string name;
  MadeTensors parts;  // of a matrix [kRows, kCols], by the ends of their names
};

std::vector<Form> Forms() {
  const Shape shape = {kRows, kCols};
  return {
      {"Plain", {{"weight", Random(shape, 1)}}},
      {"Bf16", {{"weight", Bytes("BF16", shape, 2)}}},
      {"Fp8WithAScale", {{"weight", Bytes("F8_E4M3", shape, 3)}, {"scale_weight", Constant({}, 0.5f)}}},
      {"Fp8WithRowScales", {{"weight", Bytes("F8_E4M3", shape, 4)}, {"weight_scale", Random({kRows}, 5)}}},
      {"Int8WithRowScales", {{"weight", Bytes("I8", shape, 6)}, {"weight_scale", Random({kRows, 1}, 7)}}},
      {"Rotated",
       {{"weight", Bytes("I8", shape, 8)},
        {"weight_scale", Random({kRows, 1}, 9)},
        {"comfy_quant", Note(kRotated)}}},
      {"Quanto", {{"weight._data", Bytes("I8", shape, 10)}, {"weight._scale", Random({kRows, 1}, 11)}}},
      {"Mlx",
       {{"weight", Bytes("U32", {kRows, kCols * 5 / 32}, 12)},
        {"scales", Random({kRows, kCols / 32}, 13)},
        {"biases", Random({kRows, kCols / 32}, 14)}}},
  };
}

MadeTensors Module(const std::string& name, const MadeTensors& parts) {
  MadeTensors module;
  for (const auto& [part, tensor] : parts) module[fmt::format("{}.{}", name, part)] = tensor;
  return module;
}

// By the loader, of the only file in a folder.
class FusedRowsTest : public ::testing::Test {
 protected:
  fs::path Write(MadeTensors tensors, const std::string& prefix = "", const Json& metadata = nullptr) const {
    tensors["txt_in.text_norm.weight"] = Random({kCols}, 1);
    MadeTensors prefixed;
    for (const auto& [name, tensor] : tensors) prefixed[prefix + name] = tensor;
    return folder_.Write("w.safetensors", WeightsBytes(prefixed, metadata));
  }
  static std::vector<float> Part(const std::vector<float>& all, size_t index) {
    const size_t half = all.size() / 2;
    return {all.begin() + static_cast<int64_t>(index * half),
            all.begin() + static_cast<int64_t>((index + 1) * half)};
  }

  const ScopedVocabulary family_{kQwenImage21Vocabulary};
  TempFolder folder_;
};

class FusedForms : public FusedRowsTest, public ::testing::WithParamInterface<Form> {};

TEST_P(FusedForms, AreTheModulesWhoseRowsTheyAre) {
  for (const std::string prefix : {"", "model.diffusion_model."}) {
    // The same parts, once under a name that is not fused: what they are worth as one matrix.
    MadeTensors tensors = Module(std::string(kBlock) + "gate_up", GetParam().parts);
    tensors.merge(Module("whole", GetParam().parts));
    const fs::path path = Write(tensors, prefix);
    const WeightStore store(path, Component::kTransformer);
    ASSERT_EQ(store.tensors().size(), 4u);
    const std::vector<float> whole = store.Find("whole.weight")->Values();
    const WeightTensor *gate = store.Find(std::string(kBlock) + "gate_layer.weight"),
                       *up = store.Find(std::string(kBlock) + "proj.weight");
    ASSERT_TRUE(gate && up);
    EXPECT_THAT(gate->shape(), ElementsAre(kRows / 2, kCols));
    EXPECT_EQ(gate->Values(), Part(whole, 0));
    EXPECT_EQ(up->Values(), Part(whole, 1));
    EXPECT_NE(Part(whole, 0), Part(whole, 1));
    EXPECT_EQ(gate->Format(), store.Find("whole.weight")->Format());
    // Where they lie: the one behind the other, nothing is copied.
    const auto first = gate->stored().tensor->bytes, second = up->stored().tensor->bytes;
    EXPECT_EQ(first.data() + first.size(), second.data());

    const inspect::Inspection inspection = inspect::Inspect(path);
    for (const char* module : {"gate_layer", "proj"}) {
      const inspect::InspectedTensor* tensor =
          inspection.components[0].Find(prefix + kBlock + module + ".weight");
      ASSERT_TRUE(tensor) << module;
      EXPECT_EQ(tensor->format, gate->Format());
      EXPECT_THAT(tensor->shape, ElementsAre(kRows / 2, kCols));
      EXPECT_TRUE(tensor->statistics);
    }
    EXPECT_EQ(inspection.components[0].parameters(), 2 * kRows * kCols + kCols);
    EXPECT_FALSE(inspection.broken());
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, FusedForms, ::testing::ValuesIn(Forms()),
                         [](const auto& info) { return info.param.name; });

// Each block of 32 values is 2 bytes of scale and 32 of q.
TEST_F(FusedRowsTest, BlocksOfGguf) {
  std::string blocks;
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t block = 0; block < kCols / 32; ++block)
      blocks += LittleEndian(0x3c00, 2) + std::string(32, static_cast<char>(row + 1));
  }
  constexpr uint32_t kF32 = 0, kQ8 = 8;
  // No metadata at all, as some tools write them; a norm is quantized too.
  GgufBytes gguf;
  gguf.Tensor("transformer_blocks.0.img_mlp.gate_up.weight", {kCols, kRows}, kQ8, 0).Data(blocks);
  gguf.Data(std::string((32 - blocks.size() % 32) % 32, '\0'));
  gguf.Tensor("txt_in.text_norm.weight", {32}, kQ8, gguf.data.size())
      .Data(LittleEndian(0x3800, 2) + std::string(32, '\4'));
  gguf.Data(std::string((32 - gguf.data.size() % 32) % 32, '\0'));
  gguf.Tensor("img_in.weight", {1, 1}, kF32, gguf.data.size()).Data(LittleEndian(0, 4));
  const WeightStore store(folder_.Write("w.gguf", gguf.Bytes()), Component::kTransformer);
  EXPECT_EQ(store.family().model, "Qwen-Image-2.1");
  const std::vector<float> up = store.Find(std::string(kBlock) + "proj.weight")->Values();
  ASSERT_EQ(up.size(), static_cast<size_t>(kRows / 2 * kCols));
  EXPECT_EQ(up.front(), 4);
  EXPECT_EQ(up.back(), 6);
  EXPECT_EQ(store.Find(std::string(kBlock) + "gate_layer.weight")->Values().back(), 3);
  EXPECT_EQ(store.Find("txt_in.text_norm.weight")->Values(), std::vector<float>(32, 2));
}

// What is said of the whole matrix alone holds for its parts.
TEST_F(FusedRowsTest, ANoteInTheMetadata) {
  const std::string module = std::string(kBlock) + "gate_up";
  const MadeTensors parts = {{"weight", Bytes("I8", {kRows, kCols}, 8)},
                             {"weight_scale", Random({kRows}, 9)}};
  const Json layers = {{"layers", {{module, Json::parse(kRotated)}}}};
  MadeTensors beside = parts;
  beside["comfy_quant"] = Note(kRotated);
  std::vector<std::vector<float>> values;
  for (const fs::path& path :
       {Write(Module(module, parts), "model.diffusion_model.", {{"_quantization_metadata", layers.dump()}}),
        folder_.Write("beside.safetensors", WeightsBytes(Module(module, beside)))}) {
    const WeightStore store(path, Component::kTransformer);
    for (const char* part : {"gate_layer.weight", "proj.weight"}) {
      EXPECT_EQ(store.Find(kBlock + std::string(part))->Format(), "I8 ×s R64");
      values.push_back(store.Find(kBlock + std::string(part))->Values());
    }
  }
  EXPECT_EQ(values[0], values[2]);
  EXPECT_EQ(values[1], values[3]);
}

// A text may be as long as the matrix has rows.
TEST_F(FusedRowsTest, ANoteIsNotDivided) {
  MadeTensor note = Note(kRotated);
  if (note.shape[0] % 2) note = Note(std::string(kRotated) + " ");
  const int64_t rows = note.shape[0];
  const WeightStore store(
      Write(Module(std::string(kBlock) + "gate_up", {{"weight", Bytes("I8", {rows, 64}, 1)},
                                                     {"weight_scale", Random({rows}, 2)},
                                                     {"comfy_quant", note}})),
      Component::kTransformer);
  EXPECT_EQ(store.Find(std::string(kBlock) + "proj.weight")->problem(), "");
  EXPECT_EQ(store.Find(std::string(kBlock) + "proj.weight")->Format(), "I8 ×s R64");
}

TEST_F(FusedRowsTest, PartsInSeveralShards) {
  const std::string module = std::string(kBlock) + "gate_up.";
  MadeTensors mlx = Forms().back().parts;
  folder_.Write("0.safetensors", WeightsBytes({{module + "scales", mlx["scales"]},
                                               {"txt_in.text_norm.weight", Random({kCols}, 1)}}));
  folder_.Write("1.safetensors",
                WeightsBytes({{module + "weight", mlx["weight"]}, {module + "biases", mlx["biases"]}}));
  const Json map = {{module + "scales", "0.safetensors"},
                    {"txt_in.text_norm.weight", "0.safetensors"},
                    {module + "weight", "1.safetensors"},
                    {module + "biases", "1.safetensors"}};
  folder_.Write("model.safetensors.index.json", Json{{"weight_map", map}}.dump());
  const WeightStore store(folder_.path(), Component::kTransformer);
  ASSERT_TRUE(store.Find(std::string(kBlock) + "gate_layer.weight"));
  EXPECT_EQ(store.Find(std::string(kBlock) + "gate_layer.weight")->Format(), "5-bit g32");
  EXPECT_FALSE(inspect::Inspect(folder_.path()).broken());
}

TEST_F(FusedRowsTest, WhatCannotBeDividedIsNamed) {
  const std::string whole = std::string(kBlock) + "gate_up.weight";
  const auto message = [&](const MadeTensors& tensors) {
    const fs::path path = Write(tensors);
    EXPECT_TRUE(inspect::Inspect(path).broken());
    return MessageOf(ErrorKind::kBadInput, [&] { WeightStore(path, Component::kTransformer); });
  };
  EXPECT_THAT(message({{whole, Random({5, 4}, 1)}}),
              AllOf(HasSubstr("w.safetensors"), HasSubstr(whole), HasSubstr("shape [5, 4]"),
                    HasSubstr("gate_layer"), HasSubstr("proj")));
  EXPECT_THAT(message({{whole, Constant({}, 1)}}), HasSubstr("shape []"));
  EXPECT_THAT(message({{whole, Random({4, 4}, 1)}, {std::string(kBlock) + "proj.weight", Random({2, 4}, 2)}}),
              AllOf(HasSubstr("proj.weight"), HasSubstr("there twice"), HasSubstr("gate_up.weight")));
}

// Other families have no such modules; a LoRA's matrices are divided by its reader.
TEST_F(FusedRowsTest, OnlyWeightsOfTheseNamesAreDivided) {
  EXPECT_THAT(
      PartsOfFused("a.transformer_blocks.7.img_mlp.gate_up"),
      ElementsAre("a.transformer_blocks.7.img_mlp.gate_layer", "a.transformer_blocks.7.img_mlp.proj"));
  EXPECT_THAT(PartsOfFused("transformer_blocks_7_img_mlp_gate_up", /*flat=*/true),
              ElementsAre("transformer_blocks_7_img_mlp_gate_layer", "transformer_blocks_7_img_mlp_proj"));
  EXPECT_THAT(PartsOfFused("transformer_blocks.7.img_mlp.gate_up.x"), ElementsAre());
  EXPECT_EQ(FusedNameOf("x.img_mlp.proj"), "x.img_mlp.gate_up");
  EXPECT_EQ(FusedNameOf("x.img_mlp.out"), "");
  const std::string up = std::string(kBlock) + "gate_up.lora_B.weight";
  const WeightSet set =
      OpenSingleFile(Write({{"x.gate_up.weight", Random({4, 4}, 1)}, {up, Random({4, 4}, 2)}}), "set");
  EXPECT_EQ(set.files[0]->tensors().count("x.gate_up.weight"), 1u);
  EXPECT_EQ(set.files[0]->tensors().count(up), 1u);
}

}  // namespace
}  // namespace qwen_image
