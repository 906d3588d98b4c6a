// What `inspect` tells of a file is what the loader does with it.
#include "inspect/tensors.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "families/qwen_image_21/vocabulary.h"
#include "inspect/testing.h"
#include "weights/recognize.h"
#include "weights/store.h"

namespace qwen_image::inspect {
namespace {

namespace fs = std::filesystem;

const fs::path kGoldens = fs::path(QWEN_IMAGE_SOURCE_DIR) / "tests/goldens";
const std::string kStem = "transformer_blocks.0.attn.to_q.";

// name → shape, format and problem.
using Told = std::map<std::string, std::string>;

std::string Describe(const WeightTensor& tensor) {
  return fmt::format("{} {} {}", ToString(tensor.shape()), tensor.Format(), tensor.problem());
}

Told ByTheLoader(const fs::path& path, Component component) {
  Told told;
  const WeightStore store(path, component);
  for (const auto& [name, tensor] : store.tensors()) {
    WeightTensor settled = tensor;
    settled.ChooseQuantization();
    told[name] = Describe(settled);
  }
  return told;
}

Told ByInspect(const fs::path& path, Component component) {
  const Renamer rename = WeightStore(path, component).family().renamer(component, {}, nullptr);
  Told told;
  const Inspection inspection = Inspect(path);
  for (const InspectedTensor& tensor : inspection.components.at(0).tensors) {
    const std::string name = rename(tensor.name);
    // Signs, which the loader passes over.
    const bool marker = name == "scaled_fp8" || name.ends_with(".scale_input");
    if (!tensor.part_of.empty() || name.empty() || marker) continue;
    told[name] = fmt::format("{} {} {}", ToString(tensor.shape), tensor.format, tensor.weight->problem());
  }
  return told;
}

MadeTensor Bytes(const std::string& dtype, const Shape& shape) {
  return {dtype, shape,
          std::string(static_cast<size_t>(ElementCount(shape)) * (dtype == "U32" ? 4 : 1), '\x31')};
}

struct Format {
  friend void PrintTo(const Format& format, std::ostream* os) { *os << format.name; }
  std::string name;
  MadeTensors parts;     // of the matrix kStem, [4, 64]
  std::string expected;  // of kStem + "weight", by both
};

std::vector<Format> Formats() {
  const auto note = [](const std::string& json) {
    return MadeTensor{"U8", {static_cast<int64_t>(json.size())}, json};
  };
  const std::string w = kStem + "weight";
  const Shape shape = {4, 64};
  const MadeTensor i8 = Bytes("I8", shape), f8 = Bytes("F8_E4M3", shape), one = Constant({}, 0.5f),
                   rows = Constant({4, 1}, 0.5f);
  const auto rotated = [&](const MadeTensor& values, const std::string& json) {
    return MadeTensors{{w, values}, {kStem + "weight_scale", rows}, {kStem + "comfy_quant", note(json)}};
  };
  return {
      {"Int8WithAScale", {{w, i8}, {kStem + "weight_scale", one}}, "[4, 64] I8 ×s "},
      {"Int8WithRowScales", {{w, i8}, {kStem + "weight_scale", rows}}, "[4, 64] I8 ×s "},
      {"Int8WithoutAScale", {{w, i8}}, "[4, 64] I8 has type I8 without a scale"},
      {"Quanto", {{w + "._data", i8}, {w + "._scale", rows}}, "[4, 64] I8 ×s "},
      {"QuantoFp8", {{w + "._data", f8}, {w + "._scale", rows}}, "[4, 64] F8_E4M3 ×s "},
      {"QuantoWithoutAScale",
       {{w + "._data", i8}},
       "[4, 64] I8 has quantized values (._data), but its ._scale is missing"},
      {"ComfyNote",
       {{w, f8},
        {kStem + "weight_scale", one},
        {kStem + "comfy_quant", note(R"({"format": "float8_e4m3fn"})")}},
       "[4, 64] F8_E4M3 ×s "},
      {"ComfyInt8Note",
       {{w, i8},
        {kStem + "weight_scale", one},
        {kStem + "comfy_quant", note(R"({"format": "int8_tensorwise"})")}},
       "[4, 64] I8 ×s "},
      {"ComfyRotated",
       rotated(i8, R"({"format": "int8_tensorwise", "convrot": true, "convrot_groupsize": 64})"),
       "[4, 64] I8 ×s R64 "},
      {"ComfyNotRotated", rotated(i8, R"({"format": "int8_tensorwise", "convrot": false})"),
       "[4, 64] I8 ×s "},
      {"ComfyRotatedInTooLargeGroups", rotated(i8, R"({"format": "int8_tensorwise", "convrot": true})"),
       "[4, 64] I8 ×s R256 is stored rotated (comfy_quant convrot) in groups of 256 values, but rows of 64"},
      {"ComfyRotatedInOddGroups",
       rotated(i8, R"({"format": "int8_tensorwise", "convrot": true, "convrot_groupsize": 32})"),
       "[4, 64] I8 ×s R32 is stored rotated (comfy_quant convrot) in groups of 32 values; a power of 4 from "
       "4 "
       "to 256 is expected"},
      {"ComfyRotatedInNoGroups",
       rotated(i8, R"({"format": "int8_tensorwise", "convrot": true, "convrot_groupsize": -4})"),
       "[4, 64] I8 ×s is stored rotated (comfy_quant convrot true, convrot_groupsize -4) as "
       "\"int8_tensorwise\", which this version does not read"},
      {"ComfyRotatedFp8", rotated(f8, R"({"format": "float8_e4m3fn", "convrot": true})"),
       "[4, 64] F8_E4M3 ×s is stored rotated (comfy_quant convrot true, convrot_groupsize 256) as "
       "\"float8_e4m3fn\", which this version does not read"},
      {"ComfyRotatedPlainNumbers",
       rotated(Constant(shape, 1),
               R"({"format": "int8_tensorwise", "convrot": true, "convrot_groupsize": 64})"),
       "[4, 64] F32 ×s R64 is stored rotated (comfy_quant convrot), but has type F32 and shape [4, 64]; a "
       "matrix of I8 is expected"},
      {"ComfyRotatedWithoutAScale",
       {{w, i8},
        {kStem + "comfy_quant",
         note(R"({"format": "int8_tensorwise", "convrot": true, "convrot_groupsize": 64})")}},
       "[4, 64] I8 is stored rotated (comfy_quant convrot), but its scale is missing"},
      {"Fp8ScaleWeight", {{w, f8}, {kStem + "scale_weight", one}}, "[4, 64] F8_E4M3 ×s "},
      {"Fp8WeightScale", {{w, f8}, {kStem + "weight_scale", rows}}, "[4, 64] F8_E4M3 ×s "},
      {"Fp8WeightScaleInv", {{w, f8}, {kStem + "weight_scale_inv", one}}, "[4, 64] F8_E4M3 ×s "},
      {"Fp8BlockwiseScales",
       {{w, f8}, {kStem + "weight_scale_inv", Constant({2, 2}, 1)}},
       "[4, 64] F8_E4M3 ×s its scale has type F32 and shape [2, 2]; one number, or one for each of 4 rows, "
       "is "
       "expected (one for each block is not read by this version)"},
      {"PlainFp8", {{w, f8}}, "[4, 64] F8_E4M3 "},
      {"MlxGroups",
       {{w, Bytes("U32", {4, 10})},
        {kStem + "scales", Constant({4, 2}, 1)},
        {kStem + "biases", Constant({4, 2}, 0)}},
       "[4, 64] 5-bit g32 "},
      {"MlxGroupsOfMlxRs",
       {{kStem + "inner.weight", Bytes("U32", {4, 10})},
        {kStem + "scales", Constant({4, 2}, 1)},
        {kStem + "biases", Constant({4, 2}, 0)}},
       "[4, 64] 5-bit g32 "},
      {"MlxWithoutBiases",
       {{w, Bytes("U32", {4, 10})}, {kStem + "scales", Constant({4, 2}, 1)}},
       "[4, 10] U32 ×s holds packed values (U32), but its .biases are missing"},
      {"Microscaled",
       {{w, Bytes("U32", {4, 8})}, {kStem + "scales", Bytes("U8", {4, 2})}},
       "[4, 64] mxfp4 is packed with 8-bit scales (mxfp4, mxfp8 or nvfp4), which this version does not read"},
  };
}

class OneReader : public ::testing::TestWithParam<Format> {};

TEST_P(OneReader, InspectAndLoaderTellTheSame) {
  const TempFolder folder;
  MadeTensors tensors = GetParam().parts;
  tensors["txt_norm.weight"] = Random({64}, 1);
  for (const std::string prefix : {"", "model.diffusion_model."}) {
    MadeTensors prefixed;
    for (const auto& [name, tensor] : tensors) prefixed[prefix + name] = tensor;
    const fs::path path = folder.Write("w.safetensors", WeightsBytes(prefixed));
    const Told loader = ByTheLoader(path, Component::kTransformer);
    EXPECT_EQ(loader.at(kStem + "weight"), GetParam().expected);
    EXPECT_EQ(loader.size(), 2u) << "the parts are no tensors of their own";
    EXPECT_EQ(ByInspect(path, Component::kTransformer), loader);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, OneReader, ::testing::ValuesIn(Formats()),
                         [](const auto& info) { return info.param.name; });

TEST(OneReaderOfFiles, InspectAndLoaderTellTheSameOfOtherToolsFiles) {
  const ScopedVocabulary newer(kQwenImage21Vocabulary);
  for (const char* folder : {"formats", "formats21"}) {
    int files = 0;
    for (const auto& entry : fs::directory_iterator(kGoldens / folder)) {
      const fs::path& path = entry.path();
      if (path.extension() != ".safetensors" && path.extension() != ".gguf") continue;
      SCOPED_TRACE(path.filename());
      const RecognizedFile found = RecognizeFile(path);
      for (const Component component : found.components) {
        if (component == Component::kVae) continue;  // mflux turns convolutions: inspect shows them as stored
        EXPECT_EQ(ByInspect(path, component), ByTheLoader(path, component));
        ++files;
      }
    }
    EXPECT_GT(files, 2) << folder;
  }
}

}  // namespace
}  // namespace qwen_image::inspect
