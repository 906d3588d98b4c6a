// The web page: files that are built into the program.
#pragma once

#include <string>

#include "http_message.h"

namespace qwen_image::server {

// "/", "/style.css", "/app.js"; null: there is none of this name.
const HttpResponse* PageFile(const std::string& path);

}  // namespace qwen_image::server
