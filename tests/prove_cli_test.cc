// qwen-image prove as its users meet it.
#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <csignal>

#include "cli_fixture.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

std::string HostName() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

std::string UserName() {
  const passwd* user = getpwuid(getuid());
  return user ? user->pw_name : "";
}

// A page is long: it is not printed if this fails.
bool Has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

// The same for a whole word.
bool HasWord(const std::string& text, const std::string& word) {
  const auto is_letter = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  for (size_t at = 0; (at = text.find(word, at)) != text.npos; ++at) {
    const size_t end = at + word.size();
    if ((at == 0 || !is_letter(text[at - 1])) && (end == text.size() || !is_letter(text[end]))) return true;
  }
  return false;
}

// Without pictures and the style sheet, which may hold any word by chance.
std::string TextOfPage(std::string html) {
  if (const size_t style = html.find("<style>"); style != html.npos)
    html.erase(style, html.find("</style>") - style);
  const std::string begin = "data:image/png;base64,";
  for (size_t at = 0; (at = html.find(begin, at)) != html.npos; ++at) html.erase(at, html.find('"', at) - at);
  return html;
}

class ProveCli : public Cli {
 protected:
  static Arguments Small(const Arguments& more) {
    return Arguments{"prove", "--size", "64x64", "--steps", "2", "-o", "report", "-q"} + more;
  }
  // Returns prove.json.
  Json Prove(const Arguments& more, int exit_code = 0) const {
    const RunResult result = Run(Small(more));
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_TRUE(Has(ReadBytes(Path("report/prove.html")), "<!DOCTYPE html>"));
    return Json::parse(ReadBytes(Path("report/prove.json")), nullptr, false);
  }
  static Json Part(const Json& document, const std::string& name) {
    for (const Json& part : document.at("parts")) {
      if (part.at("name") == name) return part;
    }
    ADD_FAILURE() << "no part " << name;
    return Json::object();
  }
  static std::string StatusOf(const Json& document, const std::string& name) {
    return Part(document, name).value("status", "");
  }
  std::set<std::string> FilesIn(const std::string& folder) const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(Path(folder)))
      names.insert(entry.path().filename().string());
    return names;
  }
};

TEST_F(ProveCli, TheEmbeddedModelPasses) {
  const Json document = Prove({});
  EXPECT_EQ(document["schema"], 1);
  EXPECT_TRUE(document["passed"].get<bool>());
  for (const char* part : {"doctor", "machine", "loading", "precisions", "pictures"})
    EXPECT_EQ(StatusOf(document, part), "passed") << part;
  EXPECT_EQ(StatusOf(document, "diffusers"), "not done");
  EXPECT_THAT(Part(document, "diffusers").value("why", ""), HasSubstr("not compared with diffusers: "));

  const Json machine = Part(document, "machine");
  EXPECT_GT(machine["memory"].get<int64_t>(), 0);
  EXPECT_NE(machine["instruction_set"], "");
  const Json loading = Part(document, "loading");
  EXPECT_EQ(loading["parts"].size(), 3u);
  EXPECT_EQ(loading["parts"][0]["files"][0]["name"], "diffusion_pytorch_model.safetensors");

  const Json precisions = Part(document, "precisions");
  EXPECT_TRUE(precisions["identical"].get<bool>());  // bf16
  EXPECT_EQ(precisions["blocks"].size(), 8u);        // 4 blocks, 2 streams
  EXPECT_GT(precisions["blocks"][0]["max"].get<double>(), 1);
  EXPECT_EQ(precisions["steps"].size(), 2u);

  const Json pictures = Part(document, "pictures")["pictures"];
  ASSERT_EQ(pictures.size(), 2u);
  for (const Json& picture : pictures) {
    EXPECT_GT(picture["seconds"]["denoise"].get<double>(), 0);
    EXPECT_GT(picture["memory"]["peak"]["decode"].get<int64_t>(), 0);
    EXPECT_EQ(ReadPng(Path("report") / picture["file"].get<std::string>()).width, 64);
  }
  EXPECT_THAT(FilesIn("report"), UnorderedElementsAre("prove.html", "prove.json", "text.png", "edit.png"));
  const std::string html = ReadBytes(Path("report/prove.html"));
  EXPECT_TRUE(Has(html, "data:image/png;base64,") && Has(html, "same bits"));
}

TEST_F(ProveCli, AQuantizedModelDiffersWithinItsLimits) {
  ASSERT_EQ(Run({"convert", (kSource / "models/tiny").string(), "-o", "q4", "--to", "q4", "-q"}).exit_code,
            0);
  const Json precisions = Part(Prove({"--model", "q4"}), "precisions");
  EXPECT_EQ(precisions["status"], "passed");
  EXPECT_FALSE(precisions["identical"].get<bool>());
  double largest = 0;
  for (const Json& block : precisions["blocks"]) {
    largest = std::max(largest, block["isolated"].get<double>());
    EXPECT_LT(block["isolated"].get<double>(), precisions["limit"].get<double>());
    EXPECT_EQ(block["nan"], 0);
  }
  EXPECT_GT(largest, 0);
  EXPECT_GT(precisions["picture"]["psnr"].get<double>(), 30);
  EXPECT_TRUE(Has(ReadBytes(Path("report/prove.html")), "<svg id=\"precisions-blocks\""));
}

