// Models by short names, as a user types them: run, list, pull and rm, against a local server that speaks the
// routes of Hugging Face, with a catalogue of their own that holds the tiny model.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "cli_harness.h"
#include "files/json.h"
#include "files/png.h"
#include "files/testing.h"
#include "hub/fake.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

using Arguments = std::vector<std::string>;
const std::string kLora = "kohya.safetensors";

class NamesCli : public testing::Test {
 protected:
  NamesCli() {
    hub_.copies = {"test/parts", "test/loras"};
    for (const auto& entry : fs::recursive_directory_iterator(kTinyFolder)) {
      if (!entry.is_regular_file()) continue;
      files_.push_back(entry.path().lexically_relative(kTinyFolder).string());
      hub_.Add(files_.back(), ReadBytes(entry.path()), entry.path().extension() == ".safetensors");
    }
    hub_.Add(kLora, ReadBytes(kSource / "tests/goldens/loras" / kLora), true);
    folder_.Write("catalogue.json", CatalogueText().dump());
  }

  Json Source(const std::string& repo, const std::string& path, bool folder = true) const {
    Json json = {{"repository", repo}, {"path", path}, {"bytes", 1000u}, {"seen", "this test"}};
    for (const std::string& file : files_) {
      if (folder && (path == "." || file.starts_with(path + "/"))) json["files"].push_back(file);
    }
    return json;
  }
  Json CatalogueText() const {
    Json guess = Source("test/loras", "transfomer.gguf", false);
    guess.erase("seen");
    guess["unseen"] = true;
    const auto model = [](const char* name, uint64_t memory, const Json& parts) {
      return Json{
          {"name", name}, {"purpose", "tests"}, {"licence", "MIT"}, {"memory", memory}, {"parts", parts}};
    };
    Json parts = model("tiny-test:parts", 1000,
                       {{"transformer", "transformer"},
                        {"text_encoder", "text_encoder"},
                        {"vae", "vae"},
                        {"tokenizer", "tokenizer"}});
    parts["variant"] = "qwen-image";
    parts["loras"] = Json::array({{{"file", "lora"}, {"scale", 0.5}}});
    parts["defaults"] = {{"steps", 3}, {"cfg", 2.0}};
    return {
        {"files",
         {{"whole", Source("test/tiny", ".")},
          {"transformer", Source("test/parts", "transformer")},
          {"text_encoder", Source("test/parts", "text_encoder")},
          {"vae", Source("test/parts", "vae")},
          {"tokenizer", Source("test/parts", "tokenizer")},
          {"lora", Source("test/loras", kLora, false)},
          {"guess", guess}}},
        {"models",
         Json::array({model("tiny-test:huge", 4'000'000'000'000, {{"model", "whole"}}),
                      model("tiny-test:whole", 1000, {{"model", "whole"}}), parts,
                      model("guess:q4", 1000,
                            {{"transformer", "guess"}, {"text_encoder", "text_encoder"}, {"vae", "vae"}})})}};
  }

  RunOptions Options() const {
    return {.folder = folder_.path(),
            .environment = {{"HF_ENDPOINT", hub_.endpoint()},
                            {"HF_HOME", (folder_.path() / "hf").string()},
                            {"QWEN_IMAGE_CATALOGUE", (folder_.path() / "catalogue.json").string()}}};
  }
  RunResult Run(const Arguments& arguments) const { return RunProgram(arguments, Options()); }
  void Succeed(const Arguments& arguments) const {
    const RunResult result = Run(arguments);
    EXPECT_EQ(result.exit_code, 0) << testing::PrintToString(arguments) << result.err;
  }
  std::string Refusal(const Arguments& arguments, int exit_code) const {
    const RunResult result = Run(arguments);
    EXPECT_EQ(result.exit_code, exit_code) << testing::PrintToString(arguments) << result.out;
    return result.err;
  }
  std::vector<uint8_t> Pixels(const char* picture) const { return ReadPng(folder_.path() / picture).pixels; }
  fs::path Cache() const { return folder_.path() / "hf/hub"; }
  bool NothingWasDownloaded() const { return !fs::exists(Cache()) && hub_.Requests("/resolve/").empty(); }

  const TempFolder folder_;
  std::vector<std::string> files_;
  hub::FakeHub hub_{"test/tiny"};
};

