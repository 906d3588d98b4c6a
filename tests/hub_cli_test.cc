// qwen-image pull, and --model OWNER/NAME, as a user types them, against a local server that speaks the
// routes of Hugging Face.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <memory>

#include "cli_harness.h"
#include "files/json.h"
#include "files/png.h"
#include "files/testing.h"
#include "hub/fake.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using Arguments = std::vector<std::string>;
const std::string kRepo = "qwen-image-cpp/tiny";

class HubCli : public testing::Test {
 protected:
  HubCli() {
    for (const auto& entry : fs::recursive_directory_iterator(kTinyFolder)) {
      if (!entry.is_regular_file()) continue;
      hub_.Add(entry.path().lexically_relative(kTinyFolder).string(), ReadBytes(entry.path()),
               entry.path().extension() == ".safetensors");
    }
    hub_.Add("README.md", "the model's card");
  }

  RunOptions Options() const {
    return {.folder = folder_.path(),
            .environment = {{"HF_ENDPOINT", hub_.endpoint()}, {"HF_HOME", (folder_.path() / "hf").string()}}};
  }
  RunResult Run(const Arguments& arguments) const { return RunProgram(arguments, Options()); }
  void ExpectRefused(const Arguments& arguments, int exit_code, const std::string& message,
                     const RunOptions& options) const {
    SCOPED_TRACE(testing::PrintToString(arguments));
    const RunResult result = RunProgram(arguments, options);
    EXPECT_EQ(result.exit_code, exit_code);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, AllOf(HasSubstr("qwen-image: "), HasSubstr(message), EndsWith("\n")));
  }
  void ExpectRefused(const Arguments& arguments, int exit_code, const std::string& message) const {
    ExpectRefused(arguments, exit_code, message, Options());
  }
  fs::path Repo() const { return folder_.path() / "hf/hub/models--qwen-image-cpp--tiny"; }
  fs::path Snapshot() const { return Repo() / "snapshots" / hub_.commit(); }

  const TempFolder folder_;
  hub::FakeHub hub_{kRepo};
};

TEST_F(HubCli, PullThenDraw) {
  const RunResult pulled = Run({"pull", kRepo});
  EXPECT_EQ(pulled.exit_code, 0) << pulled.err;
  EXPECT_THAT(pulled.out, AllOf(StartsWith(kRepo + " (main, commit 0123456789): 13 files, "),
                                HasSubstr(" downloaded in "), HasSubstr(Snapshot().string() + "\n"),
                                EndsWith("qwen-image generate \"…\" --model " + kRepo + "\n")));
  EXPECT_THAT(pulled.err, AllOf(StartsWith("0 of 13 files, 0 B of "), Not(HasSubstr("\x1b"))));
  EXPECT_EQ(ReadBytes(Snapshot() / kTransformer), ReadBytes(kTinyFolder / kTransformer));

  const RunResult drawn =
      Run({"generate", "a red circle", "--model", kRepo, "--steps", "1", "-o", "x.png", "--json", "-q"});
  EXPECT_EQ(drawn.exit_code, 0) << drawn.err;
  EXPECT_EQ(Json::parse(drawn.out).at("model"), kRepo);

  const RunResult again = Run({"pull", kRepo});
  EXPECT_THAT(again.out, HasSubstr("; all were there\n"));
  EXPECT_EQ(again.err, "");
}

