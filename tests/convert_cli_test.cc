// qwen-image convert as its users meet it: what can be drawn with what it writes, how it fails, how it goes
// on.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <random>

#include "cli_harness.h"
#include "core/dtype.h"
#include "files/json.h"
#include "files/png.h"
#include "files/safetensors.h"
#include "files/testing.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

using Arguments = std::vector<std::string>;

std::map<std::string, std::string> FilesIn(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file())
      files[entry.path().lexically_relative(folder).string()] = ReadBytes(entry.path());
  }
  return files;
}

class ConvertCli : public testing::Test {
 protected:
  fs::path Path(const std::string& name) const { return folder_.path() / name; }
  RunResult Convert(const Arguments& arguments, RunOptions options = {}) const {
    options.folder = folder_.path();
    Arguments all = {"convert"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return RunProgram(all, options);
  }
  void ExpectConverted(const Arguments& arguments) const {
    const RunResult result = Convert(arguments);
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }
  void ExpectRefused(const Arguments& arguments, int exit_code, const std::string& message,
                     const RunOptions& options = {}) const {
    SCOPED_TRACE(testing::PrintToString(arguments));
    const RunResult result = Convert(arguments, options);
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_THAT(result.err, AllOf(HasSubstr("qwen-image: "), HasSubstr(message), EndsWith("\n")));
    EXPECT_EQ(result.out, "");
  }
  Image Draw(const std::string& model) const {
    const RunResult result =
        RunProgram({"generate", "a red circle", "--model", model, "--size", "64x64", "--steps", "2", "--seed",
                    "3", "--precision", "exact", "-o", "picture.png", "-q"},
                   {.folder = folder_.path()});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return ReadPng(Path("picture.png"));
  }
  const TempFolder folder_;
};

TEST_F(ConvertCli, PlainNumbersDrawTheSamePicture) {
  const Image wanted = Draw(kTiny);
  ExpectConverted({kTiny, "-o", "f32", "--to", "f32"});
  EXPECT_EQ(Draw("f32").pixels, wanted.pixels);  // the source has bf16, which f32 holds exactly
  ExpectConverted({"f32", "-o", "bf16", "--to", "bf16"});
  EXPECT_EQ(Draw("bf16").pixels, wanted.pixels);
  const SafetensorsFile before(kTiny + "/" + kTransformer), after(Path("bf16") / kTransformer);
  ASSERT_EQ(after.tensors().size(), before.tensors().size());
  for (const auto& [name, tensor] : before.tensors()) {
    const StoredTensor& found = after.tensors().at(name);
    EXPECT_EQ(found.dtype, DType::kBF16);
    EXPECT_TRUE(std::equal(tensor.bytes.begin(), tensor.bytes.end(), found.bytes.begin(), found.bytes.end()));
  }
}

// Adds random errors to a model in f32, as large, tensor by tensor, as those that the report of a conversion
// tells.
void AddNoise(const fs::path& model, const Json& report, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::map<std::string, double> relative;
  for (const Json& tensor : report.at("tensors")) relative[tensor.at("name")] = tensor.at("relative_rmse");
  for (const char* file :
       {"transformer/diffusion_pytorch_model.safetensors", "text_encoder/model.safetensors"}) {
    std::string bytes = ReadBytes(model / file);
    const SafetensorsFile stored(model / file);
    for (const auto& [name, tensor] : stored.tensors()) {
      std::vector<float> values(tensor.bytes.size() / sizeof(float));
      std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
      double squares = 0;
      for (const float value : values) squares += static_cast<double>(value) * value;
      const double deviation = relative.at(name) * std::sqrt(squares / static_cast<double>(values.size()));
      for (float& value : values) value += static_cast<float>(deviation * normal(random));
      const auto at = static_cast<size_t>(tensor.bytes.data() - stored.file().bytes().data());
      std::memcpy(bytes.data() + at, values.data(), tensor.bytes.size());
    }
    fs::remove(model / file);
    std::ofstream(model / file, std::ios::binary) << bytes;
  }
}

double SquaredError(const Image& a, const Image& b) {
  double squares = 0;
  for (size_t i = 0; i < a.pixels.size(); ++i) squares += std::pow(a.pixels[i] - b.pixels[i], 2);
  return squares / static_cast<double>(a.pixels.size());
}

// Quantizing must not cost more than errors of that size in the weights do: random ones, which nobody has
// chosen badly, move the picture as far. At worst one direction decides, all of a colour for example; then
// 99 of 100 draws stay below 6.6 times the mean (chi-squared with one degree of freedom).
TEST_F(ConvertCli, QuantizedPicturesAreAsFarAsTheFormatsErrors) {
  constexpr double kLuck = 6.6;
  constexpr unsigned kDraws = 4;
  const Image wanted = Draw(kTiny);
  ExpectConverted({kTiny, "-o", "f32", "--to", "f32"});
  for (const std::string to : {"q4", "q8"}) {
    ExpectConverted({kTiny, "-o", to, "--to", to});
    const Json report = ReadJsonFile(Path(to) / "conversion.json");
    double noise = 0;
    for (unsigned draw = 0; draw < kDraws; ++draw) {
      const std::string noisy = fmt::format("{}-noise{}", to, draw);
      fs::copy(Path("f32"), Path(noisy), fs::copy_options::recursive);
      AddNoise(Path(noisy), report, draw);
      noise += SquaredError(wanted, Draw(noisy)) / kDraws;
    }
    EXPECT_GT(noise, 0) << to;
    EXPECT_LT(SquaredError(wanted, Draw(to)), kLuck * noise) << to;
  }
}

TEST_F(ConvertCli, QuantizedWeightsKeepTheirValuesAsPlainNumbers) {
  ExpectConverted({kTiny, "-o", "q4", "--to", "q4", "--group-size", "32"});
  ExpectConverted({"q4", "-o", "f32", "--to", "f32"});
  EXPECT_EQ(Draw("f32").pixels, Draw("q4").pixels);
  const Json report = ReadJsonFile(Path("f32/conversion.json"));
  EXPECT_EQ(report.at("total").at("relative_rmse"), 0.0);
  // As bfloat16 they are rounded once, and then stay.
  ExpectConverted({"q4", "-o", "bf16", "--to", "bf16"});
  EXPECT_LT(ReadJsonFile(Path("bf16/conversion.json")).at("total").at("relative_rmse"), 0x1p-9);
  ExpectConverted({"bf16", "-o", "f16", "--to", "f32"});
  EXPECT_EQ(ReadJsonFile(Path("f16/conversion.json")).at("total").at("relative_rmse"), 0.0);
}

TEST_F(ConvertCli, TellsWhatItChanged) {
  const RunResult result = Convert({kTiny, "-o", "q4", "--to", "q4"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("transformer   modulation "), HasSubstr("largest relative errors"),
                                HasSubstr("BF16  4-bit g64"), HasSubstr("q4: 3.84 MB in 3 files")));
  EXPECT_THAT(result.err, HasSubstr("converting transformer, 0 B of 7.64 MB\n"));
  const RunResult json = Convert({kTiny, "-o", "again", "--to", "q4", "--json", "--quiet"});
  EXPECT_EQ(json.err, "");
  const Json report = Json::parse(json.out);
  EXPECT_EQ(report.at("output"), "again");
  EXPECT_EQ(report.at("tensors"), ReadJsonFile(Path("q4/conversion.json")).at("tensors"));
  const RunResult quiet = Convert({kTiny, "-o", "f32", "--to", "f32", "-q"});
  EXPECT_EQ(quiet.err, "");
  EXPECT_THAT(quiet.out,
              MatchesRegex("f32: 15\\.3 MB in 3 files \\(32\\.00 bits a weight\\), 343 tensors, .*\n"));
  EXPECT_THAT(Convert({kTiny, "-o", "copy", "--to", "bf16"}).out,
              HasSubstr("Every value is exactly that of the source.\n"));
}

TEST_F(ConvertCli, ShowsABarOnATerminal) {
  const RunResult result = Convert({kTiny, "-o", "q4", "--to", "q4"}, {.standard_error = Stream::kTerminal});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, AllOf(HasSubstr("░ converting transformer"), EndsWith("\x1b[2K")));
}

