// qwen-image convert as its users meet it: what can be drawn with what it writes, how it fails, how it goes
// on.
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
constexpr int kUsage = 2, kBadInput = 3, kCannotWrite = 5;
const fs::path kSource = QWEN_IMAGE_SOURCE_DIR;
const std::string kTiny = (kSource / "models/tiny").string();
const std::string kTransformer = "transformer/diffusion_pytorch_model.safetensors";

std::map<std::string, std::string> FilesIn(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file())
      files[entry.path().lexically_relative(folder).string()] = ReadBytes(entry.path());
  }
  return files;
}

double Psnr(const RgbImage& a, const RgbImage& b) {
  double squares = 0;
  for (size_t i = 0; i < a.pixels.size(); ++i) squares += std::pow(a.pixels[i] - b.pixels[i], 2);
  return 10 * std::log10(255.0 * 255.0 * static_cast<double>(a.pixels.size()) / squares);
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
  RgbImage Draw(const std::string& model) const {
    const RunResult result = RunProgram({"generate", "a red circle", "--model", model, "--steps", "4",
                                         "--seed", "3", "-o", "picture.png", "-q"},
                                        {.folder = folder_.path()});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return ReadPng(Path("picture.png"));
  }
  const TempFolder folder_;
};

TEST_F(ConvertCli, PlainNumbersDrawTheSamePicture) {
  const RgbImage wanted = Draw(kTiny);
  ExpectConverted({kTiny, "-o", "f32", "--to", "f32"});
  EXPECT_EQ(Draw("f32").pixels, wanted.pixels);  // the source has bf16, which f32 holds exactly
  ExpectConverted({"f32", "-o", "bf16", "--to", "bf16"});
  EXPECT_EQ(Draw("bf16").pixels, wanted.pixels);
  const SafetensorsFile before(kTiny + "/" + kTransformer), after(Path("bf16") / kTransformer);
  ASSERT_EQ(after.tensors().size(), before.tensors().size());
  for (const auto& [name, tensor] : before.tensors()) {
    const StoredTensor& found = after.tensors().at(name);
    EXPECT_EQ(found.dtype, "BF16");
    EXPECT_TRUE(std::equal(tensor.bytes.begin(), tensor.bytes.end(), found.bytes.begin(), found.bytes.end()));
  }
}

// The source with random errors as large, tensor by tensor, as those that the report of a conversion tells.
void WriteNoisyModel(const fs::path& folder, const Json& report) {
  const ModelCopy copy(folder);
  std::mt19937 random(11);
  std::normal_distribution<double> normal;
  std::map<std::string, double> relative;
  for (const Json& tensor : report.at("tensors"))
    relative[tensor.at("name")] = tensor.at("relative_rmse").get<double>();
  for (const char* file :
       {"transformer/diffusion_pytorch_model.safetensors", "text_encoder/model.safetensors"}) {
    copy.EditTensors(file, [&](ModelCopy::StoredTensors& tensors) {
      for (auto& [name, tensor] : tensors) {
        std::vector<float> values(tensor.bytes.size() / 2);
        const auto count = static_cast<int64_t>(values.size());
        ConvertToFloat(tensor.bytes.data(), DType::kBF16, count, values.data());
        double squares = 0;
        for (const float value : values) squares += static_cast<double>(value) * value;
        // The text encoder's names in the folder are those of the report, or lack a part of the prefix.
        const auto found = std::find_if(relative.begin(), relative.end(), [&name = name](const auto& item) {
          return item.first.ends_with(name);
        });
        const double size = found == relative.end() ? 0 : found->second;
        const double deviation = size * std::sqrt(squares / static_cast<double>(values.size()));
        for (float& value : values) value += static_cast<float>(deviation * normal(random));
        tensor.dtype = "F32";
        tensor.bytes.assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
      }
    });
  }
}

