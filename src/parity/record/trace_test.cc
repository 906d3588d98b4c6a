#include "parity/record/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "families/qwen_image/vocabulary.h"
#include "families/qwen_image_21/vocabulary.h"
#include "files/json.h"
#include "files/testing.h"

namespace qwen_image::record {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kBlock = "transformer/step000/transformer_blocks.0";

void Show(RunTracer& tracer, const std::string& name, std::vector<float> values) {
  if (tracer.Wants(name))
    tracer.OnCheckpoint(name, {{1, static_cast<int64_t>(values.size())}, values.data()});
}

std::optional<ValueRange> UpToTen(std::string_view) { return ValueRange{-10, 10}; }

TEST(RunTracer, MeasuresRangesAndCountsWhatIsNotFinite) {
  RunTracer tracer(kQwenImageCheckpointNames, CheckpointSelection("blocks"), {}, nullptr);
  Show(tracer, "transformer/step000/img_in", {3, -2, NAN, INFINITY, NAN});
  ASSERT_EQ(tracer.events().size(), 1u);
  const TraceEvent& event = tracer.events()[0];
  EXPECT_EQ(event.range.min, -2);
  EXPECT_EQ(event.range.max, 3);
  EXPECT_EQ(event.nan, 2);
  EXPECT_EQ(event.inf, 1);
  EXPECT_GT(event.resident_bytes, 0);
  EXPECT_FALSE(tracer.healthy());
  EXPECT_THAT(tracer.Table(), HasSubstr("NaN: 2"));
}

TEST(RunTracer, KnowsWhatIsFarOutOfRange) {
  RunTracer near(kQwenImageCheckpointNames, CheckpointSelection("blocks"), UpToTen, nullptr), far = near;
  Show(near, "transformer/step000/img_in", {-39, 39});
  EXPECT_TRUE(near.healthy());
  EXPECT_THAT(near.Table(), HasSubstr("normal"));
  Show(far, "transformer/step000/img_in", {-41, 0});
  EXPECT_FALSE(far.healthy());
  EXPECT_THAT(far.Table(), HasSubstr("OUT OF RANGE"));
}

TEST(RunTracer, GivesNoVerdictWithoutKnownRanges) {
  RunTracer tracer(kQwenImageCheckpointNames, CheckpointSelection("blocks"), {}, nullptr);
  Show(tracer, "transformer/step000/img_in", {1e30f});
  EXPECT_TRUE(tracer.healthy());
  EXPECT_THAT(tracer.Table(), Not(HasSubstr("normal")));
}

TEST(RunTracer, PutsHeadsToTheirBlockAndFlagsThem) {
  RunTracer tracer(kQwenImageCheckpointNames, CheckpointSelection("blocks"), {}, nullptr);
  Show(tracer, std::string(kBlock) + ":attn_entropy", {0.999f, 0.5f, 0.001f});
  Show(tracer, std::string(kBlock) + ":img", {1});
  Show(tracer, std::string(kBlock) + ":txt", {1});
  ASSERT_EQ(tracer.events().size(), 2u) << "the entropy itself is no layer";
  EXPECT_EQ(tracer.events()[0].head_entropy.size(), 3u);
  EXPECT_TRUE(tracer.events()[1].head_entropy.empty());
  EXPECT_THAT(tracer.Table(), HasSubstr("0.50, 1 uniform, 1 collapsed"));
}

// In a family of one stream the output of a block has the block's own name.
TEST(RunTracer, PutsHeadsToABlockWithoutASuffix) {
  RunTracer tracer(qwen_image_21::kCheckpointNames, CheckpointSelection("blocks"), {}, nullptr);
  Show(tracer, std::string(kBlock) + ":attn_entropy", {0.5f, 0.5f});
  Show(tracer, std::string(kBlock), {1});
  ASSERT_EQ(tracer.events().size(), 1u);
  EXPECT_EQ(tracer.events()[0].head_entropy.size(), 2u);
}

TEST(RunTracer, PassesOnWhatTheInnerSinkWants) {
  class Inner : public CheckpointSink {
   public:
    bool Wants(std::string_view name) const override { return name == "wanted"; }
    void OnCheckpoint(const std::string& name, const CheckpointView& view) override {
      seen.push_back(name);
      std::get<float*>(view.data)[0] = 7;
    }
    std::vector<std::string> seen;
  } inner;
  RunTracer tracer(kQwenImageCheckpointNames, CheckpointSelection("*blocks.0:img"), {}, &inner);
  float value = 1;
  tracer.OnCheckpoint("wanted", {{1}, &value});
  tracer.OnCheckpoint(std::string(kBlock) + ":img", {{1}, &value});
  EXPECT_EQ(inner.seen, std::vector<std::string>{"wanted"});
  EXPECT_EQ(value, 7) << "a substituted value stays";
  EXPECT_EQ(tracer.events().size(), 1u);
}

TEST(RunTracer, WritesATraceThatViewersRead) {
  const TempFolder folder;
  RunTracer tracer(kQwenImageCheckpointNames, CheckpointSelection("blocks"), UpToTen, nullptr);
  Show(tracer, "transformer/step000/img_in", {1, NAN});
  Show(tracer, "transformer/step000/txt_in", {50});
  Show(tracer, "transformer/step001/img_in", {1});
  tracer.WriteTrace(folder.path() / "trace.json");

  const Json trace = ReadJsonFile(folder.path() / "trace.json");
  int stages = 0, layers = 0, counters = 0;
  double end_of_last = 0;
  for (const Json& e : trace.at("traceEvents")) {
    counters += e.at("ph") == "C";
    if (e.at("ph") != "X") continue;
    stages += e.at("cat") == "stage";
    if (e.at("cat") != "layer") continue;
    ++layers;
    EXPECT_GE(e.at("ts").get<double>(), end_of_last - 1e-6) << "layers follow one another";
    end_of_last = e.at("ts").get<double>() + e.at("dur").get<double>();
    EXPECT_EQ(e.at("args").contains("out_of_range"), e.at("name") == "transformer/step000/txt_in");
  }
  EXPECT_EQ(stages, 2);
  EXPECT_EQ(layers, 3);
  EXPECT_EQ(counters, 3);
}

std::optional<ValueRange> KnownRange(const std::string& checkpoint) {
  return kQwenImageCheckpointNames.known_range(checkpoint);
}

TEST(KnownRange, HoldsTheKnownFigures) {
  const auto limit = [](const std::string& module) {
    return KnownRange("transformer/step004.neg/" + module)->max;
  };
  EXPECT_EQ(limit("img_in"), 16);
  EXPECT_EQ(limit("norm_out"), 21);
  EXPECT_DOUBLE_EQ(limit("transformer_blocks.0:img"), 2e6);
  EXPECT_DOUBLE_EQ(limit("transformer_blocks.59:img"), 4.5e7);
  EXPECT_FALSE(KnownRange("transformer/step000/transformer_blocks.0:txt"));
  EXPECT_FALSE(KnownRange("vae/decoder.conv_in"));
}

}  // namespace
}  // namespace qwen_image::record
