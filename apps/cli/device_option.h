// --device
#pragma once

#include <string>

#include "qwen_image/qwen_image.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace qwen_image {

CLI::Option* AddDeviceOption(CLI::App& command, std::string& device);
Device DeviceOf(const std::string& device);  // empty: kAuto

// What --precision means where it was not said: exact on mlx-cpu, which is there for comparisons, else fast.
Precision PrecisionOf(const std::string& precision, const std::string& device);

}  // namespace qwen_image
