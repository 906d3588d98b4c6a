// One picture on several machines: processes that a real mpirun starts.
#include <fmt/format.h>
#include <signal.h>

#include <chrono>
#include <fstream>
#include <iterator>

#include "cli_fixture.h"
#include "files/safetensors.h"
#include "server/http/test_client.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kMachineFailed = 6;
const std::string kModels = kSource / "tests/goldens/models";

class ManyMachines : public Cli {
 protected:
  RunOptions Launcher(const std::string& program = "mpirun") const {
    RunOptions options;
    options.folder = folder_.path();
    options.program = fs::path("/usr/bin") / program;
    // Tests may run as root, and on fewer processors than there are processes.
    options.environment = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                           {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                           {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
                           {"OMPI_MCA_btl_vader_single_copy_mechanism", "none"}};
    return options;
  }
  static Arguments Launch(int ranks, const Arguments& arguments,
                          const std::string& program = QWEN_IMAGE_PROGRAM) {
    return Arguments{"-n", std::to_string(ranks), program} + arguments;
  }
  RunResult RunOn(int ranks, const Arguments& arguments) const {
    return RunProgram(Launch(ranks, arguments), Launcher());
  }

  void ExpectSameBits(const std::string& name, const Arguments& arguments) const {
    const Arguments quiet = {"-q", "--no-prompt-cache", "-t", "1"};
    const std::string alone = name + "-alone.png";
    const RunResult result = Run(arguments + quiet + Arguments{"-o", alone});
    ASSERT_EQ(result.exit_code, 0) << name << ": " << result.err;
    for (const int ranks : {2, 3, 4}) {
      const std::string together = fmt::format("{}-{}.png", name, ranks);
      const RunResult many = RunOn(ranks, arguments + quiet + Arguments{"-o", together});
      ASSERT_EQ(many.exit_code, 0) << together << ": " << many.err;
      EXPECT_EQ(ReadBytes(Path(together)), ReadBytes(Path(alone))) << together;
    }
  }

  void DrawSource() const {
    ASSERT_EQ(Run({"generate", "a red circle", "--steps", "1", "--size", "64x64", "-q", "-o", "source.png"})
                  .exit_code,
              0);
  }

  // As the state on disk tells; 0: there is none.
  int StepsDone() const {
    if (!fs::exists(Path("states"))) return 0;
    for (const auto& entry : fs::directory_iterator(Path("states"))) {
      if (!entry.path().filename().string().starts_with('.'))
        return std::stoi(SafetensorsFile(entry.path()).metadata().at("steps_done"));
    }
    return 0;
  }
  void WaitForStep(int step) const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (StepsDone() < step)
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "step " << step << " does not come";
  }

  // The process of a rank of what runs in this test's folder.
  pid_t ProcessOf(int rank) const {
    const std::string variable = fmt::format("OMPI_COMM_WORLD_RANK={}", rank);
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != name.npos) continue;
      if (fs::read_symlink(entry.path() / "cwd", ignored) != folder_.path()) continue;
      if (fs::read_symlink(entry.path() / "exe", ignored) != fs::path(QWEN_IMAGE_PROGRAM)) continue;
      std::ifstream file(entry.path() / "environ");
      const std::string environment{std::istreambuf_iterator<char>(file), {}};
      if (environment.find(variable + '\0') != environment.npos) return std::stoi(name);
    }
    ADD_FAILURE() << "rank " << rank << " does not run";
    return 0;
  }
};

TEST_F(ManyMachines, DrawTheSameBits) {
  const Arguments quick = {"--steps", "2", "--size", "96x64"};
  for (const char* precision : {"fast", "exact"})
    ExpectSameBits(precision, Arguments{"generate", "a red circle", "--precision", precision} + quick);
  ExpectSameBits("large", {"generate", "a red circle", "--steps", "1", "--size", "320x256"});
  ExpectSameBits("unguided", Arguments{"generate", "a red circle", "--cfg", "1"} + quick);
  ExpectSameBits("cache",
                 {"generate", "a red circle", "--steps", "6", "--step-cache", "0.1", "--size", "64x64"});
  ExpectSameBits("lora", Arguments{"generate", "a red circle", "--lora",
                                   (kSource / "tests/goldens/loras/kohya.safetensors").string() + ":0.7"} +
                             quick);
  ExpectSameBits("random", Arguments{"generate", "a red circle", "-m", kModels + "/micro"} + quick);
}

