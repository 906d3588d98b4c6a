// Runs that are killed and go on.
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>

#include "cli_fixture.h"
#include "files/safetensors.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// More steps than a terminal that nobody reads takes in lines about them (its buffer holds some 12 kB, a line
// has 100 bytes): a program whose output is not read any further cannot finish before it is killed.
constexpr int kSteps = 300;

class Resume : public Cli {
 protected:
  // Kills the program after it has said that so many steps are done.
  void KillAfter(int step, const Arguments& arguments) const {
    RunningProgram program(arguments, {.folder = folder_.path(), .standard_error = Stream::kTerminal});
    ASSERT_TRUE(program.WaitForError(fmt::format("step {}/", step)));
    program.Signal(SIGKILL);
    EXPECT_EQ(program.Finish().exit_code, 128 + SIGKILL);
  }
  // All steps are done, the picture is not written: the program waits for a reader of the pipe.
  void KillAfterTheLastStep() const {
    ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
    RunningProgram program(Arguments{"generate", "a star", "--resume-dir", "states", "-o", "pipe"} + kQuick,
                           {.folder = folder_.path()});
    ASSERT_TRUE(program.WaitForError("decoding the picture"));
    program.Signal(SIGKILL);
    EXPECT_EQ(program.Finish().exit_code, 128 + SIGKILL);
    ASSERT_THAT(States(), SizeIs(1));
  }
  static Arguments QuickRequest(const Arguments& more = {}) {
    return Arguments{"generate", "a star", "--resume-dir", "states", "-o", "out.png"} + kQuick + more;
  }
  // The step that "resuming after step 3 of 20" tells.
  static int ResumedStep(const RunResult& result) {
    const std::string text = "resuming after step ";
    const size_t at = result.err.find(text);
    return at == std::string::npos ? -1 : std::stoi(result.err.substr(at + text.size()));
  }
  std::vector<fs::path> States() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(Path("states"))) {
      if (!entry.path().filename().string().starts_with('.')) files.push_back(entry.path());
    }
    return files;
  }
  static Arguments Request(const Arguments& more = {}) {
    return Arguments{"generate",     "a star",  "--size",  "32x32",
                     "-o",           "out.png", "--steps", std::to_string(kSteps),
                     "--resume-dir", "states"} +
           more;
  }
};

TEST_F(Resume, AKilledRunGoesOnToTheSamePicture) {
  for (const Arguments& more : {Arguments{"--cfg", "1"}, Arguments{"--cfg", "4", "--step-cache", "0.02"}}) {
    SCOPED_TRACE(testing::PrintToString(more));
    const Image whole =
        Draw(Arguments{"a star", "--size", "32x32", "--steps", std::to_string(kSteps)} + more);
    int done = 0;
    for (int kill = 0; kill < 2; ++kill) {  // the second one hits a run that was resumed itself
      KillAfter(done + 1, Request(more));
      EXPECT_FALSE(fs::exists(Path("out.png")));
      ASSERT_THAT(States(), SizeIs(1));
      done = std::stoi(SafetensorsFile(States().front()).metadata().at("steps_done"));
    }
    const RunResult result = Run(Request(more));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(ResumedStep(result), done);
    EXPECT_GE(done, 2);
    EXPECT_LT(done, kSteps);
    EXPECT_THAT(result.err, HasSubstr(fmt::format(" of {}\n", kSteps)));
    EXPECT_THAT(result.out, HasSubstr(fmt::format("resumed after step {}", ResumedStep(result))));
    EXPECT_EQ(ReadPng(Path("out.png")).pixels, whole.pixels);
    EXPECT_TRUE(fs::is_empty(Path("states")))
        << "the state of a finished run, or a half-written file, was left";
    fs::remove(Path("out.png"));
  }
}

