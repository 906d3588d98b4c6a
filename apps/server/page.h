// The web page: files that are part of the program.
#pragma once

#include <string>

#include "http_message.h"

namespace qwen_image::server {

// The reply to GET `path` ("/", "/style.css", …); null: the page has no such file. Lives as long as the
// program.
const HttpResponse* PageFile(const std::string& path);

}  // namespace qwen_image::server