TEST_F(ManyMachines, EditTheSameBits) {
  DrawSource();
  const Arguments edit = {"edit", "make it green", "--steps", "2", "-i", "source.png"};
  ExpectSameBits("tiny", edit);
  for (const char* model : {"edit-micro", "edit-micro-2511", "21-micro"})
    ExpectSameBits(model, edit + Arguments{"-m", kModels + "/" + model});
}

TEST_F(ManyMachines, RepairTheSameBits) {
  DrawSource();
  ExpectSameBits("image", {"generate", "a star", "--init-image", "source.png", "--steps", "3"});
  ExpectSameBits("margins", {"generate", "a star", "--init-image", "source.png", "--steps", "2", "--outpaint",
                             "0,0,32,0"});
}

TEST_F(ManyMachines, DrawTheNewerFamilysSameBits) {
  ExpectSameBits(
      "base", {"generate", "a red circle", "--steps", "3", "--size", "64x96", "-m", kModels + "/21-micro"});
  ExpectSameBits("turbo", {"generate", "a red circle", "--size", "64x64", "-m", kModels + "/21-micro-turbo"});
}

TEST_F(ManyMachines, RecordWhatOneMachineRecords) {
  const Arguments request = {
      "--checkpoints", "all", "generate",          "a red circle", "--steps", "1",  "--size",
      "64x48",         "-q",  "--no-prompt-cache", "-t",           "1",       "-o", "out.png"};
  ASSERT_EQ(Run(Arguments{"--debug=alone"} + request).exit_code, 0);
  const fs::path alone = Path("debug_artifacts/alone/cpp");
  size_t tensors = 0;
  for (const int ranks : {2, 3}) {
    const std::string run = fmt::format("ranks{}", ranks);
    const RunResult result = RunOn(ranks, Arguments{"--debug=" + run} + request);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    for (const auto& entry : fs::recursive_directory_iterator(alone)) {
      if (entry.path().extension() != ".npy") continue;
      ++tensors;
      const fs::path other = Path("debug_artifacts/" + run + "/cpp") / fs::relative(entry.path(), alone);
      ASSERT_TRUE(fs::exists(other)) << other;
      EXPECT_EQ(ReadBytes(other), ReadBytes(entry.path())) << other;
    }
  }
  EXPECT_GT(tensors, 800u);
}

TEST_F(ManyMachines, AKilledOneEndsAllAndAnyNumberGoesOn) {
  constexpr int kKills = 10;
  const Arguments request = {
      "generate", "a star",  "--size",       "64x64",  "--steps",          "400", "-t", "1",
      "-o",       "out.png", "--resume-dir", "states", "--no-prompt-cache"};
  const Image whole = Draw({"a star", "--size", "64x64", "--steps", "400", "-t", "1"});
  for (int kill_number = 0; kill_number < kKills; ++kill_number) {
    SCOPED_TRACE(kill_number);
    const int ranks = 2 + kill_number % 3, victim = kill_number * 7 % ranks;
    RunningProgram program(Launch(ranks, request), Launcher());
    ASSERT_TRUE(program.WaitForError(kill_number == 0 ? "step 0/" : "resuming"));
    const int done = StepsDone();
    WaitForStep(done + 1 + kill_number);
    ASSERT_EQ(kill(ProcessOf(victim), SIGKILL), 0);
    EXPECT_NE(program.Finish().exit_code, 0);
    ASSERT_FALSE(fs::exists(Path("out.png")));
  }
  const RunResult result = Run(request);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("resuming after step"));
  EXPECT_EQ(ReadPng(Path("out.png")).pixels, whole.pixels);
}

TEST_F(ManyMachines, OneThatHangsIsNamed) {
  RunningProgram program(
      Launch(3, {"generate", "a star", "--size", "128x128", "--steps", "1000", "-t", "1", "-o", "out.png"}),
      Launcher());
  ASSERT_TRUE(program.WaitForError("step 0/"));
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(kill(ProcessOf(2), SIGSTOP), 0);
  const RunResult result = program.Finish();
  EXPECT_EQ(result.exit_code, kMachineFailed);
  EXPECT_THAT(result.err, HasSubstr("(rank 2) has not been heard of"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15))
      << "promised in docs/machines.md";
  EXPECT_FALSE(fs::exists(Path("out.png")));
}