TEST_F(ProveCli, OtherFamiliesPass) {
  for (const char* model : {"21-micro", "edit-micro-2511"}) {
    SCOPED_TRACE(model);
    const Json document = Prove({"--model", (kSource / "tests/goldens/models" / model).string()});
    EXPECT_TRUE(document["passed"].get<bool>()) << document;
    EXPECT_FALSE(Part(document, "precisions")["blocks"].empty());
  }
}

// Its noise levels are as many as its steps, whatever --quick would take.
TEST_F(ProveCli, AModelOfFixedStepsKeepsThem) {
  const RunResult result = Run(
      {"prove", "--quick", "--json", "-q", "-m", (kSource / "tests/goldens/models/21-micro-turbo").string()});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const Json document = Json::parse(result.out, nullptr, false);
  EXPECT_EQ(document, Json::parse(ReadBytes(Path("qwen-image-report/prove.json"))));
  EXPECT_EQ(Part(document, "pictures")["pictures"][0]["steps"],
            Part(document, "precisions")["drawn"]["fast"]["steps"]);
}

TEST_F(ProveCli, ComparesWithARunOfDiffusers) {
  const Json part =
      Part(Prove({"--reference", (kSource / "tests/goldens/tiny_blocks").string()}), "diffusers");
  EXPECT_EQ(part["status"], "passed") << part["why"];
  EXPECT_EQ(part["versions"]["diffusers"], "0.42.1");
  EXPECT_GT(part["isolated"]["tensors"].get<int>(), 50);
  EXPECT_LE(part["picture"]["max_levels"].get<double>(), 1);
  EXPECT_EQ(part["blocks"].size(), 8u);
  EXPECT_FALSE(part["drawn"].contains("prompt"));
}

TEST_F(ProveCli, AnotherModelThanDiffusersHadFails) {
  const ModelCopy model(Path("model"));
  model.EditTensors(kTransformer, [](ModelCopy::StoredTensors& tensors) {
    std::string& bytes = tensors.at("transformer_blocks.2.attn.to_v.weight").bytes;
    std::fill(bytes.begin(), bytes.end(), '\0');
  });
  const Json document =
      Prove({"--model", "model", "--reference", (kSource / "tests/goldens/tiny_blocks").string()}, kFailed);
  EXPECT_EQ(StatusOf(document, "precisions"), "passed");
  EXPECT_THAT(Part(document, "diffusers").value("why", ""), HasSubstr("transformer_blocks.2:img is beyond"));
}

