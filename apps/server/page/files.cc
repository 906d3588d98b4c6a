#include "server/page/files.h"

#include <map>
#include <string_view>

#include "server/page/embedded_file.h"

namespace qwen_image::page {
namespace {

const char* ContentType(std::string_view path) {
  if (path.ends_with(".html")) return "text/html; charset=utf-8";
  if (path.ends_with(".css")) return "text/css; charset=utf-8";
  if (path.ends_with(".js")) return "text/javascript; charset=utf-8";
  return "image/svg+xml";
}

std::map<std::string, http::Response> MakeReplies() {
  std::map<std::string, http::Response> replies;
  for (size_t i = 0; i < kEmbeddedFileCount; ++i) {
    const EmbeddedFile& file = kEmbeddedFiles[i];
    // A newer program has a newer page: browsers ask each time.
    replies[file.path == "/index.html" ? "/" : std::string(file.path)] = {
        .content_type = ContentType(file.path),
        .body = std::string(file.content),
        .headers = {{"Cache-Control", "no-cache"}}};
  }
  return replies;
}

}  // namespace

const http::Response* FindFile(const std::string& path) {
  static const std::map<std::string, http::Response> replies = MakeReplies();
  const auto found = replies.find(path);
  return found == replies.end() ? nullptr : &found->second;
}

}  // namespace qwen_image::page
