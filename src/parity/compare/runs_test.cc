#include "parity/compare/runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "files/npy.h"
#include "files/testing.h"

namespace qwen_image::compare {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A folder of tensors with or without a manifest.
class Side {
 public:
  void Add(const std::string& name, const std::vector<float>& values) {
    const std::filesystem::path path = folder_.path() / (name + ".npy");
    std::filesystem::create_directories(path.parent_path());
    WriteNpy(path, values.data(), {static_cast<int64_t>(values.size())});
    manifest_["checkpoints"].push_back({{"name", name}, {"file", name + ".npy"}});
  }
  void AddIntegers(const std::string& name, const std::vector<int64_t>& values) {
    WriteNpy(folder_.path() / (name + ".npy"), values.data(), {static_cast<int64_t>(values.size())});
    manifest_["checkpoints"].push_back({{"name", name}, {"file", name + ".npy"}});
  }
  // The entry of the tensor that was added last.
  Json& entry() { return manifest_["checkpoints"].back(); }
  Json& manifest() { return manifest_; }

  record::TensorSet Open() const {
    if (manifest_.size() > 1) folder_.Write("manifest.json", manifest_.dump());
    return record::TensorSet::Open(folder_.path());
  }
  const std::filesystem::path& path() const { return folder_.path(); }
  void Write(const std::string& name, const std::string& bytes) const { folder_.Write(name, bytes); }

 private:
  TempFolder folder_;
  Json manifest_ = {{"checkpoints", Json::array()}};
};

class CompareSetsTest : public testing::Test {
 protected:
  Comparison Compare(const CompareOptions& options = {}) {
    return CompareSets(ref_.Open(), run_.Open(), options);
  }

