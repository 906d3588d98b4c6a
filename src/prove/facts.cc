#include "prove/facts.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <fstream>
#include <thread>

#include "core/memory.h"
#include "core/threads.h"
#include "draw/opened_model.h"
#include "files/digest.h"
#include "files/text.h"
#include "keep/identity.h"
#include "kernels/interface.h"

namespace qwen_image::prove {
namespace {

// The text behind `key` in a file of lines "key<separator>value", without quotes; empty if there is none.
std::string ValueIn(const char* file, std::string_view key, char separator) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    const size_t at = line.find(separator);
    if (at == line.npos || !line.starts_with(key)) continue;
    std::string value = line.substr(at + 1);
    std::erase(value, '"');
    value.erase(0, value.find_first_not_of(" \t"));
    return Printable(value);
  }
  return "";
}

int64_t TotalMemory() {
  std::ifstream stream("/proc/meminfo");
  std::string key;
  int64_t kilobytes = 0;
  stream >> key >> kilobytes;
  return key == "MemTotal:" ? 1024 * kilobytes : 0;
}

// Without the machine's own name, which is in it, too.
std::string Kernel() {
  utsname names{};
  if (uname(&names) != 0) return "";
  return Printable(fmt::format("{} {} {}", names.sysname, names.release, names.machine));
}

}  // namespace

Json MachineJson(int threads) {
  return {{"processor", ValueIn("/proc/cpuinfo", "model name", ':')},
          {"processors", std::thread::hardware_concurrency()},
          {"threads", threads > 0 ? threads : DefaultThreadCount()},
          {"memory", TotalMemory()},
          {"available_memory", AvailableMemory()},
          {"instruction_set", InstructionSet()},
          {"version", Version()},
          {"engine", keep::EngineIdentity()},
          {"system", ValueIn("/etc/os-release", "PRETTY_NAME", '=')},
          {"kernel", Kernel()}};
}

Json FilesJson(const Pipeline& pipeline) {
  const Model& model = *draw::ModelOf(pipeline).model;
  Json parts = Json::array();
  for (const Component component : {Component::kTransformer, Component::kTextEncoder, Component::kVae}) {
    const WeightStore* store = model.StoreOf(component);
    if (!store) continue;
    Json files = Json::array();
    for (const auto& file : store->files()) {
      files.push_back({{"name", file->file().path().filename().string()},
                       {"bytes", file->file().bytes().size()},
                       {"fingerprint", keep::FingerprintOf(*file)}});
    }
    store->ReleasePages();
    parts.push_back(
        {{"name", NameOf(component)},
         {"config_sha256", store->config().is_null() ? Json()
                                                     : Json(Sha256(store->config().dump(
                                                           -1, ' ', true, Json::error_handler_t::replace)))},
         {"files", files}});
  }
  return parts;
}

bool ForgetPeakMemory() {
  std::ofstream file("/proc/self/clear_refs");
  return static_cast<bool>(file << 5 << std::flush);
}

}  // namespace qwen_image::prove
