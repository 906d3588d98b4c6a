// The folder of a report. Nothing of another's is replaced there, and nothing is left of a run that ends
// early.
#pragma once

#include <filesystem>

#include "prove/report.h"

namespace qwen_image::prove {

class ReportFolder {
 public:
  // Makes the folder if it is not there. Throws Error kUsage if it holds anything but an earlier report, and
  // kCannotWrite.
  explicit ReportFolder(const std::filesystem::path& path);
  ~ReportFolder();  // removes a folder that it made and that is still empty
  ReportFolder(const ReportFolder&) = delete;
  ReportFolder& operator=(const ReportFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path page() const { return path_ / "prove.html"; }
  std::filesystem::path document() const { return path_ / "prove.json"; }

  // Each file appears when it is whole, the page last. Throws Error kCannotWrite.
  void Write(const Report& report) const;

 private:
  std::filesystem::path path_;
  bool made_ = false;
};

// The document as text.
std::string DocumentText(const Json& document);

}  // namespace qwen_image::prove
