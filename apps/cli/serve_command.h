// qwen-image serve: an HTTP API and a web page.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "qwen_image/model_files.h"

namespace CLI {
class App;
}

namespace qwen_image {

class CancelFlag;

struct ServeOptions {
  ModelFiles files;
  std::string host = "127.0.0.1";
  uint16_t port = 8080;
  std::string api_key;
  std::vector<std::string> allowed_hosts;
  std::filesystem::path jobs_dir;  // empty: in the user's data folder
  int64_t queue = 16, keep = 200;
  int threads = 0;
  std::string precision, device;  // empty: not said
  bool no_prompt_cache = false;
  bool ignore_memory = false;
  bool quiet = false;
};

void AddServeOptions(CLI::App& command, ServeOptions& options);
// Until a signal ends it. Throws Error.
int RunServe(const ServeOptions& options, const CancelFlag& cancel);

}  // namespace qwen_image
