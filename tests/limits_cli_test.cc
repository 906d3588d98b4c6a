// Limits on memory, and interruption.
#include <signal.h>

#include "cli_fixture.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using ::testing::EndsWith;
using ::testing::IsEmpty;

// Memory.

TEST_F(Cli, RefusesAModelThatDoesNotFit) {
  const TempFolder folder;
  const ModelCopy model(folder.path() / "model");
  model.Truncate("transformer/diffusion_pytorch_model.safetensors", int64_t{8} << 40);
  const Arguments request = {"generate", "x", "-m", model.path().string()};
  ExpectRefused(request, kOutOfMemory, "needs 8796.1 GB of memory");
  ExpectRefused(request + Arguments{"--ignore-memory"}, kBadInput, "diffusion_pytorch_model.safetensors");
}

TEST_F(Cli, RefusesWhatALimitOnMemoryForbids) {
  if (kSanitized) GTEST_SKIP() << "not with sanitizers";
  const RunOptions limited = {.address_space = 300'000'000};
  EXPECT_EQ(
      Run(Arguments{"generate", "x", "-q", "-o", "out.png", "--threads", "1"} + kQuick, limited).exit_code, 0)
      << "enough for a small picture";
  fs::remove(Path("out.png"));
  const Arguments large = {"generate", "x",       "--size", "4096x4096", "--vae-tiling",
                           "off",      "--steps", "1",      "--threads", "1"};
  ExpectRefused(large, kOutOfMemory, "a picture of 4096x4096 needs about", limited);
}

TEST_F(Cli, RunsOutOfMemoryInGoodOrder) {
  if (kSanitized) GTEST_SKIP() << "not with sanitizers";
  // Enough to start (libcurl and its many libraries take 25 MB of addresses), but not for what the VAE needs
  // in the end.
  const Arguments request = {"generate", "x", "-q", "--ignore-memory", "--steps", "1", "--threads", "1"};
  const RunOptions limited = {.address_space = 66'000'000};
  EXPECT_EQ(Run(request + Arguments{"--size", "32x32", "-o", "out.png"}, limited).exit_code, 0);
  ExpectRefused(request + Arguments{"--size", "1024x1024"}, kOutOfMemory, "cannot allocate", limited);
}

TEST_F(Cli, TakesAsManyThreadsAsItGets) {
  if (kSanitized) GTEST_SKIP() << "not with sanitizers";
  // Every thread reserves megabytes of addresses for its stack.
  const RunResult result =
      Run(Arguments{"generate", "x", "-q", "--ignore-memory", "--threads", "1000"} + kQuick,
          {.address_space = 100'000'000});
  EXPECT_TRUE(result.exit_code == 0 || result.exit_code == kOutOfMemory)
      << result.exit_code << ": " << result.err;
}

// Interruption.

TEST_F(Cli, AnInterruptedRunLeavesNothing) {
  for (const int signal : {SIGINT, SIGTERM}) {
    RunningProgram program({"generate", "x", "--steps", "1000", "--size", "512x512", "-o", "out.png"},
                           {.folder = folder_.path()});
    ASSERT_TRUE(program.WaitForError("step 0/1000"));
    program.Signal(signal);
    const RunResult result = program.Finish();
    EXPECT_EQ(result.exit_code, kInterrupted);
    EXPECT_THAT(result.err, EndsWith("qwen-image: interrupted\n"));
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(Files(), IsEmpty());
  }
}

TEST_F(Cli, AnInterruptedBatchKeepsWhatIsDone) {
  RunningProgram program(Arguments{"generate", "x", "--count", "1000", "-o", "out.png"} + kQuick,
                         {.folder = folder_.path()});
  ASSERT_TRUE(program.WaitForError("[2/1000] "));
  program.Signal(SIGINT);
  const RunResult result = program.Finish();
  EXPECT_EQ(result.exit_code, kInterrupted);
  EXPECT_THAT(result.err, EndsWith("qwen-image: interrupted\n"));
  const std::set<std::string> files = Files();
  EXPECT_EQ(files.count("out-001.png"), 1u);
  EXPECT_EQ(files.count("out-1000.png"), 0u);
  for (const std::string& file : files) EXPECT_EQ(ReadPng(Path(file)).width, 64) << file;
}

}  // namespace
}  // namespace qwen_image
