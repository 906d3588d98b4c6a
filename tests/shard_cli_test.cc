// Many pictures on many machines, by a fixed split.
#include <fmt/format.h>

#include <fstream>

#include "cli_fixture.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Shards : public Cli {
 protected:
  static constexpr size_t kPictures = 5;

  void SetUp() override {
    folder_.Write("prompts.txt", "a star\n\na red ring\na cross\na green heart\na circle\n");
  }

  static Arguments Request(const std::string& shard, const Arguments& more = {}) {
    return Arguments{"generate", "--prompts", "prompts.txt", "--shard", shard, "-o", "out.png"} + kQuick +
           more;
  }
  std::set<std::string> Pictures() const {
    std::set<std::string> names;
    for (const std::string& name : Files())
      if (name.ends_with(".png")) names.insert(name);
    return names;
  }
  std::string Bytes(const std::string& name) const { return ReadBytes(Path(name)); }
};

TEST_F(Shards, TogetherDrawWhatOneMachineDraws) {
  ASSERT_EQ(Run(Arguments{"generate", "--prompts", "prompts.txt", "-o", "whole.png"} + kQuick).exit_code, 0);
  ASSERT_EQ(Run(Request("1/2")).exit_code, 0);
  EXPECT_THAT(Pictures(), testing::IsSupersetOf({"out-001.png", "out-003.png", "out-005.png"}));
  EXPECT_FALSE(Pictures().contains("out-002.png")) << "is the other machine's";
  ASSERT_EQ(Run(Request("2/2")).exit_code, 0);
  for (size_t i = 1; i <= kPictures; ++i)
    EXPECT_EQ(ReadPng(Path(fmt::format("out-{:03}.png", i))).pixels,
              ReadPng(Path(fmt::format("whole-{:03}.png", i))).pixels)
        << i;
}

TEST_F(Shards, ASecondRunDrawsWhatIsMissing) {
  ASSERT_EQ(Run(Request("1/2")).exit_code, 0);
  const std::string first = Bytes("out-001.png");
  const auto first_time = fs::last_write_time(Path("out-001.png"));
  fs::remove(Path("out-003.png"));
  // The cut may be another one than before.
  const RunResult result = Run(Request("1/1"));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("out-001.png: already drawn\n"), HasSubstr("out-005.png: already drawn\n")));
  EXPECT_THAT(result.out, testing::Not(HasSubstr("out-003.png: already drawn")));
  EXPECT_EQ(fs::last_write_time(Path("out-001.png")), first_time);
  EXPECT_EQ(Bytes("out-001.png"), first);
  EXPECT_EQ(Pictures().size(), kPictures);
}

TEST_F(Shards, AnotherRequestReplacesThePictures) {
  ASSERT_EQ(Run(Request("5/5")).exit_code, 0);
  const std::string before = Bytes("out-005.png");
  const RunResult result = Run(Request("5/5", {"--seed", "1"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, testing::Not(HasSubstr("already drawn")));
  EXPECT_NE(Bytes("out-005.png"), before);
}

TEST_F(Shards, OnePictureIsDrawnByTheFirst) {
  const Arguments one = Arguments{"generate", "a star", "-o", "one.png"} + kQuick;
  ASSERT_EQ(Run(one + Arguments{"--shard", "1/3"}).exit_code, 0);
  EXPECT_TRUE(fs::exists(Path("one.png"))) << "its name has no number";
  EXPECT_THAT(Run(one + Arguments{"--shard", "1/3"}).out, HasSubstr("one.png: already drawn\n"));
  const RunResult result = Run(one + Arguments{"--shard", "2/3", "-m", "no/such/model"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("note: --shard 2/3: there are fewer pictures than machines"))
      << "no model is read";
  EXPECT_THAT(result.out, IsEmpty());
}

TEST_F(Shards, RefusesWhatCannotBeCut) {
  for (const char* shard :
       {"0/2", "3/2", "1", "1/", "/2", "1/0", "-1/2", "1/2/3", "a/b", "", "1/99999999999"})
    ExpectRefused(Request(shard), kUsage, "--shard");
  const Arguments one = {"generate", "x", "--shard", "1/2"};
  ExpectRefused(one, kUsage, "name the pictures with -o");
  ExpectRefused(one + Arguments{"-o", "x.png", "--seed", "random"}, kUsage, "give a number for --seed");
}

// The script that a Slurm array runs, with the variables that Slurm sets.
TEST_F(Shards, TheExampleForSlurmDrawsAllPictures) {
  const auto task = [&](int number) {
    RunOptions options;
    options.folder = folder_.path();
    options.program = kSource / "examples/slurm/draw.sbatch";
    options.environment = {{"SLURM_ARRAY_TASK_ID", std::to_string(number)},
                           {"SLURM_ARRAY_TASK_COUNT", "2"},
                           {"SLURM_CPUS_PER_TASK", "1"},
                           {"PATH", fs::path(QWEN_IMAGE_PROGRAM).parent_path().string() + ":/usr/bin:/bin"}};
    return RunProgram(Arguments{"prompts.txt", "pictures/out.png"} + kQuick, options);
  };
  for (const int number : {1, 2}) EXPECT_EQ(task(number).exit_code, 0) << task(number).err;
  for (size_t i = 1; i <= kPictures; ++i)
    EXPECT_TRUE(fs::exists(Path(fmt::format("pictures/out-{:03}.png", i)))) << i;
  EXPECT_THAT(task(2).out, HasSubstr("pictures/out-002.png: already drawn\n"));
}

}  // namespace
}  // namespace qwen_image
