// The texts that are made from the declarations of settings (src/options/fields.cc).
#pragma once

#include <string>

namespace qwen_image::options {

std::string OptionsTable();  // docs/options.md: every setting on every surface
std::string WhyNotTable();   // docs/options.md: where one is missing, and why
std::string ServerTable();   // docs/server.md: the fields of POST /jobs
std::string OpenAiList();    // docs/server.md: what OpenAI's API takes besides its own
std::string PythonList();    // docs/library.md: what Pipeline.generate takes

}  // namespace qwen_image::options