TEST_F(NamesCli, RunDownloadsAndDraws) {
  const Arguments settings = {"a red circle", "--steps", "2", "--seed", "3"};
  Arguments run = {"run", "tiny-test", "--yes", "-o", "named.png"},
            plain = {"generate", "-m", kTinyFolder, "-o", "plain.png"};
  run.insert(run.end(), settings.begin(), settings.end());
  plain.insert(plain.end(), settings.begin(), settings.end());
  RunResult result = Run(run);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, AllOf(StartsWith("tiny-test: taking whole ("), HasSubstr("this machine has"),
                                HasSubstr("tiny-test:whole: 13 files, "), HasSubstr("licence  MIT")));
  EXPECT_THAT(result.out, StartsWith("named.png: 128x128, 2 steps"));
  Succeed(plain);
  EXPECT_EQ(Pixels("named.png"), Pixels("plain.png"));

  // What is here needs no server.
  const size_t requests = hub_.Requests("/").size();
  result = Run({"run", "tiny-test", "a star", "--steps", "1", "-o", "x.png"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, StartsWith("tiny-test: taking whole, which is downloaded\n"));
  EXPECT_THAT(hub_.Requests("/"), SizeIs(requests));
}

TEST_F(NamesCli, PartsAndWhatTheNameStandsFor) {
  const RunResult drawn = Run(
      {"run", "tiny-test:parts", "a red circle", "-y", "-q", "--json", "-o", "named.png", "-s", "128x128"});
  EXPECT_EQ(drawn.exit_code, 0) << drawn.err;
  EXPECT_EQ(drawn.err, "");
  const Json record = Json::parse(drawn.out);
  EXPECT_EQ(record.at("steps"), 3);
  EXPECT_EQ(record.at("cfg"), 2.0);
  EXPECT_EQ(record.at("loras").at(0).at("scale"), 0.5);
  Succeed({"generate",
           "a red circle",
           "--transformer",
           kTinyFolder / "transformer",
           "--text-encoder",
           kTinyFolder / "text_encoder",
           "--vae",
           kTinyFolder / "vae",
           "--tokenizer",
           kTinyFolder / "tokenizer",
           "--variant",
           "qwen-image",
           "--lora",
           (kSource / "tests/goldens/loras" / kLora).string() + ":0.5",
           "--steps",
           "3",
           "--cfg",
           "2",
           "-s",
           "128x128",
           "-o",
           "plain.png"});
  EXPECT_EQ(Pixels("named.png"), Pixels("plain.png"));

  const RunResult said = Run({"generate", "a star", "-m", "tiny-test:parts", "--steps", "1", "--cfg", "1",
                              "--json", "-s", "64x64", "-o", "x.png"});
  EXPECT_EQ(Json::parse(said.out).at("steps"), 1) << said.err;
  EXPECT_EQ(Json::parse(said.out).at("cfg"), 1.0);
  const RunResult sigmas = Run({"generate", "a star", "-m", "tiny-test:parts", "--sigmas", "1,0.5", "--json",
                                "-s", "64x64", "-o", "x.png"});
  EXPECT_EQ(Json::parse(sigmas.out).at("steps"), 2) << sigmas.err;
}

