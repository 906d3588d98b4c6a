// fuzz_replay TARGET FOLDER…: runs a target on every file of the folders, for builds without libFuzzer.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

#include "targets.h"

namespace {

// The number of files.
int Replay(const qwen_image::FuzzTarget& target, const std::filesystem::path& folder) {
  int count = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    std::fprintf(stderr, "%s\n", entry.path().c_str());  // the last line before a crash names the culprit
    qwen_image::RunTarget(target, bytes);
    ++count;
  }
  if (error) std::fprintf(stderr, "%s: %s\n", folder.c_str(), error.message().c_str());
  return count;
}

}  // namespace

int main(int argc, char** argv) {
  const qwen_image::FuzzTarget* target = argc > 2 ? qwen_image::FindTarget(argv[1]) : nullptr;
  if (!target) {
    std::fprintf(stderr, "usage: fuzz_replay TARGET FOLDER…\n");
    return 2;
  }
  for (int i = 2; i < argc; ++i) {
    const int count = Replay(*target, argv[i]);
    std::printf("%s: %d inputs of %s\n", argv[1], count, argv[i]);
    if (count == 0) return 1;  // a corpus that is not found must not pass
  }
  return 0;
}