TEST_F(ConvertCli, RulesAndNotes) {
  const RunResult result =
      Convert({kTiny, "-o", "out", "--to", "q8", "--only", "transformer", "--rule", "*attn*=q4", "--rule",
               "transformer/img_in.weight=f32", "--group-size", "128"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(FilesIn(Path("out")),
              testing::ElementsAre(testing::Key("conversion.json"), testing::Key("transformer/config.json"),
                                   testing::Key(kTransformer)));
  const SafetensorsFile file(Path("out") / kTransformer);
  EXPECT_EQ(file.tensors().at("img_in.weight").dtype, DType::kF32);
  EXPECT_EQ(file.tensors().at("proj_out.weight").shape, Shape({64, 32}));
  EXPECT_EQ(file.tensors().at("transformer_blocks.0.attn.to_q.weight").shape, Shape({128, 16}));
  EXPECT_EQ(file.tensors().at("transformer_blocks.0.attn.norm_q.weight").dtype, DType::kBF16);
  EXPECT_THAT(result.out, Not(HasSubstr("note: ")));
  const RunResult vision = Convert({kTiny, "-o", "text", "--to", "q8", "--only", "text_encoder"});
  const RunResult wide =
      Convert({kTiny, "-o", "wide", "--to", "q8", "--only", "text_encoder", "--group-size", "128"});
  EXPECT_THAT(vision.out, Not(HasSubstr("note: ")));
  EXPECT_THAT(wide.out, HasSubstr("groups of 64: rows of 64 values are not whole groups of 128\n"));
}

// The text encoder's embedding alone is larger than the limit; the transformer's files before it are not.
const Arguments kManyFiles = {kTiny,    "--to", "bf16",   "--shard-size",
                              "0.0003", "-q",   "--rule", "*.embed_tokens.weight=f32"};
RunOptions SmallDisk() { return {.file_size = 400'000}; }

TEST_F(ConvertCli, ADiskThatFillsUpIsNoReasonToStartAgain) {
  Arguments whole = kManyFiles, parts = kManyFiles;
  whole.insert(whole.end(), {"-o", "whole"});
  parts.insert(parts.end(), {"-o", "out"});
  ExpectConverted(whole);
  ExpectRefused(parts, kCannotWrite, "cannot write out.partial/model/text_encoder/model-0000", SmallDisk());
  EXPECT_FALSE(fs::exists(Path("out")));
  const RunResult result = Convert(parts);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr(" of the files from an earlier run\n"));
  EXPECT_EQ(FilesIn(Path("out")), FilesIn(Path("whole")));
  EXPECT_FALSE(fs::exists(Path("out.partial")));
}

TEST_F(ConvertCli, ADiskThatIsFullAtOnceLeavesNothing) {
  ExpectRefused({kTiny, "-o", "out", "--to", "bf16", "-q"}, kCannotWrite, "cannot write out.partial",
                {.file_size = 100'000});
  EXPECT_EQ(folder_.FileCount(), 0u);
}

TEST_F(ConvertCli, AnUnfinishedConversionIsNotMixedWithAnother) {
  Arguments first = kManyFiles;
  first.insert(first.end(), {"-o", "out"});
  ExpectRefused(first, kCannotWrite, "cannot write", SmallDisk());
  ASSERT_TRUE(fs::exists(Path("out.partial")));
  ExpectRefused({kTiny, "-o", "out", "--to", "f32", "-q"}, kCannotWrite,
                "out.partial holds an unfinished conversion");
  ExpectConverted({kTiny, "-o", "out", "--to", "f32", "-q", "--overwrite"});
  EXPECT_FALSE(fs::exists(Path("out.partial")));
}

TEST_F(ConvertCli, WhatIsThereStays) {
  ExpectConverted({kTiny, "-o", "out", "--to", "bf16", "-q"});
  const auto before = FilesIn(Path("out"));
  ExpectRefused({kTiny, "-o", "out", "--to", "q4", "-q"}, kCannotWrite, "it is there already");
  EXPECT_EQ(FilesIn(Path("out")), before);
  ExpectConverted({kTiny, "-o", "out", "--to", "q4", "-q", "--overwrite"});
  EXPECT_NE(FilesIn(Path("out")), before);
  fs::create_directory(Path("mine"));
  folder_.Write("mine/letters.txt", "dear");
  ExpectRefused({kTiny, "-o", "mine", "--to", "q4", "-q", "--overwrite"}, kCannotWrite, "not a model");
  ExpectRefused({"out", "-o", "out/", "--to", "f32", "-q", "--overwrite"}, kUsage,
                "is in the folder to be written");
  EXPECT_EQ(folder_.FileCount(), 2u);
}

TEST_F(ConvertCli, SaysWhereItCannotWrite) {
  ExpectRefused({kTiny, "-o", "no/such/out", "--to", "q4", "-q"}, kCannotWrite, "no/such/out.partial");
  ExpectRefused({kTiny, "-o", "/proc/out", "--to", "q4", "-q"}, kCannotWrite, "/proc/out.partial");
}

TEST_F(ConvertCli, AFolderThatIsReadOnly) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  fs::create_directory(Path("locked"));
  chmod(Path("locked").c_str(), 0555);
  ExpectRefused({kTiny, "-o", "locked/out", "--to", "q4", "-q"}, kCannotWrite, "Permission denied");
}

TEST_F(ConvertCli, WrongUsage) {
  const Arguments start = {kTiny, "-o", "out"};
  const auto with = [&](const Arguments& more) {
    Arguments all = start;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  ExpectRefused(start, kUsage, "--to is required");
  ExpectRefused({kTiny, "--to", "q4"}, kUsage, "--output is required");
  ExpectRefused(with({"--to", "q7"}), kUsage, "q7");
  ExpectRefused(with({"--to", "q4", "--group-size", "48"}), kUsage, "48");
  ExpectRefused(with({"--to", "q4", "--only", "tokenizer"}), kUsage, "tokenizer");
  ExpectRefused(with({"--to", "q4", "--rule", "x"}), kUsage, "write GLOB=TYPE");
  ExpectRefused(with({"--to", "q4", "--rule", "*=q9"}), kUsage, "there is no type \"q9\"");
  ExpectRefused(with({"--to", "q4", "--rule", "nothing.*=f32"}), kUsage, "fits no tensor");
  ExpectRefused(with({"--to", "q4", "--rule", "vae/*=q8"}), kUsage, "matrices outside the VAE");
  ExpectRefused(with({"--to", "q4", "--model", kTiny}), kUsage, "named twice");
  EXPECT_EQ(folder_.FileCount(), 0u);
}

TEST_F(ConvertCli, ABrokenSourceIsRefusedBeforeAnythingIsWritten) {
  const ModelCopy model(Path("model"));
  const std::string before = ReadBytes(Path("model") / kTransformer);
  model.EditTensors(kTransformer, [](ModelCopy::StoredTensors& tensors) { tensors.erase("proj_out.bias"); });
  ExpectRefused({"model", "-o", "out", "--to", "q4", "-q"}, kBadInput, "proj_out.bias is missing");
  model.Write(kTransformer, before.substr(0, before.size() / 2));
  ExpectRefused({"model", "-o", "out", "--to", "q4", "-q"}, kBadInput, "incomplete");
  ExpectRefused({"nothing", "-o", "out", "--to", "q4", "-q"}, kBadInput, "there is no model");
  ExpectRefused({"--vae", kTiny + "/vae", "--only", "transformer", "-o", "out", "--to", "q4", "-q"},
                kBadInput, "there is no transformer to convert");
  model.Write(kTransformer, before);
  model.EditTensors(kTransformer, [](ModelCopy::StoredTensors& tensors) {
    const uint16_t nan = 0x7fc0;
    std::memcpy(tensors.at("proj_out.weight").bytes.data() + 100, &nan, 2);
  });
  ExpectRefused({"model", "-o", "out", "--to", "q4", "-q"}, kBadInput,
                "tensor \"proj_out.weight\" holds NaN or infinite values");
  EXPECT_EQ(folder_.FileCount(), 1u);
}

TEST_F(ConvertCli, HelpHasExamples) {
  const RunResult help = Convert({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out,
              AllOf(HasSubstr("--group-size"), HasSubstr("qwen-image convert models/tiny -o tiny-q4")));
}

}  // namespace
}  // namespace qwen_image
