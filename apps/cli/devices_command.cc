// qwen-image devices: what --device can name on this machine.

#include <memory>

#include "command.h"
#include "device/available.h"
#include "files/json.h"
#include "print.h"
#include "text_style.h"
#include "text_table.h"

namespace qwen_image::cli {
namespace {

struct DevicesOptions {
  bool json = false;
};

std::string DevicesText(const std::vector<device::DeviceInfo>& devices, Device chosen,
                        const TextStyle& style) {
  TextTable table({{"device", false}, {"", false}, {"memory"}, {"what it is", false}});
  for (const device::DeviceInfo& info : devices) {
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

Json DevicesJson(const std::vector<device::DeviceInfo>& devices, Device chosen) {
  Json json = {{"default", NameOf(chosen)}, {"devices", Json::array()}};
  for (const device::DeviceInfo& info : devices) {
    json["devices"].push_back({{"name", NameOf(info.device)},
                               {"available", info.available},
                               {"description", info.description},
                               {"memory_bytes", info.memory_bytes > 0 ? Json(info.memory_bytes) : Json()}});
  }
  return json;
}

int Run(const DevicesOptions& o) {
  const std::vector<device::DeviceInfo> devices = device::ListDevices();
  const Device chosen = device::ResolveDevice(Device::kAuto);
  Print(stdout, "{}",
        o.json ? DevicesJson(devices, chosen).dump(1) + "\n"
               : DevicesText(devices, chosen, TextStyle::ForStandardOutput()));
  return 0;
}

}  // namespace

Command DevicesCommand() {
  const auto o = std::make_shared<DevicesOptions>();
  return {.name = "devices",
          .summary = "What --device can name on this machine",
          .options = {{.names = "--json", .target = &o->json, .help = "Print one JSON object"}},
          .footer =
              "Examples:\n"
              "  qwen-image devices\n"
              "  qwen-image generate \"a red circle\" --device cpu -o circle.png\n"
              "  qwen-image selftest --device gpu",
          .run = [o](const Session&) { return Run(*o); }};
}

}  // namespace qwen_image::cli
