#include "core/memory.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

namespace qwen_image {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// Empty if the file cannot be read: on other systems and in sandboxes these files are missing, which is no
// error.
std::string ReadSmallFile(const fs::path& path) {
  std::ifstream file(path);
  std::string text(size_t{1} << 16, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

std::optional<int64_t> ParseNumber(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // An unsigned 64-bit "no limit" of cgroup v1 does not fit; "max" and "unlimited" are no numbers.
  if (error == std::errc::result_out_of_range) return kUnlimited;
  if (error != std::errc() || value < 0) return std::nullopt;
  return value;
}

// The number behind `key` at the start of a line: "MemAvailable:   123 kB", "inactive_file 123".
std::optional<int64_t> Field(const std::string& text, std::string_view key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(key) && line.size() > key.size() &&
        (line[key.size()] == ' ' || line[key.size()] == '\t')) {
      return ParseNumber(std::string_view(line).substr(key.size()));
    }
  }
  return std::nullopt;
}

int64_t Minus(int64_t limit, int64_t used) { return std::max<int64_t>(0, limit - std::min(limit, used)); }

enum class Counted { kLeft, kInAll };

int64_t MachineMemory(const fs::path& root, Counted counted) {
  const std::optional<int64_t> kilobytes =
      Field(ReadSmallFile(root / "proc/meminfo"), counted == Counted::kLeft ? "MemAvailable:" : "MemTotal:");
  return kilobytes && *kilobytes < kUnlimited / 1024 ? *kilobytes * 1024 : kUnlimited;
}

struct CgroupFiles {
  const char* limit;
  const char* usage;
  const char* inactive_file;  // keys of memory.stat
  const char* active_file;
};

constexpr CgroupFiles kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
                                   "total_active_file"};
constexpr CgroupFiles kVersion2 = {"memory.max", "memory.current", "inactive_file", "active_file"};

int64_t GroupMemory(const fs::path& folder, const CgroupFiles& files, Counted counted) {
  const std::optional<int64_t> limit = ParseNumber(ReadSmallFile(folder / files.limit));
  if (!limit) return kUnlimited;
  if (counted == Counted::kInAll) return *limit;
  const int64_t usage = ParseNumber(ReadSmallFile(folder / files.usage)).value_or(0);
  // Cached pages of files, such as our mapped weights, count as used but are given back when memory is
  // needed.
  const std::string stat = ReadSmallFile(folder / "memory.stat");
  const int64_t cached = std::min(usage, Field(stat, files.inactive_file).value_or(0)) +
                         Field(stat, files.active_file).value_or(0);
  return Minus(*limit, Minus(usage, cached));
}

// The least of a group and all groups around it: each may have a limit.
int64_t GroupTreeMemory(const fs::path& mount, const fs::path& group, const CgroupFiles& files,
                        Counted counted) {
  int64_t available = GroupMemory(mount, files, counted);
  fs::path folder = mount;
  for (const fs::path& part : group.relative_path()) {
    // "/../x" is how a group outside the own namespace looks; it cannot be read from here.
    if (part == "..") break;
    folder /= part;
    available = std::min(available, GroupMemory(folder, files, counted));
  }
  return available;
}

int64_t CgroupMemory(const fs::path& root, Counted counted) {
  const fs::path mount = root / "sys/fs/cgroup";
  int64_t available = kUnlimited;
  // Lines "0::/path" (version 2) and "7:memory:/path" (version 1).
  std::istringstream lines(ReadSmallFile(root / "proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const fs::path group = line.substr(second + 1);
    if (controllers == ",,") {
      available = std::min(available, GroupTreeMemory(mount, group, kVersion2, counted));
    } else if (controllers.find(",memory,") != controllers.npos) {
      available = std::min(available, GroupTreeMemory(mount / "memory", group, kVersion1, counted));
    }
  }
  return available;
}

// Of what ulimit -v and -d allow. The files say the same as getrlimit, and a test can provide them.
int64_t ProcessMemory(const fs::path& root, Counted counted) {
  const std::string limits = ReadSmallFile(root / "proc/self/limits");
  const std::optional<int64_t> address_space = Field(limits, "Max address space");
  const std::optional<int64_t> data = Field(limits, "Max data size");
  if (!address_space && !data) return kUnlimited;
  // statm: size resident shared text lib data dt, in pages.
  int64_t pages[6] = {};
  std::istringstream statm(ReadSmallFile(root / "proc/self/statm"));
  for (int64_t& value : pages) statm >> value;
  const int64_t page_size = sysconf(_SC_PAGESIZE);
  const auto left = [&](const std::optional<int64_t>& limit, int64_t used_pages) {
    if (!limit) return kUnlimited;
    if (counted == Counted::kInAll) return *limit;
    const int64_t used = std::clamp<int64_t>(used_pages, 0, kUnlimited / page_size) * page_size;
    return Minus(*limit, used);
  };
  return std::min(left(address_space, pages[0]), left(data, pages[5]));
}

}  // namespace

int64_t AvailableMemory(const fs::path& root) {
  constexpr Counted kLeft = Counted::kLeft;
  return std::min({MachineMemory(root, kLeft), CgroupMemory(root, kLeft), ProcessMemory(root, kLeft)});
}

int64_t TotalMemory(const fs::path& root) {
  constexpr Counted kInAll = Counted::kInAll;
  return std::min({MachineMemory(root, kInAll), CgroupMemory(root, kInAll), ProcessMemory(root, kInAll)});
}

MemoryUse MemoryInUse(const fs::path& root) {
  const std::string status = ReadSmallFile(root / "proc/self/status");
  return {.resident = 1024 * Field(status, "VmRSS:").value_or(0),
          .peak = 1024 * Field(status, "VmHWM:").value_or(0)};
}

}  // namespace qwen_image