TEST_F(HubCli, TheModelCanBeNamedInOtherWays) {
  ASSERT_EQ(Run({"pull", kRepo, "-q"}).exit_code, 0);
  const Arguments draw = {"generate", "a star", "--steps", "1", "-o", "x.png", "-q"};
  RunOptions options = Options();
  options.environment["QWEN_IMAGE_MODEL"] = kRepo + "@" + hub_.commit();
  const RunResult result = RunProgram(draw, options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  // A folder of that name wins.
  fs::create_directories(folder_.path() / kRepo);
  ExpectRefused({"generate", "x", "--model", kRepo}, kBadInput, kRepo + " is not a model folder");
}

TEST_F(HubCli, AModelThatIsNotThereOrNotComplete) {
  ExpectRefused({"generate", "x", "--model", kRepo}, kBadInput, "qwen-image pull " + kRepo + " downloads it");
  ASSERT_EQ(Run({"pull", kRepo, "-q"}).exit_code, 0);
  ExpectRefused({"generate", "x", "--model", kRepo + "@v2"}, kBadInput, "not its revision v2");
  fs::remove(fs::canonical(Snapshot() / kTransformer));
  ExpectRefused({"generate", "x", "--model", kRepo}, kBadInput,
                "1 file is missing, e.g. " + kTransformer + "; qwen-image pull " + kRepo);
  EXPECT_EQ(Run({"pull", kRepo, "-q"}).exit_code, 0);
  EXPECT_EQ(Run({"generate", "x", "--steps", "1", "-m", kRepo, "-q", "-o", "x.png"}).exit_code, 0);
}

TEST_F(HubCli, APartOfAModel) {
  const RunResult result = Run({"pull", kRepo, "--only", "vae", "--only", "scheduler", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const Json json = Json::parse(result.out);
  std::vector<std::string> paths;
  for (const Json& file : json.at("files")) paths.push_back(file.at("path"));
  EXPECT_THAT(paths, ElementsAre("model_index.json", "qwen_image.json", "scheduler/scheduler_config.json",
                                 "vae/config.json", "vae/diffusion_pytorch_model.safetensors"));
  EXPECT_EQ(json.at("commit"), hub_.commit());
  EXPECT_EQ(json.at("folder"), Snapshot().string());
  EXPECT_EQ(json.at("bytes"), json.at("downloaded_bytes"));
  EXPECT_THAT(Run({"pull", kRepo, "--include", "README*"}).out, HasSubstr(": 1 file, "));
  EXPECT_EQ(ReadBytes(Snapshot() / "README.md"), "the model's card");
  ExpectRefused({"generate", "x", "--model", kRepo}, kBadInput, "transformer, text_encoder, tokenizer");
}

TEST_F(HubCli, AnotherCache) {
  const RunResult result = Run({"pull", kRepo, "--cache-dir", "elsewhere", "--revision", "main"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_FALSE(fs::exists(folder_.path() / "hf"));
  const std::string folder = "elsewhere/models--qwen-image-cpp--tiny/snapshots/" + hub_.commit();
  EXPECT_THAT(result.out, HasSubstr("--model " + folder + "\n"));
  EXPECT_EQ(ReadBytes(folder_.path() / folder / kTransformer), ReadBytes(kTinyFolder / kTransformer));
}

TEST_F(HubCli, ProgressOnATerminal) {
  RunOptions options = Options();
  options.standard_error = Stream::kTerminal;
  const RunResult result = RunProgram({"pull", kRepo}, options);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, AllOf(StartsWith("\r\x1b[2K0 of 13 files, 0 B of "), EndsWith("\r\x1b[2K")));
}

TEST_F(HubCli, AsManyAtATimeAsAskedFor) {
  hub_.fault = [gate = std::make_shared<hub::Gate>(4)](const hub::TestRequest& request,
                                                       hub::TestResponse& answer) {
    if (answer.status != 200 || request.path.starts_with("/api/")) return;
    answer.says_length = false;  // the answers end only when four were asked for
    answer.when_sent = [gate] { EXPECT_TRUE(gate->Pass()); };
  };
  EXPECT_EQ(Run({"pull", kRepo, "--parallel", "4", "-q"}).exit_code, 0);
}

TEST_F(HubCli, QuietIsQuiet) {
  const RunResult result = Run({"pull", kRepo, "-q"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out + result.err, "");
}

TEST_F(HubCli, ServersThatRefuse) {
  ExpectRefused({"pull", "qwen-image-cpp/other"}, kBadInput, "no such repository");
  ExpectRefused({"pull", kRepo, "--revision", "v2"}, kBadInput, kRepo + "@v2: ");
  hub_.required_token = "hf_secret";
  ExpectRefused({"pull", kRepo}, kBadInput, "set HF_TOKEN");
  RunOptions options = Options();
  options.environment["HF_TOKEN"] = "hf_secret";
  EXPECT_EQ(RunProgram({"pull", kRepo, "-q"}, options).exit_code, 0);
}

TEST_F(HubCli, WrongBytes) {
  hub_.fault = [](const hub::TestRequest& request, hub::TestResponse& answer) {
    if (request.path.starts_with("/blobs/")) answer.body.back() ^= 1;
  };
  ExpectRefused({"pull", kRepo}, kBadInput, "does not have the announced checksum");
  EXPECT_FALSE(fs::exists(Repo() / "refs"));
}

TEST_F(HubCli, AFullDisk) {
  RunOptions options = Options();
  options.file_size = 500'000;
  ExpectRefused({"pull", kRepo}, kCannotWrite, "File too large", options);
  EXPECT_EQ(Run({"pull", kRepo, "-q"}).exit_code, 0);
  EXPECT_EQ(ReadBytes(Snapshot() / kTransformer), ReadBytes(kTinyFolder / kTransformer));
}

TEST_F(HubCli, InterruptedAndResumed) {
  hub_.fault = [&](const hub::TestRequest& request, hub::TestResponse& answer) {
    if (request.path != "/blobs/" + hub_.HashOf(kTransformer)) return;
    answer.cut_after = 200'000;
    answer.hold = true;
  };
  RunningProgram program({"pull", kRepo, "--parallel", "1"}, Options());
  ASSERT_TRUE(program.WaitForError("0 of 13 files"));
  program.Signal(SIGINT);
  const RunResult result = program.Finish();
  EXPECT_EQ(result.exit_code, kInterrupted);
  EXPECT_THAT(result.err, HasSubstr("interrupted; the same command goes on from here"));
  EXPECT_FALSE(fs::exists(Repo() / "refs"));
  hub_.fault = nullptr;
  EXPECT_EQ(Run({"pull", kRepo, "-q"}).exit_code, 0);
  EXPECT_EQ(ReadBytes(Snapshot() / kTransformer), ReadBytes(kTinyFolder / kTransformer));
}

// The repositories of docs/models.md are out of reach; that their commands are understood is not.
TEST_F(HubCli, DocumentedCommandsAreUnderstood) {
  constexpr std::string_view kProgram = "build/release/qwen-image ", kComment = "  #";
  std::ifstream document(fs::path(QWEN_IMAGE_SOURCE_DIR) / "docs/models.md");
  WritePng(folder_.path() / "photo.jpg", {32, 32, std::vector<uint8_t>(32 * 32 * 3)}, {});
  RunOptions options = Options();
  options.program = "/bin/sh";
  options.environment["HF_HUB_OFFLINE"] = "1";
  int tried = 0;
  for (std::string line; std::getline(document, line);) {
    if (!line.starts_with(kProgram)) continue;
    std::string command = line.substr(kProgram.size(), line.find(kComment) - kProgram.size());
    if (command.starts_with("run ")) command += " --yes -q";
    if (!command.starts_with("run ") && !command.starts_with("pull ")) continue;
    const RunResult result = RunProgram({"-c", "'" QWEN_IMAGE_PROGRAM "' " + command}, options);
    EXPECT_EQ(result.err, "qwen-image: HF_HUB_OFFLINE is set; unset it to download\n") << line;
    ++tried;
  }
  EXPECT_GE(tried, 7);
}

TEST_F(HubCli, WrongUsage) {
  ExpectRefused({"pull"}, kUsage, "repository");
  ExpectRefused({"pull", "Qwen-Image"}, kUsage, "write OWNER/NAME");
  ExpectRefused({"pull", "../../etc/passwd"}, kUsage, "write OWNER/NAME");
  ExpectRefused({"pull", kRepo + "@a", "--revision", "b"}, kUsage, "twice");
  ExpectRefused({"pull", kRepo, "--revision", "../x"}, kUsage, "branch, tag or commit");
  ExpectRefused({"pull", kRepo, "--revision", ""}, kUsage, "empty");
  ExpectRefused({"pull", kRepo, "--only", "nothing"}, kUsage, "no folder \"nothing\"");
  ExpectRefused({"pull", kRepo, "--include", "*Q4*"}, kUsage, "matches \"*Q4*\"");
  ExpectRefused({"pull", kRepo, "--parallel", "0"}, kUsage, "--parallel");
  RunOptions options = Options();
  options.environment["HF_HUB_OFFLINE"] = "1";
  ExpectRefused({"pull", kRepo}, kUsage, "HF_HUB_OFFLINE", options);
}

}  // namespace
}  // namespace qwen_image
