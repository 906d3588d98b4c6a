// qwen-image devices: what --device can name on this machine.
#include "devices_command.h"

#include <CLI/CLI.hpp>

#include "device/devices.h"
#include "files/json.h"
#include "print.h"
#include "text_style.h"
#include "text_table.h"

namespace qwen_image {
namespace {

std::string DevicesText(const std::vector<DeviceInfo>& devices, Device chosen, const TextStyle& style) {
  TextTable table({{"device", false}, {"", false}, {"memory"}, {"what it is", false}});
  for (const DeviceInfo& info : devices) {
    const char* state = !info.available ? "missing" : info.device == chosen ? "default" : "ready";
    table.AddRow({std::string(NameOf(info.device)), state,
                  info.memory_bytes > 0 ? HumanBytes(info.memory_bytes) : "", info.description});
  }
  std::string text;
  for (const std::string& line : table.Lines()) text += (text.empty() ? style.Bold(line) : line) + "\n";
  const bool mlx = devices.back().available;
  return text + (mlx ? "\nqwen-image selftest shows whether a device computes what the CPU computes; "
                       "docs/mlx.md tells the rest.\n"
                     : "\ngpu and mlx-cpu come with MLX, which this program was built without: docs/mlx.md "
                       "tells how to build it.\n");
}

Json DevicesJson(const std::vector<DeviceInfo>& devices, Device chosen) {
  Json json = {{"default", NameOf(chosen)}, {"devices", Json::array()}};
  for (const DeviceInfo& info : devices) {
    json["devices"].push_back({{"name", NameOf(info.device)},
                               {"available", info.available},
                               {"description", info.description},
                               {"memory_bytes", info.memory_bytes > 0 ? Json(info.memory_bytes) : Json()}});
  }
  return json;
}

}  // namespace

void AddDevicesOptions(CLI::App& command, DevicesOptions& o) {
  command.add_flag("--json", o.json, "Print one JSON object");
  command.footer(
      "Examples:\n"
      "  qwen-image devices\n"
      "  qwen-image generate \"a red circle\" --device cpu -o circle.png\n"
      "  qwen-image selftest --device gpu");
}

int RunDevices(const DevicesOptions& o) {
  const std::vector<DeviceInfo> devices = ListDevices();
  const Device chosen = ResolveDevice(Device::kAuto);
  Print(stdout, "{}",
        o.json ? DevicesJson(devices, chosen).dump(1) + "\n"
               : DevicesText(devices, chosen, TextStyle::ForStandardOutput()));
  return 0;
}

}  // namespace qwen_image
