// The program without the plugin that speaks to NATS servers: a user is told how to get it.
#include "cli_fixture.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class NoNats : public Cli {
 protected:
  // The plugin is looked for beside the program, so a copy elsewhere has none.
  void SetUp() override { fs::copy_file(QWEN_IMAGE_PROGRAM, Path("alone")); }
};

TEST_F(NoNats, EveryCommandSaysHowToGetIt) {
  folder_.Write("jobs.jsonl", R"({"prompt": "x", "seed": 1})");
  RunOptions options;
  options.program = Path("alone");
  for (const Arguments& command :
       {Arguments{"work"}, Arguments{"submit", "jobs.jsonl"}, Arguments{"serve"}}) {
    const RunResult result = Run(command + Arguments{"--nats", "nats://127.0.0.1:4222"}, options);
    EXPECT_EQ(result.exit_code, kUsage);
    EXPECT_THAT(result.err, AllOf(HasSubstr("./run build --nats"), HasSubstr("libnats-dev")));
    EXPECT_EQ(result.out, "");
  }
}

TEST_F(NoNats, AServerThatDrawsItselfNeedsNone) {
  for (const char* option : {"--results", "--queue-name"})
    ExpectRefused({"serve", option, "x"}, kUsage, "give --nats, too");
  ExpectRefused({"serve", "--same-build"}, kUsage, "give --nats, too");
  ExpectRefused({"work"}, kUsage, "--nats is required");
}

}  // namespace
}  // namespace qwen_image
