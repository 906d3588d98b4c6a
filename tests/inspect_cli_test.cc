// qwen-image inspect as its users meet it: what it prints, how it fails, what its exit codes say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "cli_harness.h"
#include "files/json.h"
#include "files/testing.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

using Arguments = std::vector<std::string>;
constexpr int kBroken = 1;

class InspectCli : public testing::Test {
 protected:
  RunResult Inspect(const Arguments& arguments, RunOptions options = {}) const {
    options.folder = folder_.path();
    Arguments all = {"inspect"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return RunProgram(all, options);
  }
  Json Describe(Arguments arguments) const {
    arguments.push_back("--json");
    return Json::parse(Inspect(arguments).out);
  }
  void ExpectRefused(const Arguments& arguments, int exit_code, const std::string& message) const {
    SCOPED_TRACE(testing::PrintToString(arguments));
    const RunResult result = Inspect(arguments);
    EXPECT_EQ(result.exit_code, exit_code);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, AllOf(StartsWith("qwen-image: "), HasSubstr(message), EndsWith("\n")));
  }
  const TempFolder folder_;
};

TEST_F(InspectCli, ShowsTheEmbeddedModel) {
  const RunResult result = Inspect({kTiny});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("transformer_blocks.{0…3}  128 tensors"), HasSubstr("norm_added_k.weight"),
                    HasSubstr("Read twice: all "), HasSubstr(" gave the same values.\n"),
                    EndsWith(" notes.\n"), Not(HasSubstr("warning  ")), Not(HasSubstr("\x1b"))));
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) {
    line = line.substr(0, line.find("  ←"));
    const auto width = std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; });
    EXPECT_LE(width, 120) << line;
  }
}

TEST_F(InspectCli, ShowsEveryKeyIfAsked) {
  const RunResult result = Inspect({kTiny + "/transformer", "--full"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("transformer_blocks  128 tensors"), Not(HasSubstr("{0…3}"))));
}

TEST_F(InspectCli, SortsAndFilters) {
  const RunResult result =
      Inspect({kTiny + "/transformer", "--sort", "std", "--top", "2", "--filter", "*.bias"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("\n  norm_out.linear.bias  "));  // the widest of this model
  EXPECT_THAT(Inspect({kTiny + "/transformer", "--sort", "name", "--top", "2", "--filter", "*.bias"}).out,
              HasSubstr("\n  img_in.bias  "));
  EXPECT_THAT(result.out, AllOf(HasSubstr("  … and "), Not(HasSubstr("to_k.weight"))));
  const Json json = Describe({kTiny, "--filter", "*.to_q.bias", "--filter", "quant_conv.*"});
  size_t count = 0;
  for (const Json& component : json.at("components")) count += component.at("tensors").size();
  EXPECT_EQ(count, 4u + 2u);
}

TEST_F(InspectCli, JsonHoldsEverything) {
  const Json json = Describe({kTiny + "/vae"});
  EXPECT_FALSE(json.at("broken"));
  EXPECT_EQ(json.at("read_twice").at("differences"), Json::array());
  const Json& vae = json.at("components").at(0);
  EXPECT_EQ(vae.at("name"), "vae");
  ASSERT_THAT(vae.at("tensors"), SizeIs(146));
  const Json& first = vae.at("tensors").at(0);
  EXPECT_EQ(first.at("name"), "decoder.conv_in.bias");
  EXPECT_EQ(first.at("shape"), (Json{32}));
  EXPECT_EQ(first.at("dtype"), "BF16");
  EXPECT_EQ(first.at("bytes"), 64);
  for (const char* key : {"mean", "std", "min", "max", "zero_share", "nan", "inf", "checksum"}) {
    EXPECT_TRUE(first.contains(key)) << key;
  }
  const Json header = Describe({kTiny + "/vae", "--no-stats"});
  EXPECT_FALSE(header.at("components").at(0).at("tensors").at(0).contains("mean"));
  EXPECT_FALSE(header.contains("read_twice"));
}

TEST_F(InspectCli, ColoursOnATerminalOnly) {
  const Arguments arguments = {kTiny + "/vae"};
  EXPECT_THAT(Inspect(arguments, {.standard_output = Stream::kTerminal}).out, HasSubstr("\x1b["));
  EXPECT_THAT(
      Inspect(arguments, {.environment = {{"NO_COLOR", "1"}}, .standard_output = Stream::kTerminal}).out,
      Not(HasSubstr("\x1b[")));
}

TEST_F(InspectCli, BrokenWeightsHaveTheirOwnExitCode) {
  const ModelCopy model(folder_.path() / "model");
  model.EditTensors(kTransformer, [](ModelCopy::StoredTensors& tensors) {
    tensors.at("proj_out.bias").bytes.replace(0, 2, "\xc0\x7f");  // NaN
    std::erase_if(tensors, [](const auto& t) { return t.first.starts_with("transformer_blocks.1."); });
  });
  const RunResult result = Inspect({"model"});
  EXPECT_EQ(result.exit_code, kBroken);
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("broken   proj_out.bias: holds NaN or infinite values"),
                    HasSubstr("broken   transformer_blocks.{1}: missing"), HasSubstr("Broken: 2 broken")));
  EXPECT_THAT(Inspect({"model", "-q"}).out,
              AllOf(HasSubstr("transformer_blocks.{1}"), Not(HasSubstr("add_k_proj"))));
  EXPECT_EQ(Inspect({"model/vae"}).exit_code, 0);
}

