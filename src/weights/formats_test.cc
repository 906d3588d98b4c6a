// Files that other programs wrote (tests/goldens/formats and formats21; tools/formats made them), against
// what those programs themselves read from them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "core/fail.h"
#include "families/qwen_image_21/vocabulary.h"
#include "files/json.h"
#include "files/testing.h"
#include "weights/binder.h"
#include "weights/testing.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const fs::path kGoldens = fs::path(QWEN_IMAGE_SOURCE_DIR) / "tests/goldens";

struct ForeignFile {
  std::string path, component, tool;
  Json tensors;
};

std::vector<ForeignFile> ForeignFiles() {
  std::vector<ForeignFile> files;
  for (const std::string folder : {"formats", "formats21"}) {
    const Json expected = ReadJsonFile(kGoldens / folder / "expected.json");
    for (const Json& file : expected.at("files")) {
      files.push_back({folder + "/" + file.at("path").get<std::string>(), file.at("component"),
                       file.at("tool"), file.at("tensors")});
    }
  }
  return files;
}

void PrintTo(const ForeignFile& file, std::ostream* out) { *out << file.path; }

class ForeignWeights : public ::testing::TestWithParam<ForeignFile> {};

// The sums of expected.json, in double like theirs.
void ExpectValues(const std::vector<float>& values, const Json& expected) {
  double sum = 0, squares = 0, ordered = 0, magnitude = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    sum += values[i];
    squares += static_cast<double>(values[i]) * values[i];
    ordered += static_cast<double>(values[i]) * static_cast<double>(i % 97);
    magnitude += std::abs(values[i]);
  }
  // The values are the same floats up to the last bit of one product and one sum.
  const double tolerance = 1e-6 * magnitude + 1e-12;
  EXPECT_NEAR(sum, expected.at("sum").get<double>(), tolerance);
  EXPECT_NEAR(squares, expected.at("sum_squares").get<double>(), 1e-6 * squares + 1e-12);
  EXPECT_NEAR(ordered, expected.at("ordered_sum").get<double>(), 97 * tolerance);
  for (const Json& probe : expected.at("probes")) {
    const double value = probe.at(1).get<double>();
    EXPECT_NEAR(values.at(probe.at(0).get<size_t>()), value, 1e-6 * std::abs(value) + 1e-9);
  }
}

TEST_P(ForeignWeights, AreWorthWhatTheirToolReads) {
  const ScopedVocabulary newer(kQwenImage21Vocabulary);
  const ForeignFile& file = GetParam();
  const Component component = ParseComponent(file.component);
  WeightStore store(kGoldens / file.path, component);
  WeightBinder binder(store);
  for (const auto& [name, expected] : file.tensors.items()) {
    SCOPED_TRACE(file.path + ": " + name);
    const std::string here = store.family().renamer(component, {}, nullptr)(name);
    const std::vector<float> values = binder.Floats(here, expected.at("shape").get<Shape>());
    ASSERT_FALSE(values.empty());
    ExpectValues(values, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Tools, ForeignWeights, ::testing::ValuesIn(ForeignFiles()), [](const auto& info) {
  std::string name = info.param.path;
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
});

TEST(ForeignWeightsRefused, StorageThatOnlyANoteTells) {
  const TempFolder folder;
  const auto message = [&](const std::string& metadata, const std::string& note) {
    const std::string beside =
        note.empty()
            ? ""
            : fmt::format(R"(,"x.comfy_quant":{{"dtype":"U8","shape":[{0}],"data_offsets":[5,{1}]}})",
                          note.size(), 5 + note.size());
    folder.Write("f.safetensors",
                 SafetensorsBytes(
                     fmt::format(R"({{{}"x.weight":{{"dtype":"I8","shape":[1],"data_offsets":[0,1]}},)"
                                 R"("x.weight_scale":{{"dtype":"F32","shape":[],"data_offsets":[1,5]}}{}}})",
                                 metadata, beside),
                     "xabcd" + note));
    WeightStore store(folder.path() / "f.safetensors", Component::kTransformer);
    return store.Find("x.weight")->problem();
  };
  EXPECT_EQ(message("", ""), "");
  EXPECT_EQ(message("", R"({"format": "int8_tensorwise"})"), "");
  EXPECT_THAT(message("", R"({"format": "awq_w4a16"})"),
              HasSubstr("is stored as \"awq_w4a16\" (comfy_quant)"));
  EXPECT_THAT(message("", "{"), HasSubstr("is stored as null"));
  const char* layers =
      R"("__metadata__":{"_quantization_metadata":"{\"layers\":{\"model.diffusion_model.x\":{\"format\":\"nvfp4\"}}}"},)";
  EXPECT_THAT(message(layers, ""), HasSubstr("is stored as \"nvfp4\""));
}

// The metadata know a layer by the name that it has in the file, which is not the model's.
TEST(NotesInTheMetadata, AreFoundUnderTheNamesOfTheFile) {
  const TempFolder folder;
  const std::string layer = "model.layers.0.mlp.up_proj";
  const Json layers = {{"layers", {{layer, {{"format", "int8_tensorwise"}, {"convrot", true}}}}}};
  folder.Write("f.safetensors", WeightsBytes({{layer + ".weight", {"I8", {2, 256}, std::string(512, '\1')}},
                                              {layer + ".weight_scale", Constant({2, 1}, 0.5f)},
                                              {"model.embed_tokens.weight", Constant({2, 2}, 1)}},
                                             {{"_quantization_metadata", layers.dump()}}));
  const WeightStore store(folder.path() / "f.safetensors", Component::kTextEncoder);
  const WeightTensor* tensor = store.Find("model.language_model.layers.0.mlp.up_proj.weight");
  ASSERT_TRUE(tensor);
  EXPECT_EQ(tensor->Format(), "I8 ×s R256");
  // Every column of the rotation adds up to 1, so that ones stay ones.
  EXPECT_EQ(tensor->Values(), std::vector<float>(512, 0.5f));
}

}  // namespace
}  // namespace qwen_image
