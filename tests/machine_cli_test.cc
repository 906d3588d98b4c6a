// Which kernels compute.
#include "cli_fixture.h"

namespace qwen_image {
namespace {

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

}  // namespace
}  // namespace qwen_image
