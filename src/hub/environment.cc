#include "hub/environment.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <string_view>

#include "core/fail.h"
#include "files/text.h"

namespace qwen_image::hub {
namespace {

namespace fs = std::filesystem;

fs::path Home(const EnvironmentReader& environment) {
  const auto home = environment("HOME");
  if (!home) Fail(ErrorKind::kUsage, "the variable HOME is not set; set HF_HOME to the folder for models");
  return *home;
}

// "~/models" reaches a program unexpanded if it stood in quotes, or in a file that no shell read.
fs::path Expanded(const std::string& path, const EnvironmentReader& environment) {
  return path == "~" || path.starts_with("~/") ? Home(environment) / path.substr(path.size() > 1 ? 2 : 1)
                                               : fs::path(path);
}

fs::path HuggingFaceHome(const EnvironmentReader& environment) {
  if (const auto home = environment("HF_HOME")) return Expanded(*home, environment);
  if (const auto cache = environment("XDG_CACHE_HOME")) return Expanded(*cache, environment) / "huggingface";
  return Home(environment) / ".cache/huggingface";
}

std::string Trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == text.npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(kSpace) + 1 - first));
}

std::string FirstBytes(const fs::path& path, size_t limit) {
  std::ifstream file(path, std::ios::binary);
  std::string text(limit, '\0');
  file.read(text.data(), static_cast<std::streamsize>(limit));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return text;
}

std::string FindToken(const EnvironmentReader& environment) {
  constexpr size_t kMaxToken = 4096;
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    if (const auto value = environment(name)) return Trimmed(*value);
  }
  const auto path = environment("HF_TOKEN_PATH");
  return Trimmed(
      FirstBytes(path ? Expanded(*path, environment) : HuggingFaceHome(environment) / "token", kMaxToken));
}

}  // namespace

std::optional<std::string> ProcessEnvironment(const char* name) {
  const char* value = std::getenv(name);
  if (!value || !*value) return std::nullopt;
  return value;
}

fs::path CacheFolder(const EnvironmentReader& environment) {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const auto folder = environment(name)) return Expanded(*folder, environment);
  }
  return HuggingFaceHome(environment) / "hub";
}

Server ServerFrom(const EnvironmentReader& environment) {
  constexpr std::array<std::string_view, 4> kTrue = {"1", "ON", "YES", "TRUE"};
  std::string offline = environment("HF_HUB_OFFLINE").value_or("");
  std::transform(offline.begin(), offline.end(), offline.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
  if (std::find(kTrue.begin(), kTrue.end(), offline) != kTrue.end())
    Fail(ErrorKind::kUsage, "HF_HUB_OFFLINE is set; unset it to download");

  Server server;
  if (const auto endpoint = environment("HF_ENDPOINT")) server.endpoint = *endpoint;
  while (server.endpoint.ends_with('/')) server.endpoint.pop_back();
  if (!server.endpoint.starts_with("https://") && !server.endpoint.starts_with("http://")) {
    Fail(ErrorKind::kUsage, "HF_ENDPOINT is {}; an address like https://huggingface.co is expected",
         Quoted(server.endpoint));
  }
  server.token = FindToken(environment);
  // A line break would let a token smuggle in headers. The token itself has no place in a message.
  if (std::any_of(server.token.begin(), server.token.end(), [](char c) { return c <= 32 || c >= 127; }))
    Fail(ErrorKind::kUsage, "the Hugging Face token (HF_TOKEN) contains characters that no token has");
  return server;
}

}  // namespace qwen_image::hub