TEST_F(NamesCli, RunAsksOnATerminalOnly) {
  EXPECT_THAT(Refusal({"run", "tiny-test", "x"}, kUsage),
              AllOf(HasSubstr("tiny-test:whole is not downloaded ("), HasSubstr("licence: MIT"),
                    HasSubstr("say --yes"), EndsWith("qwen-image pull tiny-test:whole\n")));
  EXPECT_THAT(hub_.Requests("/"), IsEmpty());
  RunOptions options = Options();
  options.standard_error = Stream::kTerminal;
  options.typed = "n\n";
  const Arguments arguments = {"run", "tiny-test:whole", "a star", "--steps", "1", "-o", "x.png"};
  RunResult result = RunProgram(arguments, options);
  EXPECT_EQ(result.exit_code, kInterrupted);
  EXPECT_THAT(result.err, AllOf(HasSubstr("licence  MIT"), HasSubstr(Cache().string()),
                                HasSubstr("Download it? [y/N] "), HasSubstr("nothing was done")));
  EXPECT_TRUE(NothingWasDownloaded());
  options.typed = "y\n";
  result = RunProgram(arguments, options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(fs::exists(folder_.path() / "x.png"));
}

TEST_F(NamesCli, CtrlCAtTheQuestion) {
  RunOptions options = Options();
  options.standard_error = Stream::kTerminal;
  options.typed = "";
  RunningProgram program({"run", "tiny-test:whole", "a star"}, options);
  ASSERT_TRUE(program.WaitForError("[y/N]"));
  program.Signal(SIGINT);
  EXPECT_EQ(program.Finish().exit_code, kInterrupted);
  EXPECT_TRUE(NothingWasDownloaded());
}

TEST_F(NamesCli, AWrongCommandDownloadsNothing) {
  EXPECT_THAT(Refusal({"run", "tiny-test", "--yes"}, kUsage), HasSubstr("prompt"));
  EXPECT_THAT(Refusal({"run", "tiny-test", "x", "--yes", "-i", "absent.png"}, kBadInput),
              HasSubstr("absent.png"));
  for (const char* option :
       {"--transformer", "--text-encoder", "--vision-encoder", "--vae", "--tokenizer", "--lora"})
    EXPECT_THAT(Refusal({"run", "tiny-test", "x", "--yes", option, "absent"}, kBadInput),
                HasSubstr(std::string(option) + ": there is no file or folder \"absent\""));
  EXPECT_THAT(Refusal({"run", "tiny-test", "x", "--yes", "--steps", "0"}, kUsage), HasSubstr("steps"));
  EXPECT_THAT(Refusal({"run", "tiny-tset", "x", "--yes"}, kBadInput), HasSubstr("nearest: tiny-test"));
  EXPECT_THAT(Refusal({"run", "Tiny-Test", "x", "--yes"}, kBadInput), HasSubstr("nearest: tiny-test"));
  EXPECT_THAT(Refusal({"run"}, kUsage), HasSubstr("name is required"));
  EXPECT_THAT(Refusal({"pull", "tiny-test:whole", "--only", "vae"}, kUsage), HasSubstr("--only"));
  EXPECT_TRUE(NothingWasDownloaded());
}

TEST_F(NamesCli, EditsWithAPicture) {
  Succeed({"generate", "a red circle", "--steps", "1", "-o", "circle.png"});
  const RunResult edited = Run({"run", "tiny-test:whole", "make it green", "-i", "circle.png", "-y",
                                "--steps", "1", "-o", "x.png", "--json", "-q"});
  EXPECT_EQ(edited.exit_code, 0) << edited.err;
  EXPECT_THAT(Json::parse(edited.out).at("input_images"), SizeIs(1));
}

TEST_F(NamesCli, AFileThatIsNotInTheRepository) {
  EXPECT_THAT(Refusal({"pull", "guess:q4"}, kBadInput),
              AllOf(HasSubstr("guess:q4: test/loras has no file \"transfomer.gguf\"; nearest: "),
                    HasSubstr("it is a guess"), HasSubstr("nothing was downloaded")));
  EXPECT_TRUE(NothingWasDownloaded());
}

TEST_F(NamesCli, NamesWhereverModelsAreNamed) {
  EXPECT_THAT(Refusal({"generate", "x", "-m", "tiny-test:whole"}, kBadInput),
              AllOf(HasSubstr("is not downloaded"), HasSubstr("qwen-image pull tiny-test:whole")));
  EXPECT_THAT(Refusal({"generate", "x", "-m", "tiny-test"}, kBadInput),
              HasSubstr("qwen-image pull tiny-test "));
  const RunResult pulled = Run({"pull", "tiny-test:parts", "--json"});
  EXPECT_EQ(pulled.exit_code, 0) << pulled.err;
  EXPECT_EQ(Json::parse(pulled.out).at("name"), "tiny-test:parts");
  EXPECT_THAT(Json::parse(pulled.out).at("repositories"), SizeIs(2));
  EXPECT_THAT(
      Run({"pull", "tiny-test:parts"}).out,
      AllOf(HasSubstr("; all were there\n"), EndsWith("next  qwen-image run tiny-test:parts \"…\"\n")));

  Succeed({"generate", "a star", "-m", "tiny-test", "--steps", "1", "-s", "64x64", "-o", "x.png"});
  Succeed({"doctor", "tiny-test:parts"});
  Succeed({"inspect", "tiny-test:parts", "--no-stats"});
  Succeed({"inspect", kTinyFolder / "transformer", "tiny-test:parts"});  // compared: the same
  Succeed({"bench", "-m", "tiny-test:parts", "--steps", "1", "--sizes", "64x64"});
  Succeed({"convert", "tiny-test:parts", "-o", "converted", "--to", "bf16", "--only", "vae"});
  RunOptions options = Options();
  options.environment["QWEN_IMAGE_MODEL"] = "tiny-test:parts";
  EXPECT_EQ(
      RunProgram({"generate", "a star", "--steps", "1", "-s", "64x64", "-o", "y.png"}, options).exit_code, 0);
  RunningProgram server({"serve", "-m", "tiny-test:parts", "--port", "0", "--jobs-dir", "jobs"}, Options());
  EXPECT_THAT(server.WaitForOutput("is ready"), HasSubstr("is ready"));
  server.Signal(SIGTERM);
  server.Finish();
}

TEST_F(NamesCli, WhatIsHereWins) {
  fs::create_directories(folder_.path() / "tiny-test:whole");
  for (const char* command : {"generate", "run"}) {
    const Arguments arguments = command == std::string("run")
                                    ? Arguments{"run", "tiny-test:whole", "x"}
                                    : Arguments{command, "x", "-m", "tiny-test:whole"};
    EXPECT_THAT(Refusal(arguments, kBadInput), HasSubstr("tiny-test:whole is not a model folder"));
  }
  EXPECT_THAT(Refusal({"run", "test/tiny", "x"}, kBadInput),
              HasSubstr("qwen-image pull test/tiny downloads it"));
}

TEST_F(NamesCli, List) {
  const RunResult before = Run({"list"});
  EXPECT_EQ(before.exit_code, 0);
  EXPECT_THAT(before.out, AllOf(StartsWith("name "), HasSubstr("tiny-test:huge"), HasSubstr("too large"),
                                HasSubstr("guess:q4 *"), HasSubstr("a guess"), HasSubstr(Cache().string())));
  Succeed({"pull", "tiny-test:parts", "-q"});
  const Json json = Json::parse(Run({"list", "--json"}).out);
  ASSERT_THAT(json.at("models"), SizeIs(4));
  const Json &huge = json["models"][0], &whole = json["models"][1], &parts = json["models"][2];
  EXPECT_FALSE(huge.at("fits_memory"));
  EXPECT_FALSE(whole.at("here"));
  EXPECT_TRUE(whole.at("fits_memory"));
  EXPECT_TRUE(parts.at("here"));
  EXPECT_EQ(parts.at("missing_bytes"), 0);
  EXPECT_EQ(parts.at("sources").at(0).at("seen"), "this test");
}

TEST_F(NamesCli, Rm) {
  EXPECT_THAT(Refusal({"rm", "tiny-test:whole", "--yes"}, kBadInput),
              HasSubstr("nothing that only tiny-test:whole"));
  Succeed({"pull", "tiny-test:parts", "-q"});
  EXPECT_THAT(Refusal({"rm", "tiny-test:parts"}, kUsage), HasSubstr("say --yes to delete tiny-test:parts ("));
  RunOptions options = Options();
  options.standard_error = Stream::kTerminal;
  options.typed = "\n";
  const RunResult refused = RunProgram({"rm", "tiny-test"}, options);
  EXPECT_EQ(refused.exit_code, kInterrupted);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("test/loras: " + kLora), HasSubstr("? [y/N] ")));
  Succeed({"doctor", "tiny-test:parts"});
  const RunResult removed = Run({"rm", "tiny-test", "--yes"});
  EXPECT_EQ(removed.exit_code, 0) << removed.err;
  EXPECT_THAT(removed.out, AllOf(StartsWith("tiny-test:parts: "), EndsWith(" MB freed\n")));
  for (const auto& left : fs::directory_iterator(Cache()))
    EXPECT_EQ(left.path().filename(), ".locks");  // as huggingface_hub leaves them, too
}