TEST_F(ProveCli, ABrokenModelIsReported) {
  const ModelCopy model(Path("model"));
  model.Truncate(kTransformer, 100'000);
  const Json document = Prove({"--model", "model"}, kFailed);
  EXPECT_FALSE(document["passed"].get<bool>());
  EXPECT_EQ(StatusOf(document, "doctor"), "failed");
  EXPECT_THAT(Part(document, "doctor").value("why", ""), HasSubstr("MODEL/" + kTransformer));
  EXPECT_EQ(StatusOf(document, "machine"), "passed");
  for (const char* part : {"loading", "precisions", "pictures", "diffusers"})
    EXPECT_EQ(StatusOf(document, part), "not done") << part;
  EXPECT_THAT(FilesIn("report"), UnorderedElementsAre("prove.html", "prove.json"));
  EXPECT_TRUE(Has(ReadBytes(Path("report/prove.html")), "FAILED"));
}

TEST_F(ProveCli, NanInAWeightIsFound) {
  const ModelCopy model(Path("model"));
  model.EditTensors(kTransformer, [](ModelCopy::StoredTensors& tensors) {
    ModelCopy::StoredTensor& weight = tensors.at("transformer_blocks.1.img_mlp.net.2.weight");
    ASSERT_EQ(weight.dtype, "BF16");
    weight.bytes[0] = weight.bytes[1] = '\x7f';
    weight.bytes[0] = '\xff';
  });
  const Json document = Prove({"--model", "model"}, kFailed);
  const Json precisions = Part(document, "precisions");
  EXPECT_EQ(precisions["status"], "failed");
  EXPECT_THAT(precisions.value("why", ""),
              AllOf(HasSubstr("exact: NaN or infinity, first in transformer/step000/transformer_blocks.1:"),
                    HasSubstr("transformer_blocks.1.img_mlp.net.2.weight")));
  EXPECT_EQ(StatusOf(document, "pictures"), "failed");
}

// Whatever tells who the user is: a path, also in messages about the model, and the names of user and
// machine.
TEST_F(ProveCli, TellsNothingOfTheUser) {
  const fs::path home = Path("home of Jane Telling");
  fs::create_directories(home);
  const ModelCopy model(home / "Telling-model");
  fs::copy(kSource / "tests/goldens/tiny_blocks", home / "Telling-run", fs::copy_options::recursive);
  const std::string manifest = ReadBytes(home / "Telling-run/manifest.json");
  std::string told = manifest;
  told.replace(told.find("a red circle on"), 15, "a Telling text ");
  folder_.Write("home of Jane Telling/Telling-run/manifest.json", told);
  const auto expect_silence = [&](const std::string& report) {
    for (const std::string& file : FilesIn("home of Jane Telling/" + report)) {
      SCOPED_TRACE(file);
      const fs::path path = home / report / file;
      std::string text = ReadBytes(path);
      if (path.extension() == ".png") {
        text.clear();
        for (const auto& [key, value] : ReadPngText(path)) text += fmt::format("{} {}\n", key, value);
        EXPECT_THAT(text, HasSubstr("\"prompt\""));
      }
      text = TextOfPage(text);
      EXPECT_FALSE(Has(text, "Telling"));
      EXPECT_FALSE(Has(text, folder_.path().filename().string()));
      EXPECT_FALSE(HasWord(text, HostName()));
      EXPECT_FALSE(HasWord(text, UserName()));
    }
  };
  const RunOptions options = {.environment = {{"HOME", home.string()}, {"USER", "Telling"}}};
  const Arguments common = {"--size", "64x64", "--steps", "2", "-q", "-m", (home / "Telling-model").string()};
  const auto prove = [&](const Arguments& more) {
    return Run(Arguments{"prove"} + common + more, options).exit_code;
  };
  // The prompt of the run is another than that of its tensors, so the comparison fails.
  EXPECT_EQ(prove({"-o", (home / "whole").string(), "--reference", (home / "Telling-run").string()}),
            kFailed);
  EXPECT_EQ(FilesIn("home of Jane Telling/whole").size(), 4u);
  expect_silence("whole");
  model.Truncate(kTransformer, 100'000);
  model.Write("vae/config.json", "{");
  EXPECT_EQ(prove({"-o", (home / "broken").string()}), kFailed);
  expect_silence("broken");
  fs::remove(home / "Telling-model/tokenizer/tokenizer.json");
  fs::remove_all(home / "Telling-model/text_encoder");
  EXPECT_EQ(prove({"-o", (home / "missing").string(), "--lora", (home / "Telling lora.bin").string()}),
            kFailed);
  expect_silence("missing");
}

TEST_F(ProveCli, AnInterruptedRunLeavesNothing) {
  for (const char* what : {"exact: step 0/1000", "text.png: step 0/"}) {
    const std::string steps = std::string(what).starts_with("exact") ? "1000" : "4";
    const Arguments size =
        steps == "4" ? Arguments{"--quick"} : Arguments{"--size", "256x256", "--steps", steps};
    RunningProgram program(Arguments{"prove", "-o", "a/report"} + size, {.folder = folder_.path()});
    ASSERT_TRUE(program.WaitForError(what));
    program.Signal(SIGINT);
    const RunResult result = program.Finish();
    EXPECT_EQ(result.exit_code, kInterrupted);
    EXPECT_THAT(result.err, EndsWith("qwen-image: interrupted\n"));
    EXPECT_EQ(result.out, "");
    EXPECT_FALSE(fs::exists(Path("a/report")));
  }
}

TEST_F(ProveCli, RefusesBeforeItWorks) {
  folder_.Write("holidays/beach.jpg", "x");
  ExpectRefused({"prove", "-o", "holidays"}, kUsage, "holidays holds \"beach.jpg\"");
  ExpectRefused({"prove", "-o", "holidays/beach.jpg"}, kUsage, "is a file");
  ExpectRefused({"prove", "-m", "nowhere"}, kBadInput, "there is no model nowhere");
  ExpectRefused({"prove", "--reference", "holidays"}, kBadInput, "holidays");
  ExpectRefused({"prove", "--size", "100x100", "-q"}, kUsage, "100x100");
  ExpectRefused({"prove", "--size", "wide"}, kUsage, "wide");
  ExpectRefused({"prove", "--steps", "0"}, kUsage, "--steps");
  ExpectRefused({"prove", "-q", "-o", "/proc/report"}, kCannotWrite, "/proc/report");
  ExpectRefused(
      {"prove", "-q", "--steps", "5", "-m", (kSource / "tests/goldens/models/21-micro-turbo").string()},
      kUsage, "fixed noise levels");
}

TEST_F(ProveCli, HelpHasExamples) {
  const RunResult result = Run({"prove", "--help"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("qwen-image prove --model ~/models/Qwen-Image"), HasSubstr("--quick"),
                    HasSubstr("--reference"), HasSubstr("Exit codes: 0 nothing failed")));
}

}  // namespace
}  // namespace qwen_image