  Side ref_, run_;
};

TEST_F(CompareSetsTest, FindsTheFirstDivergenceInTheReferencesOrder) {
  for (const char* name : {"step10", "step2", "step1"}) {
    ref_.Add(name, {1, 2, 3});
    run_.Add(name, {1, 2, std::string_view(name) == "step1" ? 3.0f : 4.0f});
  }
  const Comparison c = Compare();
  EXPECT_FALSE(c.passed());
  ASSERT_TRUE(c.first_divergence());
  EXPECT_EQ(c.first_divergence()->name, "step2");
  EXPECT_EQ(c.first_divergence()->error->worst, 2);
  EXPECT_EQ(c.first_divergence()->ref.dtype, "float32");
  EXPECT_THAT(c.tensors, SizeIs(3));
}

// The first of these in the alphabet is the last that is computed.
constexpr std::array<const char*, 4> kInOrder = {
    "text_encoder/model.language_model.norm", "transformer/step002/transformer_blocks.9:img",
    "transformer/step002/transformer_blocks.10.img_norm1", "final_latents_packed"};

TEST_F(CompareSetsTest, TheEnginesNamesTellTheOrder) {
  for (const char* name : kInOrder) {
    ref_.Add(name, {1, 2, 3});
    run_.Add(name, {1, 2, name == kInOrder[0] ? 3.0f : 4.0f});
  }
  const Comparison c = Compare();
  EXPECT_EQ(c.order, Order::kNames);
  ASSERT_TRUE(c.first_divergence());
  EXPECT_EQ(c.first_divergence()->name, kInOrder[1]);
  EXPECT_EQ(c.tensors[2].name, kInOrder[2]);
}

TEST_F(CompareSetsTest, OtherNamesAreOfNoConcernWhileTheyAgree) {
  ref_.Add("a_tensor_of_theirs", {1});
  run_.Add("a_tensor_of_theirs", {1});
  for (const char* name : kInOrder) {
    ref_.Add(name, {1});
    run_.Add(name, {2});
  }
  const Comparison known = Compare();
  ASSERT_TRUE(known.first_divergence());
  EXPECT_EQ(known.first_divergence()->name, kInOrder[0]);
  ref_.Add("another", {1});
  run_.Add("another", {2});
  const Comparison unknown = Compare();
  EXPECT_EQ(unknown.order, Order::kUnknown);
  EXPECT_FALSE(unknown.first_divergence());
  EXPECT_FALSE(unknown.passed());
  EXPECT_EQ(unknown.failed(), 5);
}

TEST_F(CompareSetsTest, TheRunsManifestTellsTheOrder) {
  run_.manifest()["tool"] = "theirs";
  for (const char* name : {"second", "first"}) {
    ref_.Add(name, {1});
    run_.Add(name, {2});
  }
  const Comparison c = Compare();
  EXPECT_EQ(c.order, Order::kRun);
  ASSERT_TRUE(c.first_divergence());
  EXPECT_EQ(c.first_divergence()->name, "second");
  run_.manifest()["order"] = "unknown";  // it was made of files in no order
  EXPECT_EQ(Compare().order, Order::kUnknown);
}

TEST_F(CompareSetsTest, OneFailureNeedsNoOrder) {
  for (const char* name : {"a", "b"}) {
    ref_.Add(name, {1});
    run_.Add(name, {std::string_view(name) == "a" ? 1.0f : 2.0f});
  }
  const Comparison c = Compare();
  ASSERT_TRUE(c.first_divergence());
  EXPECT_EQ(c.first_divergence()->name, "b");
}

TEST_F(CompareSetsTest, MissingAndExtraFail) {
  ref_.Add("a", {1});
  run_.Add("a", {1});
  EXPECT_TRUE(Compare().passed());
  ref_.Add("b", {1});
  Comparison c = Compare();
  EXPECT_FALSE(c.passed());
  EXPECT_FALSE(c.first_divergence());
  EXPECT_THAT(c.missing, ElementsAre("b"));
  run_.Add("b", {1});
  run_.Add("c", {1});
  c = Compare();
  EXPECT_FALSE(c.passed());
  EXPECT_THAT(c.extra, ElementsAre("c"));
  EXPECT_TRUE(Compare({.only = {"a", "b*"}}).passed());
  EXPECT_THAT(MessageOf(ErrorKind::kUsage, [&] { Compare({.only = {"x*"}}); }), HasSubstr("--only"));
}

TEST_F(CompareSetsTest, OtherShapesAndTypesCannotBeCompared) {
  ref_.Add("a", {1, 2});
  run_.Add("a", {1, 2, 3});
  ref_.Add("b", {1});
  run_.AddIntegers("b", {1});
  const Comparison c = Compare();
  EXPECT_FALSE(c.tensors[0].passed);
  EXPECT_FALSE(c.tensors[0].error);
  EXPECT_EQ(c.tensors[0].problem, "shape [3], expected [2]");
  EXPECT_EQ(c.tensors[0].run.sum, 6);
  EXPECT_EQ(c.tensors[1].problem, "type int64, expected float32");
}

TEST_F(CompareSetsTest, ADumpWithoutTheBatchIsCompared) {
  ref_.Add("a", {1, 2, 3, 4});
  run_.Add("a", {1, 2, 3, 5});
  const auto reshape = [](const Side& side, const Shape& shape, const std::vector<float>& values) {
    WriteNpy(side.path() / "a.npy", values.data(), shape);
  };
  reshape(ref_, {1, 1, 2, 2}, {1, 2, 3, 4});
  reshape(run_, {2, 2}, {1, 2, 3, 5});
  const Comparison c = Compare();
  ASSERT_EQ(c.tensors[0].problem, "");
  EXPECT_EQ(c.tensors[0].error->max_abs, 1);
  reshape(run_, {2, 2}, {1, 2, 3, 4});
  EXPECT_TRUE(Compare().passed());
  reshape(run_, {2, 1, 2}, {1, 2, 3, 4});
  EXPECT_EQ(Compare().tensors[0].problem, "shape [2, 1, 2], expected [1, 1, 2, 2]");
}

TEST_F(CompareSetsTest, SaysWhatToDumpBetweenTheLastRightAndTheFirstWrong) {
  run_.manifest()["tool"] = ref_.manifest()["tool"] = "theirs";
  for (const char* name : {"early", "in", "scaled", "rotated", "out", "later"}) {
    ref_.Add(name, {1});
    const std::string_view word = name;
    if (word == "in" || word == "out") run_.Add(name, {word == "out" ? 2.0f : 1.0f});
  }
  EXPECT_THAT(Compare().undumped, ElementsAre("scaled", "rotated"));
  run_.Add("scaled", {1});
  run_.Add("rotated", {1});
  EXPECT_THAT(Compare().undumped, IsEmpty());
}

TEST_F(CompareSetsTest, NotesNormsThatAreScaled) {
  std::vector<float> values(64 * 16), smaller;
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
  for (const float v : values) smaller.push_back(v * (1 - 4e-6f));
  for (const char* name : {"step0/attn.norm_q", "step0/proj"}) {
    ref_.Add(name, values);
    run_.Add(name, smaller);
    const std::string file = std::string(name) + ".npy";
    WriteNpy(ref_.path() / file, values.data(), {1, 64, 16});
    WriteNpy(run_.path() / file, smaller.data(), {1, 64, 16});
  }
  const Comparison c = Compare();
  EXPECT_TRUE(c.passed());
  EXPECT_THAT(c.notes, ElementsAre(HasSubstr("1 norms pass, but all their tokens are scaled")));
  EXPECT_THAT(c.notes, ElementsAre(HasSubstr("step0/attn.norm_q by -4")));
}

// Recorders of other models say the level of each tensor: its name does not.
TEST_F(CompareSetsTest, TheRecordersLevelsTellWhatWasLeftOut) {
  for (const char* name : {"call000/layer.0", "call000/layer.0.inner"}) ref_.Add(name, {1});
  ref_.entry()["level"] = "all";
  run_.Add("call000/layer.0", {1});
  ref_.manifest()["checkpoints_level"] = "all";
  run_.manifest()["checkpoints_level"] = "blocks";
  EXPECT_TRUE(Compare().passed());
  ref_.entry()["level"] = "blocks";
  EXPECT_THAT(Compare().missing, ElementsAre("call000/layer.0.inner"));
}

TEST_F(CompareSetsTest, TheLinesThatMadeATensorAreKept) {
  ref_.manifest()["tool"] = run_.manifest()["tool"] = "theirs";
  ref_.Add("a", {1});
  ref_.entry()["source"] = "model.py:3";
  ref_.entry()["code"] = "x = x + y";
  run_.Add("a", {2});
  run_.entry()["source"] = "port.py:4";
  const Comparison c = Compare();
  EXPECT_EQ(c.tensors[0].ref_source, "model.py:3: x = x + y");
  EXPECT_EQ(c.tensors[0].run_source, "port.py:4");
}

TEST_F(CompareSetsTest, SaysThatTheWeightsAreOthers) {
  ref_.Add("a", {1});
  run_.Add("a", {1});
  ref_.manifest()["weights_sha256"] = {{"vae/a.safetensors", "1"}, {"vae/b.safetensors", "2"}};
  run_.manifest()["weights_sha256"] = {{"vae/a.safetensors", "1"}, {"vae/b.safetensors", "3"}};
  EXPECT_THAT(Compare().notes, ElementsAre(HasSubstr("other weights than the run: vae/b.safetensors")));
  run_.manifest()["weights_sha256"] = ref_.manifest()["weights_sha256"];
  EXPECT_THAT(Compare().notes, IsEmpty());
  run_.manifest()["weights_sha256"] = "text";
  EXPECT_THAT(Compare().notes, IsEmpty());
}

TEST_F(CompareSetsTest, IntegersMustBeEqual) {
  ref_.AddIntegers("ids", {1, (int64_t{1} << 40) + 1});
  run_.AddIntegers("ids", {1, int64_t{1} << 40});
  EXPECT_FALSE(Compare({.criterion = {.atol = 10}}).passed());
}

TEST_F(CompareSetsTest, TheDefaultToleranceGrowsWithTheTensor) {
  ref_.Add("large", {1e7f, 0});
  run_.Add("large", {1e7f, 50});
  EXPECT_TRUE(Compare().passed());
  EXPECT_FALSE(Compare({.criterion = {.atol = 1, .rtol = 1e-3}}).passed());
  ref_.Add("small", {1, 0});
  run_.Add("small", {1, 2e-5f});
  EXPECT_FALSE(Compare().passed());
}

TEST_F(CompareSetsTest, Bfloat16PassesByTheReferencesFloor) {
  ref_.manifest()["dtype"] = "float32";
  run_.manifest()["dtype"] = "bfloat16";
  ref_.Add("x", {1, 1});
  ref_.entry()["floor"] = {{"nmse", 1e-4}, {"max_abs", 1}};
  run_.Add("x", {1, 1.02f});  // NMSE 2e-4: within (2 · 1e-2)²
  const Comparison c = Compare();
  EXPECT_EQ(c.tensors[0].criterion.kind, Criterion::Kind::kFloor);
  EXPECT_TRUE(c.passed());
  EXPECT_FALSE(Compare({.criterion = {.floor_factor = 1}}).passed());
  run_.manifest()["dtype"] = "float32";
  EXPECT_FALSE(Compare().passed());
  run_.manifest()["dtype"] = "float32";
  run_.entry()["original_dtype"] = "bfloat16";  // of this tensor only
  EXPECT_TRUE(Compare().passed());
}

// As bf16 pipelines are dumped: the sines of the timestep stay in float32.
TEST_F(CompareSetsTest, AFileThatIsMostlyBfloat16IsARunInBfloat16) {
  ref_.manifest()["dtype"] = "float32";
  for (const char* name : {"a", "b", "time"}) {
    ref_.Add(name, {1});
    ref_.entry()["floor"] = {{"nmse", 1e-4}, {"max_abs", 1}};
  }
  const auto run = [&](const char* type_of_b) {
    const bool low = std::string_view(type_of_b) == "BF16";
    const int b_bytes = low ? 2 : 4;
    const Json header = {
        {"a", {{"dtype", "BF16"}, {"shape", {1}}, {"data_offsets", {0, 2}}}},
        {"b", {{"dtype", type_of_b}, {"shape", {1}}, {"data_offsets", {2, 2 + b_bytes}}}},
        {"time", {{"dtype", "F32"}, {"shape", {1}}, {"data_offsets", {2 + b_bytes, 6 + b_bytes}}}}};
    const float time = 1.005f, one = 1;
    std::string data("\x80\x3f", 2);
    data += low ? data : std::string(reinterpret_cast<const char*>(&one), 4);
    data.append(reinterpret_cast<const char*>(&time), 4);
    run_.Write("run.safetensors", SafetensorsBytes(header.dump(), data));
    return record::TensorSet::Open(run_.path() / "run.safetensors");
  };
  EXPECT_TRUE(CompareSets(ref_.Open(), run("BF16"), {}).passed());
  EXPECT_FALSE(CompareSets(ref_.Open(), run("F32"), {}).passed());
}

TEST_F(CompareSetsTest, BrokenFloorsCountAsNone) {
  ref_.manifest()["dtype"] = "bfloat16";
  for (const Json& floor : {Json(), Json(1), Json("text"), Json::object(), Json{{"nmse", "small"}}}) {
    ref_.manifest()["checkpoints"] = Json::array();
    ref_.Add("x", {1});
    ref_.entry()["floor"] = floor;
    run_.manifest()["checkpoints"] = Json::array();
    run_.Add("x", {1});
    EXPECT_EQ(Compare().tensors[0].criterion.kind, Criterion::Kind::kAllClose) << floor;
  }
}

TEST_F(CompareSetsTest, TheShallowerLevelCounts) {
  ref_.manifest()["checkpoints_level"] = "blocks";
  run_.manifest()["checkpoints_level"] = "all";
  ref_.Add("prompt_embeds", {1});
  run_.Add("prompt_embeds", {1});
  run_.Add("vae/decoder.conv_in.deeper", {1});
  const Comparison c = Compare();
  EXPECT_TRUE(c.passed());
  EXPECT_THAT(c.extra, IsEmpty());
  EXPECT_THAT(c.notes, ElementsAre(HasSubstr("1 checkpoints were left out")));
  run_.Add("vae/decoder.conv_in", {1});  // a block: recorded at both levels
  EXPECT_THAT(Compare().extra, ElementsAre("vae/decoder.conv_in"));
}

TEST_F(CompareSetsTest, ProgressGrowsAndMayStop) {
  ref_.Add("a", std::vector<float>(50000, 1.0f));
  run_.Add("a", std::vector<float>(50000, 1.0f));
  ref_.Add("b", {1});
  run_.Add("b", {1});
  std::vector<int64_t> done;
  Compare({.on_progress = [&](int64_t d, int64_t total) {
    EXPECT_EQ(total, 50001);
    done.push_back(d);
  }});
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_THAT(done, Contains(16384));
  EXPECT_EQ(done.back(), 50000);
  EXPECT_THROW(
      Compare({.on_progress = [](int64_t, int64_t) { throw Error(ErrorKind::kInterrupted, "stop"); }}),
      Error);
}

TEST_F(CompareSetsTest, ProgressOfALargerTensorStaysBelowAll) {
  ref_.Add("a", {1});
  run_.Add("a", std::vector<float>(50000, 1.0f));
  int64_t last = 0;
  Compare({.on_progress = [&](int64_t done, int64_t total) { last = std::max(last, done - total); }});
  EXPECT_EQ(last, 0);
}

TEST_F(CompareSetsTest, RenamedTensorsKeepTheirOwnName) {
  ref_.Add("theirs", {1});
  run_.Add("mine", {1});
  record::TensorSet run = run_.Open();
  run.Rename([](const std::string&) { return "theirs"; });
  const Comparison c = CompareSets(ref_.Open(), run, {});
  EXPECT_TRUE(c.passed());
  EXPECT_EQ(c.tensors[0].run_name, "mine");
}

TEST(CompareManifests, TellsWhatMakesRunsDifferent) {
  const Json ref = {{"prompt", "a"}, {"cfg", 4.0}, {"seed", 1}, {"threads", 2}, {"negative_prompt", nullptr}};
  Json run = {{"prompt", "b"}, {"cfg", 4}, {"threads", 3}, {"checkpoints", Json::array()}};
  const std::vector<ManifestDifference> d = CompareManifests(ref, run);
  ASSERT_THAT(d, SizeIs(3));
  EXPECT_EQ(d[0].key, "prompt");
  EXPECT_EQ(d[0].ref, "\"a\"");
  EXPECT_TRUE(d[0].fatal);
  EXPECT_EQ(d[1].key, "seed");  // one side does not say
  EXPECT_FALSE(d[1].fatal);
  EXPECT_EQ(d[2].key, "threads");
  EXPECT_FALSE(d[2].fatal);
  EXPECT_THAT(CompareManifests(ref, Json()), IsEmpty());
}

TEST(CompareManifests, ANegativePromptCountsWithGuidanceOnly) {
  Json ref = {{"cfg", 1}, {"negative_prompt", nullptr}}, run = {{"cfg", 1}, {"negative_prompt", " "}};
  EXPECT_THAT(CompareManifests(ref, run), IsEmpty());
  ref["cfg"] = run["cfg"] = 4;
  ASSERT_THAT(CompareManifests(ref, run), SizeIs(1));
  EXPECT_TRUE(CompareManifests(ref, run)[0].fatal);
}

}  // namespace
}  // namespace qwen_image::compare