TEST_F(InspectCli, UnreadableInput) {
  folder_.Write("empty/x.txt", "");
  ExpectRefused({"absent"}, kBadInput, "there is no model absent");
  ExpectRefused({"empty"}, kBadInput, "holds no weights");
  ExpectRefused({(kSource / "docs/images/circle.png").string()}, kBadInput, "circle.png: a header of");
  ExpectRefused({kTiny, "--filter", "nothing.like.this"}, kBadInput, "matches \"nothing.like.this\"");
  ExpectRefused({"/dev/null"}, kBadInput, "not a regular file");
  folder_.Write("cut.safetensors", ReadBytes(fs::path(kTiny) / kTransformer).substr(0, 20000));
  ExpectRefused({"cut.safetensors"}, kBadInput, "incomplete");
}

TEST_F(InspectCli, WrongUsage) {
  ExpectRefused({}, kUsage, "path");
  ExpectRefused({kTiny, "--sort", "colour"}, kUsage, "--sort");
  ExpectRefused({kTiny, "--sort", "error"}, kUsage, "two paths");
  ExpectRefused({kTiny, "--tolerance", "0.1"}, kUsage, "two paths");
  ExpectRefused({kTiny, kTiny, "--no-stats"}, kUsage, "--no-stats");
  ExpectRefused({kTiny, "--no-stats", "--sort", "std"}, kUsage, "--no-stats");
  ExpectRefused({kTiny, "--top", "0"}, kUsage, "--top");
}

TEST_F(InspectCli, HostileNamesCannotReachTheTerminal) {
  folder_.Write(
      "x.safetensors",
      SafetensorsBytes(R"({"a\u001b[31m\n.b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x"));
  const RunResult result = Inspect({"x.safetensors"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("a\\x1b[31m\\x0a.b"), Not(HasSubstr("\x1b"))));
}

TEST_F(InspectCli, EqualWeightsCompareEqual) {
  const RunResult result = Inspect({kTiny, kTiny});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("141 tensors in both: 141 with equal values"), EndsWith("Equal.\n")));
}

TEST_F(InspectCli, SaysWhereTwoModelsDiffer) {
  const ModelCopy model(folder_.path() / "model");
  model.EditTensors(kTransformer, [](ModelCopy::StoredTensors& tensors) {
    tensors.at("proj_out.bias").bytes.replace(0, 2, std::string("\x80\x3f", 2));  // 1
    auto renamed = tensors.extract("transformer_blocks.1.attn.to_q.bias");
    renamed.key() = "blocks.1.attn.to_q.bias";
    tensors.insert(std::move(renamed));
    tensors.at("img_in.weight").shape = {64, 128};
  });
  const RunResult result = Inspect({kTiny, "model"});
  EXPECT_EQ(result.exit_code, kBroken);
  EXPECT_THAT(
      result.out,
      AllOf(
          HasSubstr("only in A: 1\n    transformer_blocks.1.attn.to_q.bias  (like blocks.1.attn.to_q.bias?)"),
          HasSubstr("← shape [128, 64] against [64, 128]"), HasSubstr("  proj_out.bias"),
          EndsWith("They differ (--tolerance 0.1 would accept relative errors up to 10%).\n")));
  const Json json = Describe({kTiny, "model"});
  EXPECT_FALSE(json.at("equal"));
  EXPECT_EQ(json.at("components").at(1).at("only_in_b"), (Json{"blocks.1.attn.to_q.bias"}));
}

TEST_F(InspectCli, FloatAgainstQuantized) {
  const Arguments files = {(kSource / "tests/goldens/mlx/float.safetensors").string(),
                           (kSource / "tests/goldens/mlx/quantized.safetensors").string()};
  const RunResult result = Inspect({files[0], files[1]});
  EXPECT_EQ(result.exit_code, kBroken);
  EXPECT_THAT(result.out, AllOf(HasSubstr("BF16 → 4-bit g64"), HasSubstr("BF16 → 8-bit g32"),
                                HasSubstr("6 tensors in both: 3 with equal values, 3 with others")));
  EXPECT_EQ(Inspect({files[0], files[1], "--tolerance", "0.8"}).exit_code, 0);
}

}  // namespace
}  // namespace qwen_image