TEST_F(Resume, ARunThatIsKilledBeforeThePictureIsWrittenOnlyDecodes) {
  KillAfterTheLastStep();
  const RunResult result = Run(QuickRequest({"--json", "-q"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(Json::parse(result.out).at("steps_resumed"), 2);
  EXPECT_EQ(Json::parse(result.out).at("steps_run"), 0) << "of this run, not of the one before";
  EXPECT_EQ(ReadPng(Path("out.png")).pixels, Draw(kQuick + Arguments{"a star"}).pixels);
  EXPECT_THAT(States(), IsEmpty());
}

TEST_F(Resume, OtherRunsAreKeptApart) {
  KillAfterTheLastStep();
  for (const Arguments& other :
       {Arguments{"--seed", "1"}, Arguments{"--cfg", "2"}, Arguments{"--negative-prompt", "dark"},
        Arguments{"--step-cache", "0.5"}, Arguments{"--max-sequence-length", "1"}}) {
    SCOPED_TRACE(testing::PrintToString(other));
    const RunResult result = Run(QuickRequest(other));
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(ResumedStep(result), -1);
    EXPECT_THAT(States(), SizeIs(1)) << "of the first run";
  }
  EXPECT_EQ(ResumedStep(Run(QuickRequest({"--threads", "1", "--vae-tiling", "on"}))), 2)
      << "nothing that matters";
}

TEST_F(Resume, ADamagedStateIsSaidAndNotUsed) {
  KillAfterTheLastStep();
  const fs::path state = States().front();
  const std::string whole = ReadBytes(state);
  std::string flipped = whole;
  flipped[flipped.size() - 5] ^= 4;
  const Image picture = Draw(kQuick + Arguments{"a star"});
  for (const std::string& bytes : {flipped, whole.substr(0, whole.size() / 2), std::string()}) {
    folder_.Write("states/" + state.filename().string(), bytes);
    const RunResult result = Run(QuickRequest());
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.err, AllOf(HasSubstr("note: " + (fs::path("states") / state.filename()).string()),
                                  HasSubstr("the run starts from the beginning\n")));
    EXPECT_EQ(ResumedStep(result), -1);
    EXPECT_EQ(ReadPng(Path("out.png")).pixels, picture.pixels);
  }
}

TEST_F(Resume, ABatchGoesOn) {
  const Arguments request = Request({"--count", "3", "--seed", "5"});
  std::vector<std::vector<uint8_t>> whole;
  for (const char* seed : {"5", "6", "7"})
    whole.push_back(
        Draw({"a star", "--size", "32x32", "--steps", std::to_string(kSteps), "--seed", seed}).pixels);
  {
    RunningProgram program(request, {.folder = folder_.path(), .standard_error = Stream::kTerminal});
    ASSERT_TRUE(program.WaitForError("[2/3] █")) << "some steps into the second picture";
    program.Signal(SIGKILL);
    program.Finish();
  }
  const auto first_time = fs::last_write_time(Path("out-001.png"));
  const RunResult result = Run(request);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("[2/3] resuming after step "), Not(HasSubstr("[1/3] resuming"))));
  EXPECT_EQ(fs::last_write_time(Path("out-001.png")), first_time) << "drawn again";
  EXPECT_THAT(result.out, HasSubstr("out-001.png: already drawn\n"));
  for (size_t i = 0; i < 3; ++i)
    EXPECT_EQ(ReadPng(Path(fmt::format("out-{:03}.png", i + 1))).pixels, whole[i]) << i;
  EXPECT_THAT(States(), IsEmpty());
}

TEST_F(Resume, RefusesWhatCannotBeResumed) {
  folder_.Write("file", "");
  ExpectRefused({"generate", "x", "--resume-dir", "file/states"}, kCannotWrite, "file/states");
  fs::create_directory(Path("states"));
  ExpectRefused({"generate", "x", "--resume-dir", "states", "--seed", "random"}, kUsage, "random seed");
  ExpectRefused({"--trace", "generate", "x", "--resume-dir", "states"}, kUsage, "leave out --resume-dir");
  ExpectRefused({"--debug", "generate", "x", "--step-cache", "0.1"}, kUsage, "leave out --step-cache");
  for (const char* threshold : {"-0.1", "1.5"})
    ExpectRefused({"generate", "x", "--step-cache", threshold}, kUsage, "threshold of the step cache");
  ExpectRefused({"generate", "x", "--step-cache", "nan"}, kUsage,
                "--step-cache must be a number from 0 to 1");
}

TEST_F(Resume, AStepCacheIsRecordedAndEstimatesSteps) {
  const Json whole = Describe({"a star"});
  EXPECT_EQ(whole.at("steps_estimated"), 0);
  EXPECT_FALSE(whole.contains("step_cache"));
  const Image exact = ReadPng(Path("drawn.png"));
  const Json cached = Describe({"a star", "--step-cache", "0.1"});
  EXPECT_GT(cached.at("steps_estimated"), 2);
  EXPECT_EQ(cached.at("step_cache"), 0.1);
  const Image estimated = ReadPng(Path("drawn.png"));
  EXPECT_NE(estimated.pixels, exact.pixels);
  double error = 0;
  for (size_t i = 0; i < exact.pixels.size(); ++i) error += std::abs(exact.pixels[i] - estimated.pixels[i]);
  EXPECT_LT(error / static_cast<double>(exact.pixels.size()), 3.0) << "another picture";
  EXPECT_EQ(Describe({"--from", "drawn.png"}).at("step_cache"), 0.1);
  EXPECT_EQ(ReadPng(Path("drawn.png")).pixels, estimated.pixels);
}

}  // namespace
}  // namespace qwen_image
