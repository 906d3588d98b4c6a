#include "core/memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <limits>

#include "files/testing.h"

namespace qwen_image {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// A machine with 1024 MiB available.
void WriteMachine(const TempFolder& root) {
  root.Write("proc/meminfo", "MemTotal:       4194304 kB\nMemFree:  1 kB\nMemAvailable:    1048576 kB\n");
}

TEST(AvailableMemory, IsPlausibleHere) {
  const int64_t available = AvailableMemory();
  EXPECT_GT(available, kMiB);
  EXPECT_LT(available, int64_t{1} << 50);
}

TEST(AvailableMemory, IsWhatTheMachineHas) {
  const TempFolder root;
  EXPECT_EQ(AvailableMemory(root.path()), std::numeric_limits<int64_t>::max());  // nothing is known
  WriteMachine(root);
  EXPECT_EQ(AvailableMemory(root.path()), 1024 * kMiB);
}

TEST(AvailableMemory, IsLimitedByControlGroups2) {
  const TempFolder root;
  WriteMachine(root);
  root.Write("proc/self/cgroup", "0::/app/job\n");
  root.Write("sys/fs/cgroup/app/job/memory.max", "max\n");
  root.Write("sys/fs/cgroup/app/memory.max",
             std::to_string(500 * kMiB) + "\n");  // the limit of the group around it
  root.Write("sys/fs/cgroup/app/memory.current", std::to_string(300 * kMiB) + "\n");
  EXPECT_EQ(AvailableMemory(root.path()), 200 * kMiB);
  // Cached pages of files are given back when needed.
  root.Write("sys/fs/cgroup/app/memory.stat", "anon 5\ninactive_file 104857600\nactive_file 52428800\n");
  EXPECT_EQ(AvailableMemory(root.path()), 350 * kMiB);
  root.Write("sys/fs/cgroup/app/job/memory.max", std::to_string(10 * kMiB) + "\n");
  EXPECT_EQ(AvailableMemory(root.path()), 10 * kMiB);
  root.Write("sys/fs/cgroup/app/job/memory.current", std::to_string(11 * kMiB) + "\n");
  EXPECT_EQ(AvailableMemory(root.path()), 0);
}

TEST(AvailableMemory, IsLimitedByTheGroupThatAContainerSeesAsItsRoot) {
  const TempFolder root;
  WriteMachine(root);
  root.Write("proc/self/cgroup", "0::/\n");
  root.Write("sys/fs/cgroup/memory.max", std::to_string(64 * kMiB) + "\n");
  EXPECT_EQ(AvailableMemory(root.path()), 64 * kMiB);
  root.Write("proc/self/cgroup", "0::/../other\n");
  root.Write("sys/fs/other/memory.max", "1\n");  // not a control group
  EXPECT_EQ(AvailableMemory(root.path()), 64 * kMiB);
}

TEST(AvailableMemory, IsLimitedByControlGroups1) {
  const TempFolder root;
  WriteMachine(root);
  root.Write("proc/self/cgroup", "8:cpu,cpuacct:/x\n7:memory:/job\n");
  root.Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  root.Write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", std::to_string(100 * kMiB));
  root.Write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", std::to_string(90 * kMiB));
  root.Write("sys/fs/cgroup/memory/job/memory.stat", "total_inactive_file 52428800\ntotal_active_file 0\n");
  EXPECT_EQ(AvailableMemory(root.path()), 60 * kMiB);
}

TEST(AvailableMemory, IsLimitedByUlimit) {
  const TempFolder root;
  WriteMachine(root);
  const int64_t page = sysconf(_SC_PAGESIZE);
  root.Write("proc/self/statm", "100 50 20 10 0 30 0\n");
  const std::string header =
      "Limit                     Soft Limit           Hard Limit           Units     \n";
  root.Write("proc/self/limits",
             header + "Max data size             unlimited            unlimited            bytes\n" +
                 "Max address space         536870912            unlimited            bytes\n");
  EXPECT_EQ(AvailableMemory(root.path()), 512 * kMiB - 100 * page);
  root.Write("proc/self/limits",
             header + "Max data size             268435456            unlimited            bytes\n" +
                 "Max address space         unlimited            unlimited            bytes\n");
  EXPECT_EQ(AvailableMemory(root.path()), 256 * kMiB - 30 * page);
}

TEST(TotalMemory, DoesNotAskWhoUsesIt) {
  const TempFolder root;
  EXPECT_EQ(TotalMemory(root.path()), std::numeric_limits<int64_t>::max());
  WriteMachine(root);
  EXPECT_EQ(TotalMemory(root.path()), 4096 * kMiB);
  root.Write("proc/self/cgroup", "0::/job\n");
  root.Write("sys/fs/cgroup/job/memory.max", std::to_string(500 * kMiB) + "\n");
  root.Write("sys/fs/cgroup/job/memory.current", std::to_string(300 * kMiB) + "\n");
  EXPECT_EQ(TotalMemory(root.path()), 500 * kMiB);
  root.Write("proc/self/statm", "100000 1 1 1 0 1 0\n");
  root.Write("proc/self/limits",
             "Max address space         419430400            unlimited            bytes\n");
  EXPECT_EQ(TotalMemory(root.path()), 400 * kMiB);
}

TEST(AvailableMemory, NonsenseInTheFilesIsIgnored) {
  const TempFolder root;
  root.Write("proc/meminfo", "MemAvailable: -5 kB\n");
  root.Write("proc/self/cgroup", "nonsense\n0\n::::\n0::/a\n");
  root.Write("sys/fs/cgroup/a/memory.max", "99999999999999999999999999\n");
  root.Write("sys/fs/cgroup/a/memory.current", "x");
  root.Write("sys/fs/cgroup/a/memory.stat",
             "inactive_file 9223372036854775807\nactive_file 9223372036854775807\n");
  root.Write("proc/self/statm", "-1 x\n");
  root.Write("proc/self/limits", "Max data size");
  EXPECT_EQ(AvailableMemory(root.path()), std::numeric_limits<int64_t>::max());
}

}  // namespace
}  // namespace qwen_image
