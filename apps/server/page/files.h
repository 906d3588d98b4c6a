// The web page: files that are part of the program.
#pragma once

#include <string>

#include "server/http/message.h"

namespace qwen_image::page {

// The reply to GET `path` ("/", "/style.css", …); null: the page has no such file. Lives as long as the
// program.
const http::Response* FindFile(const std::string& path);

}  // namespace qwen_image::page
