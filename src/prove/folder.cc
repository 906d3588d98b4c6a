#include "prove/folder.h"

#include <algorithm>
#include <array>
#include <set>

#include "core/fail.h"
#include "files/output_file.h"
#include "files/text.h"
#include "prove/page.h"
#include "qwen_image/image_file.h"

namespace qwen_image::prove {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 5> kFiles = {"prove.html", "prove.json", "text.png", "edit.png",
                                                    "own-size.png"};

bool IsOurs(const std::string& name) { return std::find(kFiles.begin(), kFiles.end(), name) != kFiles.end(); }

void WriteText(const fs::path& path, const std::string& text) {
  OutputFile file(path);
  file.Write(text.data(), text.size());
  file.Commit();
}

}  // namespace

ReportFolder::ReportFolder(const fs::path& path) : path_(path) {
  std::error_code error;
  if (fs::exists(fs::symlink_status(path, error)) && !fs::is_directory(path, error))
    Fail(ErrorKind::kUsage, "{} is a file; a folder is expected for the report", path.string());
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!IsOurs(name))
      Fail(ErrorKind::kUsage,
           "{} holds {}, which is not of a report; name a new or an empty folder with --output",
           path.string(), Quoted(name));
  }
  made_ = fs::create_directories(path, error);
  if (error) Fail(ErrorKind::kCannotWrite, "cannot make the folder {}: {}", path.string(), error.message());
  CheckWritable(page());
}

ReportFolder::~ReportFolder() {
  std::error_code ignored;
  if (made_) fs::remove(path_, ignored);  // which it does not if there is something in it
}

void ReportFolder::Write(const Report& report) const {
  std::set<std::string> written = {page().filename(), document().filename()};
  for (const ReportPicture& picture : report.pictures) {
    WritePng(path_ / picture.file, picture.image, picture.text);
    written.insert(picture.file);
  }
  WriteText(document(), DocumentText(report.document));
  WriteText(page(), PageHtml(report));
  for (const std::string_view name : kFiles) {  // of an earlier report
    std::error_code ignored;
    if (!written.contains(std::string(name))) fs::remove(path_ / name, ignored);
  }
}

std::string DocumentText(const Json& document) {
  return document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace qwen_image::prove