// The first machine fails while the others wait for its numbers: a folder is where a tensor is to be written.
TEST_F(ManyMachines, AFailureInTheMiddleEndsAll) {
  const std::string tensor =
      "debug_artifacts/full/cpp/transformer/step000/transformer_blocks.1.attn.add_q_proj.npy";
  fs::create_directories(Path(tensor + "/folder"));
  const RunResult result = RunOn(3, {"--debug=full", "--checkpoints", "all", "generate", "a star", "--size",
                                     "64x48", "--steps", "2", "-q", "--no-prompt-cache", "-o", "out.png"});
  EXPECT_EQ(result.exit_code, kCannotWrite) << result.err;
  EXPECT_THAT(result.err, HasSubstr("cannot write " + tensor));
  EXPECT_FALSE(fs::exists(Path("out.png")));
}

TEST_F(ManyMachines, WithoutThePluginNothingIsDrawn) {
  fs::copy(QWEN_IMAGE_PROGRAM, Path("program"));
  const Arguments request = {"generate", "a star", "-o", "out.png"};
  const RunResult result = RunProgram(Launch(2, request, Path("program")), Launcher());
  EXPECT_EQ(result.exit_code, kUsage);
  EXPECT_THAT(result.err, AllOf(HasSubstr("started 2 processes, which would each draw alone"),
                                HasSubstr("./run build --mpi")));
  EXPECT_FALSE(fs::exists(Path("out.png")));

  RunOptions other = Launcher();
  other.program = Path("program");
  other.environment = {{"PMI_SIZE", "4"}, {"PMI_RANK", "0"}};
  EXPECT_THAT(RunProgram(request, other).err, HasSubstr("libqwen_image_mpich.so is missing"));
  other.environment = {{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}};
  EXPECT_EQ(RunProgram(request + kQuick + Arguments{"-m", kTiny}, other).exit_code, 0)
      << "Slurm alone starts nothing";
}

TEST_F(ManyMachines, OtherCommandsWantOneMachine) {
  const RunResult result = RunOn(2, {"inspect", kTiny});
  EXPECT_EQ(result.exit_code, kUsage);
  EXPECT_THAT(result.err, HasSubstr("inspect runs on one machine"));
}

TEST_F(ManyMachines, TheDoctorMeasuresThem) {
  EXPECT_EQ(Run({"doctor", "no/such", "--machines", "localhost,localhost"}).exit_code, kFailed);
  const RunResult result = Run({"doctor", kTiny, "--machines", "localhost,localhost"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("2 machines, the same build and weights on all"), HasSubstr("network: "),
                    HasSubstr("512x512, guidance"), HasSubstr("--split layers")));
}

TEST_F(ManyMachines, WrongUsageIsToldOnce) {
  const RunResult result = RunOn(3, {"generate", "a star", "--size", "7x7"});
  EXPECT_EQ(result.exit_code, kUsage);
  const size_t first = result.err.find("qwen-image: ");
  ASSERT_NE(first, std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("qwen-image: ", first + 1), std::string::npos) << result.err;
}