TEST_F(NamesCli, RmOfAModelWithTwoNames) {
  Succeed({"pull", "tiny-test:whole", "-q"});
  const RunResult result = Run({"rm", "tiny-test:huge", "--yes"});  // the same folder
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("freed"));
  EXPECT_THAT(Refusal({"generate", "x", "-m", "tiny-test:whole"}, kBadInput), HasSubstr("is not downloaded"));
}

TEST_F(NamesCli, InterruptedAndResumed) {
  hub_.fault = [&](const hub::TestRequest& request, hub::TestResponse& answer) {
    if (request.path != "/blobs/" + hub_.HashOf(kTransformer)) return;
    answer.cut_after = 200'000;
    answer.hold = true;
  };
  RunningProgram program({"run", "tiny-test:whole", "a star", "--yes", "--steps", "1", "-o", "x.png"},
                         Options());
  ASSERT_TRUE(program.WaitForError("0 of 13 files"));
  program.Signal(SIGINT);
  const RunResult result = program.Finish();
  EXPECT_EQ(result.exit_code, kInterrupted);
  EXPECT_THAT(result.err, HasSubstr("interrupted; the same command goes on from here"));
  EXPECT_THAT(Refusal({"generate", "x", "-m", "tiny-test:whole"}, kBadInput), HasSubstr("is not downloaded"));
  hub_.fault = nullptr;
  Succeed({"run", "tiny-test:whole", "a star", "--yes", "--steps", "1", "-o", "x.png"});
}

TEST_F(NamesCli, ACatalogueWithAMistake) {
  Json json = CatalogueText();
  json["models"][0]["memroy"] = 1;
  folder_.Write("catalogue.json", json.dump());
  EXPECT_THAT(
      Refusal({"list"}, kBadInput),
      AllOf(HasSubstr("catalogue.json: model 1: \"memroy\" is not a key"), Not(HasSubstr("built-in"))));
}

}  // namespace
}  // namespace qwen_image
