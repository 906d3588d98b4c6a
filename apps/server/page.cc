#include "page.h"

namespace qwen_image::server {

const HttpResponse* PageFile(const std::string& path) {
  static const HttpResponse page{.content_type = "text/html; charset=utf-8",
                                 .body = "<!doctype html><title>qwen-image</title><p>POST /jobs"};
  return path == "/" ? &page : nullptr;
}

}  // namespace qwen_image::server
