// qwen-image devices
#pragma once

namespace CLI {
class App;
}

namespace qwen_image {

struct DevicesOptions {
  bool json = false;
};

void AddDevicesOptions(CLI::App& command, DevicesOptions& options);
int RunDevices(const DevicesOptions& options);  // returns the exit code

}  // namespace qwen_image
