#include "machines/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "machines/group.h"
#include "qwen_image/error.h"

namespace qwen_image::machines {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

std::optional<Launcher> Find(const std::map<std::string, std::string>& variables) {
  return FindLauncher([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(FindLauncher, OneProcessDrawsAlone) {
  EXPECT_FALSE(Find({}));
  EXPECT_FALSE(Find({{"OMPI_COMM_WORLD_SIZE", "1"}}));
  EXPECT_FALSE(Find({{"PMI_SIZE", "1"}}));
  EXPECT_FALSE(Find({{"OMPI_COMM_WORLD_SIZE", "many"}}));
  EXPECT_FALSE(Find({{"PMIX_RANK", "0"}, {"SLURM_NTASKS", "1"}}));
}

TEST(FindLauncher, SlurmAloneStartsNothing) {
  EXPECT_FALSE(Find({{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "3"}, {"SLURM_JOB_ID", "77"}}));
}

TEST(FindLauncher, KnowsOpenMpi) {
  const auto launcher = Find({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  ASSERT_TRUE(launcher);
  EXPECT_EQ(launcher->library, "Open MPI");
  EXPECT_EQ(launcher->size, 4);
  EXPECT_EQ(launcher->size_on_host, 2);
  EXPECT_FALSE(launcher->bound);
  EXPECT_TRUE(Find({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_MCA_orte_bound_at_launch", "1"}})->bound);
  EXPECT_EQ(Find({{"PMIX_RANK", "1"}, {"SLURM_NTASKS", "8"}})->library, "Open MPI");
}

TEST(FindLauncher, KnowsMpich) {
  const auto launcher = Find({{"PMI_SIZE", "3"}, {"MPI_LOCALNRANKS", "3"}});
  ASSERT_TRUE(launcher);
  EXPECT_EQ(launcher->library, "MPICH");
  EXPECT_EQ(launcher->size_on_host, 3);
}

std::string ErrorOf(const std::vector<fs::path>& folders) {
  try {
    OpenWireOf({.library = "Open MPI", .size = 4}, folders);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return error.message();
  }
  return "";
}

TEST(OpenWire, SaysHowToGetThePlugin) {
  EXPECT_THAT(ErrorOf({"/nowhere"}),
              AllOf(HasSubstr("Open MPI started 4 processes, which would each draw alone"),
                    HasSubstr("libqwen_image_openmpi.so is missing"), HasSubstr("./run build --mpi")));
}

TEST(OpenWire, RefusesWhatIsNoPlugin) {
  const fs::path folder = fs::path(testing::TempDir()) / "no_plugin";
  fs::create_directories(folder);
  std::ofstream(folder / "libqwen_image_openmpi.so") << "text";
  EXPECT_THAT(ErrorOf({"/nowhere", folder}), HasSubstr("cannot be loaded"));
}

TEST(Cut, SharesAreEvenAndComplete) {
  for (const int64_t total : {0, 1, 3, 24, 1047}) {
    for (const int parts : {1, 2, 3, 4, 7}) {
      const Cut cut{total, parts};
      int64_t sum = 0, least = total, most = 0;
      for (int part = 0; part < parts; ++part) {
        EXPECT_EQ(cut.Begin(part), sum);
        sum += cut.Count(part);
        least = std::min(least, cut.Count(part));
        most = std::max(most, cut.Count(part));
      }
      EXPECT_EQ(sum, total);
      EXPECT_LE(most - least, 1);
    }
  }
}

}  // namespace
}  // namespace qwen_image::machines
