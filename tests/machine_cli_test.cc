// Which kernels compute, and what takes how long.
#include <fstream>

#include "cli_fixture.h"

namespace qwen_image {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

#if defined(__x86_64__)
constexpr const char *kSimd = "avx2", *kPlain = "portable";
const Json kSimdKernels = {{"floats", "AVX2"}, {"int8", "AVX2"}};
#else
constexpr const char *kSimd = "neon-dotprod", *kPlain = "neon";
const Json kSimdKernels = {{"floats", "NEON"}, {"int8", "NEON dotprod"}};
#endif

TEST_F(Cli, KeepsToAnInstructionSet) {
  const Arguments request = {"a star", "--size", "64x48", "--steps", "1"};
  EXPECT_EQ(Describe(request + Arguments{"--instruction-set", kSimd}).value("kernels", Json()), kSimdKernels);
  const Json chosen = Describe(request).value("kernels", Json());
  EXPECT_EQ(Describe(request + Arguments{"--instruction-set", "auto"}).value("kernels", Json()), chosen);
  const Json plain = Describe(request + Arguments{"--instruction-set", kPlain}).value("kernels", Json());
  EXPECT_NE(plain, chosen);
  EXPECT_NE(plain, kSimdKernels);
}

TEST_F(Cli, AnotherInstructionSetIsAnotherRun) {
  const Arguments request = kQuick + Arguments{"a star", "--resume-dir", "states"};
  const auto run_of = [&](const char* set) {
    const Json json = Describe(request + Arguments{"--instruction-set", set});
    return json.value("run", "");
  };
  const std::string run = run_of(kSimd);
  EXPECT_NE(run, "");
  EXPECT_EQ(run_of(kSimd), run);
  EXPECT_NE(run_of(kPlain), run);
}

TEST_F(Cli, RefusesInstructionSetsTheMachineCannotRun) {
  for (const Arguments& command : {Arguments{"generate", "x"}, Arguments{"bench"}, Arguments{"selftest"},
                                   Arguments{"serve"}, Arguments{"edit", "x", "-i", "x.png"}}) {
    ExpectRefused(command + Arguments{"--instruction-set", "avx1024"}, kUsage, kPlain);
    ExpectRefused(command + Arguments{"--instruction-set", "avx1024"}, kUsage, kSimd);
  }
  ExpectRefused({"generate", "x", "--instruction-set", ""}, kUsage, "--instruction-set");
}

TEST_F(Cli, WritesWhatTakesHowLong) {
  const Json drawn = Describe(
      {"a star", "--size", "64x48", "--steps", "3", "--profile", "profile.json", "--no-prompt-cache"});
  std::ifstream file(Path("profile.json"));
  const Json profile = Json::parse(file, nullptr, false);
  const auto seconds_of = [&](const char* component) {
    double sum = 0;
    for (const auto& [operation, microseconds] : profile.at(component).items()) {
      EXPECT_GE(microseconds.get<double>(), 0) << operation;
      sum += 1e-6 * microseconds.get<double>();
    }
    return sum;
  };
  for (const char* component : {"text_encoder", "transformer", "vae"}) {
    ASSERT_TRUE(profile.contains(component)) << profile;
    EXPECT_GT(profile.at(component).size(), 1u) << "nothing but the whole: " << profile;
  }
  for (const char* operation : {"products", "attention", "norm_rope", "norm_modulation_quantization"})
    EXPECT_GT(profile.at("transformer").value(operation, 0.0), 0) << operation;
  EXPECT_GT(profile.at("vae").value("convolution", 0.0), 0);
  // Nothing is counted twice, and little is missing.
  const Json& seconds = drawn.at("seconds");
  EXPECT_LE(seconds_of("transformer"), seconds.at("denoise").get<double>());
  EXPECT_GE(seconds_of("transformer"), 0.5 * seconds.at("denoise").get<double>());
  EXPECT_LE(seconds_of("text_encoder"), seconds.at("encode_prompt").get<double>());
  EXPECT_LE(seconds_of("vae"), seconds.at("decode").get<double>());
}

TEST_F(Cli, AProfileThatCannotBeWrittenIsRefusedBeforeDrawing) {
  ExpectRefused({"generate", "x", "--profile", "no/such/folder.json"}, kCannotWrite, "no/such");
}

TEST_F(Cli, BenchPrintsTheProfile) {
  const Arguments bench = {"bench", "--sizes", "64x48", "--steps", "1"};
  const RunResult table = Run(bench + Arguments{"--profile"});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, AllOf(HasSubstr("microseconds"), HasSubstr("transformer, a step"),
                               HasSubstr("products"), HasSubstr("convolution")));
  EXPECT_THAT(Run(bench).out, Not(HasSubstr("microseconds")));
  const RunResult json = Run(bench + Arguments{"--profile", "--json"});
  const Json parsed = Json::parse(json.out, nullptr, false);
  EXPECT_TRUE(parsed.at("pictures").at(0).at("profile_microseconds").contains("transformer"));
}

}  // namespace
}  // namespace qwen_image
