#include "profile_report.h"

#include <algorithm>

#include "core/fail.h"
#include "files/output_file.h"
#include "text_table.h"

namespace qwen_image::cli {

void CheckCanBeProfiled(const Pipeline& pipeline) {
  if (pipeline.device() != Device::kCpu)
    Fail(ErrorKind::kUsage,
         "--profile counts the operations of this program's own kernels; give --device cpu");
}

Json ProfileJson(const Profile& profile) {
  Json json = Json::object();
  for (const auto& [component, operations] : profile.components()) json[component] = operations;
  return json;
}

void WriteProfile(const std::filesystem::path& path, const Profile& profile) {
  const std::string text = ProfileJson(profile).dump(1) + "\n";
  OutputFile file(path);
  file.Write(text.data(), text.size());
  file.Commit();
}

std::string ProfileText(const Profile& profile, int64_t steps) {
  TextTable table({{"component", false}, {"operation", false}, {"microseconds"}, {"share"}});
  for (const auto& [component, operations] : profile.components()) {
    std::vector<std::pair<double, std::string>> by_time;
    double all = 0;
    for (const auto& [operation, microseconds] : operations) {
      by_time.emplace_back(microseconds, operation);
      all += microseconds;
    }
    std::sort(by_time.rbegin(), by_time.rend());
    const bool by_step = component == "transformer";
    const double parts = by_step ? static_cast<double>(std::max<int64_t>(1, steps)) : 1;
    std::string title = by_step ? component + ", a step" : component;
    for (const auto& [microseconds, operation] : by_time) {
      table.AddRow({std::exchange(title, ""), operation, fmt::format("{:.0f}", microseconds / parts),
                    fmt::format("{:.1f} %", 100 * microseconds / all)});
    }
  }
  std::string text;
  for (const std::string& line : table.Lines()) text += line + "\n";
  return text;
}

}  // namespace qwen_image::cli
