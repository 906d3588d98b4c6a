// Devices in a build without MLX, which is the default: there is the CPU, and a user is told how to get more.
#include "cli_fixture.h"

namespace qwen_image {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kHow = "./run build --mlx";

TEST_F(Cli, DevicesSayHowToGetMlx) {
  const RunResult text = Run({"devices"});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out, AllOf(HasSubstr("cpu"), HasSubstr("default"), HasSubstr("missing"), HasSubstr(kHow),
                              HasSubstr("docs/mlx.md")));
  const Json json = Json::parse(Run({"devices", "--json"}).out);
  EXPECT_EQ(json.at("default"), "cpu");
  for (const Json& device : json.at("devices")) EXPECT_EQ(device.at("available"), device.at("name") == "cpu");
}

TEST_F(Cli, OtherDevicesAreRefusedWithoutMlx) {
  for (const char* device : {"gpu", "mlx-cpu"}) {
    ExpectRefused({"generate", "x", "--device", device, "-o", "x.png"}, kUsage, kHow);
    ExpectRefused({"serve", "--device", device}, kUsage, kHow);
    ExpectRefused({"bench", "--device", device}, kUsage, kHow);
    ExpectRefused({"selftest", "--device", device}, kUsage, kHow);
  }
  ExpectRefused({"generate", "x", "--device", "tpu", "-o", "x.png"}, kUsage,
                "--device: tpu not in {auto,cpu,gpu,mlx-cpu}");
}

TEST_F(Cli, TheSelftestHasNothingToCompareWithoutMlx) {
  ExpectRefused({"selftest"}, kUsage, "nothing to compare the CPU with");
  ExpectRefused({"selftest", "--device", "cpu"}, kUsage, "what other devices are compared with");
}

TEST_F(Cli, BenchTimesTheCpuToo) {
  const RunResult result = Run({"bench", "--sizes", "64x48", "--steps", "2", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json.at("device"), "cpu");
  EXPECT_TRUE(json.at("weights").is_null());
  EXPECT_GT(json.at("pictures").at(0).at("seconds").at("per_step"), 0);
  ExpectRefused({"bench", "--sizes", "64"}, kUsage, "64");
  ExpectRefused({"bench", "--sizes", "63x64"}, kUsage, "multiple");
  ExpectRefused({"bench", "--steps", "0"}, kUsage, "--steps");
}

TEST_F(Cli, TheDeviceIsInTheRecord) { EXPECT_EQ(Describe(Arguments{"x"} + kQuick).at("device"), "cpu"); }

}  // namespace
}  // namespace qwen_image
