#include "inspect/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/fail.h"
#include "inspect/testing.h"

namespace qwen_image::inspect {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const fs::path kSource = QWEN_IMAGE_SOURCE_DIR;

class InspectMade : public testing::Test {
 protected:
  // The findings about these tensors, alone in a file.
  std::vector<Finding> Findings(const MadeTensors& tensors, const std::string& config = "") {
    folder_.Write("model.safetensors", WeightsBytes(tensors));
    if (!config.empty()) folder_.Write("config.json", config);
    return Inspect(folder_.path()).components.at(0).findings;
  }

  const TempFolder folder_;
};

auto Is(Severity severity, const std::string& kind, const std::string& subject) {
  return AllOf(Field(&Finding::severity, severity), Field(&Finding::kind, kind),
               Field(&Finding::subject, subject));
}

TEST_F(InspectMade, GoodWeightsGiveNoFinding) {
  EXPECT_THAT(Findings(GoodBlocks(6)), IsEmpty());
  EXPECT_THAT(Findings(GoodBlocks(6), R"({"num_layers": 6})"), IsEmpty());
}

TEST_F(InspectMade, FiguresAreRight) {
  folder_.Write("m.safetensors", WeightsBytes({{"a", Floats({2, 2}, {-1, 0, 0, 4})}}));
  const Inspection inspection = Inspect(folder_.path() / "m.safetensors");
  const InspectedTensor& a = inspection.components.at(0).tensors.at(0);
  EXPECT_EQ(a.shape, (Shape{2, 2}));
  EXPECT_EQ(a.format, "F32");
  EXPECT_EQ(a.bytes(), 16);
  EXPECT_EQ(a.parameters(), 4);
  EXPECT_EQ(a.statistics->mean, 0.75);
  EXPECT_NEAR(a.statistics->std(), std::sqrt(17.0 / 4 - 0.75 * 0.75), 1e-12);
  EXPECT_EQ(a.statistics->min, -1);
  EXPECT_EQ(a.statistics->max, 4);
  EXPECT_EQ(a.statistics->zero_share(), 0.5);
}

TEST_F(InspectMade, FiguresDoNotDependOnThreads) {
  MadeTensors tensors;
  for (unsigned i = 0; i < 5; ++i)
    tensors[std::string(1, static_cast<char>('a' + i))] = Random({1100, 1000}, i);
  folder_.Write("m.safetensors", WeightsBytes(tensors));  // each a little more than one chunk
  const CancelFlag cancel;
  ThreadPool one(1), three(3);
  const Inspection x = InspectWeights(folder_.path(), {}, {one, cancel, {}});
  const Inspection y = InspectWeights(folder_.path(), {}, {three, cancel, {}});
  for (size_t i = 0; i < tensors.size(); ++i) {
    const InspectedTensor &a = x.components[0].tensors[i], &b = y.components[0].tensors[i];
    EXPECT_GT(a.chunks.size(), 1u);
    EXPECT_EQ(a.checksum, b.checksum);
    EXPECT_EQ(a.statistics->mean, b.statistics->mean);
    EXPECT_EQ(a.statistics->squares, b.statistics->squares);
  }
}

TEST_F(InspectMade, NotFiniteIsBroken) {
  MadeTensors tensors = GoodBlocks(3);
  tensors["a.weight"] = Floats({2}, {1, std::nanf("")});
  tensors["b.weight"] = Floats({2}, {1, std::numeric_limits<float>::infinity()});
  EXPECT_THAT(Findings(tensors), ElementsAre(Is(Severity::kBroken, "nan_or_inf", "a.weight, b.weight")));
}

TEST_F(InspectMade, ZerosAndConstantsAreFoldedByRole) {
  MadeTensors tensors = GoodBlocks(3);
  tensors["blocks.0.attn.to_q.bias"] = tensors["blocks.2.attn.to_q.bias"] = Constant({16}, 0);
  tensors["blocks.1.norm.weight"] = Constant({16}, 1);
  tensors["proj.weight"] = Constant({4, 4}, 0.5);
  tensors["alpha"] = Constant({}, 0);  // a single number is no weight
  tensors["ids"] = {"I64", {4}, std::string(32, '\0')};
  EXPECT_THAT(Findings(tensors),
              ElementsAre(Is(Severity::kWarning, "all_zero", "blocks.{0,2}.attn.to_q.bias"),
                          Is(Severity::kWarning, "constant", "proj.weight"),
                          Is(Severity::kNote, "constant", "blocks.1.norm.weight")));
}

TEST_F(InspectMade, DuplicatesOfTensorsAndOfWholeBlocks) {
  MadeTensors tensors = GoodBlocks(4);
  tensors["x.weight"] = tensors["other.y.weight"] = Random({4, 4}, 77);
  for (const auto& [name, tensor] : GoodBlocks(4)) {
    if (name.starts_with("blocks.1.")) tensors["blocks.3." + name.substr(9)] = tensor;
  }
  tensors["ones.norm1.weight"] = tensors["ones.norm2.weight"] = Constant({16}, 1);  // equal for a reason
  const std::vector<Finding> findings = Findings(tensors);
  ASSERT_GE(findings.size(), 2u);
  EXPECT_THAT(findings[0], Is(Severity::kWarning, "duplicates", "other.y.weight = x.weight"));
  EXPECT_THAT(findings[1], Is(Severity::kWarning, "duplicates", "blocks.{1,3}"));
  EXPECT_THAT(findings[1].text, HasSubstr("5 tensors"));
  EXPECT_EQ(findings[1].tensors.size(), 10u);
  EXPECT_TRUE(std::all_of(findings.begin() + 2, findings.end(),
                          [](const Finding& f) { return f.kind == "constant"; }));
}

TEST_F(InspectMade, TiedEmbeddingsAreANote) {
  MadeTensors tensors = GoodBlocks(1);
  tensors["embed_tokens.weight"] = tensors["lm_head.weight"] = Random({8, 8}, 5);
  EXPECT_THAT(Findings(tensors),
              ElementsAre(Is(Severity::kNote, "duplicates", "embed_tokens.weight = lm_head.weight")));
}

TEST_F(InspectMade, ASpreadOutOfLine) {
  MadeTensors tensors = GoodBlocks(6);
  tensors["blocks.4.attn.to_q.weight"] = Random({16, 16}, 99, 0.05f * 4);
  EXPECT_THAT(Findings(tensors), ElementsAre(Is(Severity::kWarning, "odd_std", "blocks.4.attn.to_q.weight")));
  tensors["blocks.4.attn.to_q.weight"] = Random({16, 16}, 99, 0.05f * 2);  // not so unusual
  EXPECT_THAT(Findings(tensors), IsEmpty());
  MadeTensors few = GoodBlocks(4);  // three peers are too few to say what is usual
  few["blocks.3.attn.to_q.weight"] = Random({16, 16}, 99, 0.05f * 10);
  EXPECT_THAT(Findings(few), IsEmpty());
  for (int i = 0; i < 6; ++i) {  // a role whose spread varies by nature
    tensors["blocks." + std::to_string(i) + ".attn.to_q.weight"] =
        Random({16, 16}, 7, std::pow(2.5f, i) / 100);
  }
  EXPECT_THAT(Findings(tensors), IsEmpty());
}

TEST_F(InspectMade, ATypeThatThePeersDoNotHave) {
  MadeTensors tensors = GoodBlocks(5);
  std::string halves;
  for (unsigned i = 0; i < 16; ++i) halves += LittleEndian(0x2800 + 37 * i, 2);
  tensors["blocks.2.attn.to_q.bias"] = {"F16", {16}, halves};
  const std::vector<Finding> findings = Findings(tensors);
  ASSERT_THAT(findings, ElementsAre(Is(Severity::kWarning, "odd_dtype", "blocks.2.attn.to_q.bias")));
  EXPECT_THAT(findings[0].text, HasSubstr("F16, while 4 of 5"));
}

TEST_F(InspectMade, MissingBlocksAndTensors) {
  MadeTensors tensors = GoodBlocks(8);
  std::erase_if(tensors, [](const auto& t) {
    return t.first.starts_with("blocks.2.") || t.first.starts_with("blocks.0.");
  });
  tensors.erase("blocks.5.attn.to_q.bias");
  EXPECT_THAT(Findings(tensors),
              ElementsAre(Is(Severity::kBroken, "missing_blocks", "blocks.{0,2}"),
                          Is(Severity::kBroken, "missing_tensor", "blocks.5.attn.to_q.bias")));
}

TEST_F(InspectMade, TheConfigKnowsHowManyBlocksThereShouldBe) {
  MadeTensors tensors;
  for (const auto& [name, tensor] : GoodBlocks(3)) tensors["transformer_" + name] = tensor;
  EXPECT_THAT(Findings(tensors, R"({"num_layers": 5})"),
              ElementsAre(Is(Severity::kBroken, "missing_blocks", "transformer_blocks.{3…4}")));
  EXPECT_THAT(Findings(tensors, R"({"num_layers": 2})"),
              ElementsAre(Is(Severity::kWarning, "extra_blocks", "transformer_blocks.{2}")));
  EXPECT_THAT(Findings(tensors, R"({"num_layers": "many"})"), IsEmpty());
}

TEST_F(InspectMade, ALoraMayLeaveBlocksOut) {
  MadeTensors tensors;
  for (const int i : {1, 2, 5}) {
    const std::string block = "blocks." + std::to_string(i) + ".attn.to_q.";
    tensors[block + "lora_A.weight"] = Random({4, 16}, static_cast<unsigned>(i));
    tensors[block + "lora_B.weight"] = Constant({16, 4}, 0);
  }
  EXPECT_THAT(Findings(tensors),
              ElementsAre(Is(Severity::kWarning, "all_zero", "blocks.{1,2,5}.attn.to_q.lora_B.weight"),
                          Is(Severity::kNote, "missing_blocks", "blocks.{0,3…4}")));
}

// Quantized weights, as MLX itself wrote them.

MadeTensors MlxModel() {
  MadeTensors tensors;
  const auto file = OpenWeightFile(kSource / "tests/goldens/mlx/quantized.safetensors");
  for (const auto& [name, entry] : file->tensors()) {
    tensors[name] = {std::string(NameOf(entry.dtype)), entry.shape,
                     std::string(reinterpret_cast<const char*>(entry.bytes.data()), entry.bytes.size())};
  }
  return tensors;
}

TEST_F(InspectMade, QuantizedTriplesShowTheValuesTheyStandFor) {
  EXPECT_THAT(Findings(MlxModel()), IsEmpty());
  const Inspection inspection = Inspect(folder_.path());
  const InspectedComponent& component = inspection.components.at(0);
  const InspectedTensor& weight = *component.Find("layers.0.proj.weight");
  EXPECT_EQ(weight.format, "4-bit g64");
  EXPECT_EQ(weight.shape, (Shape{16, 128}));
  EXPECT_NEAR(weight.statistics->std(), 0.05, 0.005);
  EXPECT_EQ(weight.statistics->count, 16 * 128);
  EXPECT_EQ(component.Find("layers.1.proj.weight")->format, "8-bit g32");
  EXPECT_EQ(component.Find("layers.2.proj.weight")->format, "2-bit g128");
  EXPECT_EQ(component.Find("layers.0.proj.scales")->part_of, weight.name);
  EXPECT_EQ(component.parameters(), (16 + 8 + 32) * 129) << "scales and biases are no parameters";
}

TEST_F(InspectMade, MissingPartsOfQuantizedWeightsAreBroken) {
  MadeTensors tensors = MlxModel();
  tensors.erase("layers.0.proj.scales");
  tensors.erase("layers.1.proj.biases");
  tensors.erase("layers.2.proj.weight");
  EXPECT_THAT(Findings(tensors), ElementsAre(Is(Severity::kBroken, "missing_scales", "layers.0.proj.weight"),
                                             Is(Severity::kBroken, "missing_biases", "layers.1.proj.weight"),
                                             Is(Severity::kBroken, "orphaned_part",
                                                "layers.2.proj.biases, layers.2.proj.scales")));
  tensors = MlxModel();
  tensors["layers.0.proj.scales"] = tensors["layers.0.proj.biases"] = Random({16, 3}, 1);
  EXPECT_THAT(Findings(tensors),
              ElementsAre(Is(Severity::kBroken, "parts_do_not_fit", "layers.0.proj.weight")));
}

// As the loader, which refuses tensors that it does not expect.
TEST_F(InspectMade, ScalesThatBelongToNothingAreBroken) {
  std::string bytes(4 * 64, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(0x20 + i % 32);
  const MadeTensor fp8 = {"F8_E4M3", {4, 64}, bytes}, scale = Random({1}, 1);
  const auto orphan = [](const char* name) { return Is(Severity::kBroken, "orphaned_part", name); };
  EXPECT_THAT(Findings({{"a.weight", Random({4, 64}, 2)}, {"a.scale_weight", scale}}),
              ElementsAre(orphan("a.scale_weight")));
  EXPECT_THAT(Findings({{"a.weight", fp8}, {"a.scale_weight", scale}, {"a.weight_scale", scale}}),
              ElementsAre(orphan("a.weight_scale")));
  EXPECT_THAT(Findings({{"a.weight_scale_inv", scale}}), ElementsAre(orphan("a.weight_scale_inv")));
  EXPECT_THAT(Findings({{"a.weight", fp8}, {"a.scale", scale}}), ::testing::Contains(orphan("a.scale")));
  EXPECT_THAT(Findings({{"a.weight", fp8}, {"a.scale_weight", scale}}), IsEmpty());
}

TEST_F(InspectMade, WeightsOfATypeWithoutNumbersAreBroken) {
  const MadeTensor integers = {"I64", {2, 4}, std::string(64, '\1')};
  EXPECT_THAT(Findings({{"a.weight", integers}}),
              ElementsAre(Is(Severity::kBroken, "unknown_type", "a.weight")));
  EXPECT_THAT(Findings({{"a.ids", integers}}), IsEmpty());
}

TEST_F(InspectMade, TooFewPackedValuesLeaveTheBitsOpenUnlessTheConfigSaysThem) {
  const MadeTensors tensors = {{"a.weight", {"U32", {2, 8}, std::string(64, '\x5a')}},
                               {"a.scales", Random({2, 1}, 1)},
                               {"a.biases", Random({2, 1}, 2)}};
  const std::vector<Finding> findings = Findings(tensors);
  ASSERT_THAT(findings, ElementsAre(Is(Severity::kNote, "ambiguous_quantization", "a.weight")));
  EXPECT_THAT(findings[0].text, HasSubstr("2-bit g128 or 4-bit g64 or 8-bit g32"));
  EXPECT_THAT(Findings(tensors, R"({"quantization": {"bits": 8, "group_size": 32}})"), IsEmpty());
}

TEST_F(InspectMade, MicroscaledWeightsNeedNoBiases) {
  EXPECT_THAT(Findings({{"a.weight", {"U32", {4, 32}, std::string(512, '\x5a')}},
                        {"a.scales", {"U8", {4, 8}, std::string(32, '\x7f')}}}),
              ElementsAre(Is(Severity::kNote, "no_statistics", "a.weight")));
}

TEST_F(InspectMade, EightBitFloatsWithAndWithoutScales) {
  const auto fp8 = [](char first) {
    return MadeTensor{"F8_E4M3", {4}, std::string(1, first) + "\x38\x30\x28"};
  };
  MadeTensors tensors = {{"a.weight", fp8('\x40')}, {"b.weight", fp8('\x41')}};
  EXPECT_THAT(Findings(tensors), ElementsAre(Is(Severity::kNote, "plain_fp8", "a.weight, b.weight")));
  tensors["a.scale_weight"] = Constant({}, 10);
  EXPECT_THAT(Findings(tensors), ElementsAre(Is(Severity::kWarning, "missing_scales", "b.weight")));
  const Inspection inspection = Inspect(folder_.path());
  EXPECT_EQ(inspection.components.at(0).Find("a.weight")->statistics->max, 20) << "the scale counts";
  tensors["scaled_fp8"] = {"F8_E4M3", {0}, ""};
  EXPECT_THAT(Findings(tensors), ElementsAre(Is(Severity::kBroken, "missing_scales", "b.weight")));
}

// Folders.

void WriteIndex(const TempFolder& folder, const std::string& weight_map) {
  folder.Write("model.safetensors.index.json", "{\"weight_map\": " + weight_map + "}");
}

TEST(InspectFolder, ShardsAndTheirIndex) {
  const TempFolder folder;
  WriteIndex(
      folder,
      R"({"a": "model-1-of-3.safetensors", "b": "model-1-of-3.safetensors", "c": "model-2-of-3.safetensors",
                         "d": "model-3-of-3.safetensors"})");
  folder.Write("model-1-of-3.safetensors", WeightsBytes({{"a", Random({4}, 1)}, {"e", Random({4}, 2)}}));
  folder.Write("model-3-of-3.safetensors", "short");
  folder.Write("model-9-of-9.safetensors", WeightsBytes({{"z", Random({4}, 3)}}));
  const Inspection inspection = Inspect(folder.path());
  ASSERT_EQ(inspection.components.size(), 1u);
  EXPECT_THAT(
      inspection.components[0].findings,
      ElementsAre(Is(Severity::kBroken, "unreadable_file", "model-3-of-3.safetensors"),
                  Is(Severity::kBroken, "absent_shards", "model-2-of-3.safetensors"),
                  Is(Severity::kBroken, "absent_tensors", "b"), Is(Severity::kWarning, "not_in_index", "e"),
                  Is(Severity::kWarning, "shard_not_in_index", "model-9-of-9.safetensors")));
  EXPECT_TRUE(inspection.broken());
}

TEST(InspectFolder, ShardsWithoutAnIndexAndATensorInTwo) {
  const TempFolder folder;
  folder.Write("model-00001-of-00002.safetensors", WeightsBytes({{"a", Random({4}, 1)}}));
  folder.Write("model-00002-of-00002.safetensors", WeightsBytes({{"a", Random({4}, 1)}}));
  EXPECT_THAT(Inspect(folder.path()).components.at(0).findings,
              ElementsAre(Is(Severity::kBroken, "absent_index", "*.safetensors.index.json"),
                          Is(Severity::kBroken, "tensor_twice", "a")));
}

TEST(InspectFolder, OneShardAloneMissesNoBlocks) {
  const TempFolder folder;
  MadeTensors tensors = GoodBlocks(6);
  std::erase_if(tensors, [](const auto& t) { return t.first.starts_with("blocks.0."); });
  const fs::path file = folder.Write("model-00002-of-00002.safetensors", WeightsBytes(tensors));
  EXPECT_THAT(Inspect(file).components.at(0).findings,
              ElementsAre(Is(Severity::kNote, "one_shard", file.filename())));
}

TEST(InspectFolder, SeveralFilesAreSeveralComponents) {
  const TempFolder folder;
  folder.Write("one.safetensors", WeightsBytes({{"a", Random({4}, 1)}}));
  folder.Write("two.safetensors", WeightsBytes({{"a", Random({4}, 2)}}));
  const Inspection inspection = Inspect(folder.path());
  ASSERT_EQ(inspection.components.size(), 2u);
  EXPECT_EQ(inspection.components[0].name, "one");
  EXPECT_EQ(inspection.components[1].name, "two");
}

TEST(InspectFolder, TheEmbeddedModelIsWhole) {
  const Inspection inspection = Inspect(kSource / "models/tiny");
  ASSERT_EQ(inspection.components.size(), 3u);
  EXPECT_FALSE(inspection.broken());
  for (const InspectedComponent& component : inspection.components) {
    for (const Finding& finding : component.findings) {
      EXPECT_EQ(finding.severity, Severity::kNote) << finding.subject << ": " << finding.text;
    }
  }
  ASSERT_TRUE(inspection.second_reading);
  EXPECT_EQ(inspection.second_reading->bytes, inspection.second_reading->total_bytes);
  EXPECT_THAT(inspection.second_reading->differences, IsEmpty());
}

TEST(InspectFolder, AComponentThatIsNotThere) {
  const TempFolder folder;
  folder.Write("model_index.json", R"({"transformer": ["diffusers", "X"], "vae": ["diffusers", "Y"]})");
  folder.Write("transformer/model.safetensors", WeightsBytes({{"a", Random({4}, 1)}}));
  const Inspection inspection = Inspect(folder.path());
  ASSERT_EQ(inspection.components.size(), 2u);
  EXPECT_THAT(inspection.components[1].findings,
              ElementsAre(Is(Severity::kBroken, "absent_component", "vae")));
}

TEST(InspectFolder, NothingToRead) {
  const TempFolder folder;
  const auto message = [](const fs::path& path, const InspectOptions& options = {}) {
    return MessageOf(ErrorKind::kBadInput, [&] { Inspect(path, options); });
  };
  EXPECT_THAT(message(folder.path() / "absent"), HasSubstr("there is no"));
  EXPECT_THAT(message(folder.path()), HasSubstr("holds no weights"));
  const fs::path file = folder.Write("m.safetensors", WeightsBytes({{"a", Random({4}, 1)}}));
  EXPECT_THAT(message(file, {.filters = {"b*"}}), HasSubstr("matches \"b*\""));
  folder.Write("m.safetensors", WeightsBytes({}));
  EXPECT_THAT(message(file), HasSubstr("holds no tensors"));
  folder.Write("m.safetensors", "GGUF and more than eight bytes");
  EXPECT_THAT(message(file), HasSubstr("GGUF version"));
}

TEST(InspectFolder, FiltersChooseTensorsButNotWhatIsMissing) {
  const TempFolder folder;
  const fs::path file = folder.Write("m.safetensors", WeightsBytes(GoodBlocks(5)));
  const Inspection inspection = Inspect(file, {.filters = {"*.3.*bias", "*.4.*bias"}});
  EXPECT_EQ(inspection.components.at(0).tensors.size(), 2u);
  EXPECT_THAT(inspection.components[0].findings, IsEmpty());
}

TEST(SecondReading, TellsThatTheFileChanged) {
  const TempFolder folder;
  const MadeTensors tensors = {{"a", Random({100}, 1)}, {"b", Random({100}, 2)}};
  std::string bytes = WeightsBytes(tensors);
  const fs::path file = folder.Write("m.safetensors", bytes);
  std::vector<InspectedComponent> components = OpenForInspection(file, {});
  ThreadPool pool(2);
  const CancelFlag cancel;
  const ScanContext context{pool, cancel, {}};
  ScanTensors(components, context);
  EXPECT_THAT(ReadAgain(components, 1 << 20, context).differences, IsEmpty());
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  folder.Write("m.safetensors", bytes);
  EXPECT_THAT(ReadAgain(components, 1 << 20, context).differences, ElementsAre("b"));
}

TEST(ScanTensors, StopsWhenAsked) {
  const TempFolder folder;
  std::vector<InspectedComponent> components =
      OpenForInspection(folder.Write("m.safetensors", WeightsBytes({{"a", Random({100}, 1)}})), {});
  ThreadPool pool(1);
  CancelFlag cancel;
  cancel.Cancel();
  MessageOf(ErrorKind::kInterrupted, [&] { ScanTensors(components, {pool, cancel, {}}); });
}

}  // namespace
}  // namespace qwen_image::inspect