// Quantizing must not cost more than the errors of the weights do: random ones of the same size, which nobody
// has chosen badly, move the picture as far. A factor of 2 (6 dB) is the luck of one draw.
TEST_F(ConvertCli, QuantizedPicturesAreAsFarAsTheFormatsErrors) {
  const RgbImage wanted = Draw(kTiny);
  double before = 0;
  for (const std::string to : {"q4", "q8"}) {
    ExpectConverted({kTiny, "-o", to, "--to", to});
    const Json report = ReadJsonFile(Path(to) / "conversion.json");
    WriteNoisyModel(Path(to + "-noise"), report);
    const double quantized = Psnr(wanted, Draw(to)), noisy = Psnr(wanted, Draw(to + "-noise"));
    EXPECT_GT(quantized, noisy - 6) << to;
    EXPECT_LT(quantized, noisy + 20) << to << ": the report tells larger errors than there are";
    EXPECT_GT(quantized, before);
    before = quantized;
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
  EXPECT_EQ(file.tensors().at("img_in.weight").dtype, "F32");
  EXPECT_EQ(file.tensors().at("proj_out.weight").shape, Shape({64, 32}));
  EXPECT_EQ(file.tensors().at("transformer_blocks.0.attn.to_q.weight").shape, Shape({128, 16}));
  EXPECT_EQ(file.tensors().at("transformer_blocks.0.attn.norm_q.weight").dtype, "BF16");
  EXPECT_THAT(result.out, Not(HasSubstr("note: ")));
  const RunResult vision = Convert({kTiny, "-o", "text", "--to", "q8", "--only", "text_encoder"});
  const RunResult wide =
      Convert({kTiny, "-o", "wide", "--to", "q8", "--only", "text_encoder", "--group-size", "128"});
  EXPECT_THAT(vision.out, Not(HasSubstr("note: ")));
  EXPECT_THAT(wide.out, HasSubstr("groups of 64: rows of 64 values are no groups of 128\n"));
}

TEST_F(ConvertCli, ADiskThatFillsUpIsNoReasonToStartAgain) {
  const Arguments arguments = {kTiny, "-o", "out", "--to", "bf16", "--shard-size", "0.0003", "-q"};
  ExpectConverted({kTiny, "-o", "whole", "--to", "bf16", "--shard-size", "0.0003", "-q"});
  uintmax_t largest = 0;
  for (const auto& entry : fs::recursive_directory_iterator(Path("whole")))
    if (entry.is_regular_file()) largest = std::max(largest, entry.file_size());
  // All but the largest shards fit.
  ExpectRefused(arguments, kCannotWrite, "cannot write out.partial/model/", {.file_size = largest - 1});
  EXPECT_FALSE(fs::exists(Path("out")));
  const RunResult result = Convert(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("files were there from an earlier run\n"));
  EXPECT_EQ(FilesIn(Path("out")), FilesIn(Path("whole")));
  EXPECT_FALSE(fs::exists(Path("out.partial")));
}

TEST_F(ConvertCli, ADiskThatIsFullAtOnceLeavesNothing) {
  ExpectRefused({kTiny, "-o", "out", "--to", "bf16", "-q"}, kCannotWrite, "cannot write out.partial",
                {.file_size = 100'000});
  EXPECT_EQ(folder_.FileCount(), 0u);
}

TEST_F(ConvertCli, AnUnfinishedConversionIsNotMixedWithAnother) {
  const Arguments arguments = {kTiny, "-o", "out", "--shard-size", "0.0003", "-q", "--to"};
  const auto with = [&](const std::string& to, const Arguments& more = {}) {
    Arguments all = arguments;
    all.push_back(to);
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  ExpectRefused(with("bf16"), kCannotWrite, "cannot write", {.file_size = 290'000});
  ASSERT_TRUE(fs::exists(Path("out.partial")));
  ExpectRefused(with("f32"), kCannotWrite, "out.partial holds an unfinished conversion");
  ExpectConverted(with("f32", {"--overwrite"}));
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