TEST_F(ManyMachines, AreStartedByName) {
  const Arguments request = {"generate", "a star", "--size", "64x64", "--steps", "2", "-q"};
  ASSERT_EQ(Run(request + Arguments{"-o", "alone.png"}).exit_code, 0);
  const RunResult result =
      Run(request + Arguments{"--machines", "localhost,localhost,localhost", "-o", "many.png"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(ReadBytes(Path("many.png")), ReadBytes(Path("alone.png")));

  ExpectRefused(request + Arguments{"--machines", "localhost"}, kUsage, "name at least two");
  ExpectRefused(request + Arguments{"--machines", "localhost,-x"}, kUsage, "is not the name of a machine", {},
                3);
  const RunResult twice = RunOn(2, request + Arguments{"--machines", "a,b"});
  EXPECT_EQ(twice.exit_code, kUsage);
  EXPECT_THAT(twice.err, HasSubstr("leave out either that or mpirun"));
  const RunResult wrong = Run(request + Arguments{"--machines", "localhost,localhost", "-m", "no/such"});
  EXPECT_EQ(wrong.exit_code, Run(request + Arguments{"-m", "no/such"}).exit_code) << wrong.err;
}

TEST_F(ManyMachines, ThatWereStartedByNameFailWithACodeOfTheirOwn) {
  const Arguments request = {"generate", "a star", "--size",  "128x128",    "--steps",
                             "1000",     "-o",     "out.png", "--machines", "localhost,localhost"};
  {
    RunningProgram program(request, Launcher(fs::path(QWEN_IMAGE_PROGRAM)));
    ASSERT_TRUE(program.WaitForError("step 0/"));
    ASSERT_EQ(kill(ProcessOf(1), SIGKILL), 0);
    EXPECT_EQ(program.Finish().exit_code, kMachineFailed);
  }
  {
    RunningProgram program(request, Launcher(fs::path(QWEN_IMAGE_PROGRAM)));
    ASSERT_TRUE(program.WaitForError("step 0/"));
    program.Signal(SIGTERM);
    EXPECT_EQ(program.Finish().exit_code, kInterrupted);
  }
  EXPECT_FALSE(fs::exists(Path("out.png")));
}

TEST_F(ManyMachines, TheDocumentsCommandsWork) {
  const std::string kTyped = "build/release/qwen-image";
  fs::create_directory_symlink(kSource / "models", Path("models"));
  std::ifstream document(kSource / "docs/machines.md");
  int run = 0;
  for (std::string line; std::getline(document, line);) {
    const bool together = line.starts_with("mpirun ") || line.find("--machines") != line.npos;
    if (!together || line.find(kTyped) == line.npos || line.starts_with("|")) continue;
    line.replace(line.find(kTyped), kTyped.size(), "'" QWEN_IMAGE_PROGRAM "'");
    const RunResult result = RunProgram({"-c", line}, Launcher("sh"));
    EXPECT_EQ(result.exit_code, 0) << line << "\n" << result.err;
    ++run;
  }
  EXPECT_GE(run, 3);
}

// None of the machines has all of the transformer's blocks.
TEST_F(ManyMachines, InARowDrawTheSameBits) {
  DrawSource();
  const Arguments quick = {"--steps", "2", "--size", "64x96", "-q", "--no-prompt-cache", "-t", "1"};
  const std::vector<std::pair<std::string, Arguments>> requests = {
      {"guided", {"generate", "a red circle"}},
      {"unguided", {"generate", "a red circle", "--cfg", "1"}},
      {"edit", {"edit", "make it green", "-i", "source.png"}},
      {"newer", {"generate", "a red circle", "-m", kModels + "/21-micro"}}};
  for (const auto& [name, request] : requests) {
    const std::string alone = name + "-alone.png";
    ASSERT_EQ(Run(request + quick + Arguments{"-o", alone}).exit_code, 0);
    const std::string row = name + "-row.png";
    const RunResult result = RunOn(2, request + quick + Arguments{"--split", "layers", "-o", row});
    ASSERT_EQ(result.exit_code, 0) << name << ": " << result.err;
    EXPECT_EQ(ReadBytes(Path(row)), ReadBytes(Path(alone))) << name;
  }
  const RunResult too_many = RunOn(5, {"generate", "a red circle", "--split", "layers", "-t", "1"});
  EXPECT_EQ(too_many.exit_code, kUsage);
  EXPECT_THAT(too_many.err, HasSubstr("5 machines cannot share the model's 4 blocks"));
}

// The first machine answers, all draw.
TEST_F(ManyMachines, ServeTogether) {
  ASSERT_EQ(Run({"generate", "a star", "--size", "64x64", "--steps", "3", "-q", "-o", "alone.png"}).exit_code,
            0);
  RunningProgram program(Launch(3, {"serve", "--port", "0", "--jobs-dir", "jobs", "-t", "1"}), Launcher());
  const std::string out = program.WaitForOutput("\n");
  const size_t colon = out.find("http://127.0.0.1:");
  ASSERT_NE(colon, out.npos) << out;
  const auto port = static_cast<uint16_t>(std::stoi(out.substr(colon + 17)));
  const auto ask = [&](const std::string& method, const std::string& path, const std::string& body = "") {
    http::Client client(port);
    client.Send(http::RequestText(method, path, port, body, ""));
    return client.Read();
  };
  const std::string body =
      R"({"prompt": "a star", "size": "64x64", "steps": 3, "response_format": "b64_json"})";
  const http::TestReply drawn = ask("POST", "/v1/images/generations", body);
  EXPECT_EQ(drawn.status, 200) << drawn.body;
  // A job that is cancelled leaves the machines ready for the next one.
  const Json job =
      ask("POST", "/jobs", R"({"prompt": "a star", "size": "128x128", "steps": 200, "n": 10})").json();
  const std::string path = "/jobs/" + job["id"].get<std::string>();
  while (ask("GET", path).json()["state"] == "queued") continue;
  EXPECT_EQ(ask("DELETE", path).status / 100, 2);
  EXPECT_EQ(ask("POST", "/v1/images/generations", body).status, 200);
  program.Signal(SIGTERM);
  program.Finish();
}

}  // namespace
}  // namespace qwen_image
