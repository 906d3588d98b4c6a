#include "convert/working_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "core/fail.h"
#include "files/output_file.h"

namespace qwen_image::convert {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPlan = "plan.json";
constexpr const char* kFinished = "finished";

[[noreturn]] void FailToWrite(const fs::path& path, const std::string& reason) {
  Fail(ErrorKind::kCannotWrite, "cannot write {}: {}", path.string(), reason);
}

void MakeFolder(const fs::path& path) {
  std::error_code error;
  fs::create_directory(path, error);
  if (error) FailToWrite(path, error.message());
}

void Rename(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) FailToWrite(to, error.message());
}

// Whoever types a wrong name after --overwrite must not lose a folder of something else.
bool LooksLikeModel(const fs::path& folder) {
  std::error_code error;
  if (fs::is_empty(folder, error)) return true;
  for (const char* name : {"model_index.json", "conversion.json"}) {
    if (fs::exists(folder / name, error)) return true;
  }
  return false;
}

// Compared, not shown: null if there is none that can be read.
Json ReadPlan(const fs::path& path) {
  try {
    return ReadJsonFile(path);
  } catch (const Error&) {
    return nullptr;
  }
}

}  // namespace

FileLock::~FileLock() {
  if (fd_ >= 0) close(fd_);
}

bool FileLock::Take(const fs::path& path) {
  fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0) FailToWrite(path, std::strerror(errno));
  return flock(fd_, LOCK_EX | LOCK_NB) == 0;
}

WorkingFolder::WorkingFolder(const fs::path& target, const Json& plan, bool overwrite)
    : target_(target.has_filename() ? target : target.parent_path()), root_(target_.string() + ".partial") {
  CheckTarget(overwrite);
  std::error_code error;
  const bool there = fs::exists(root_, error);
  if (!there) MakeFolder(root_);
  if (!lock_.Take(root_ / "lock"))
    FailToWrite(target_, fmt::format("another conversion is under way in {}", root_.string()));
  if (there) Adopt(plan, overwrite);
  MakeFolder(model());
  MakeFolder(root_ / kFinished);
  WriteJsonFile(root_ / kPlan, plan);
}

// What an earlier run left stays only if it was on the way to the same.
void WorkingFolder::Adopt(const Json& plan, bool overwrite) const {
  if (ReadPlan(root_ / kPlan) == plan) return;
  std::error_code error;
  const bool empty = !fs::exists(root_ / kPlan, error) && !fs::exists(model(), error);
  if (!empty && !overwrite) {
    FailToWrite(target_,
                fmt::format("{} holds an unfinished conversion of another source or with other options. Give "
                            "those again to continue it, --overwrite to start again, or remove it",
                            root_.string()));
  }
  fs::remove_all(model(), error);
  fs::remove_all(root_ / kFinished, error);
}

WorkingFolder::~WorkingFolder() {
  std::error_code error;
  const bool nothing = fs::is_empty(root_ / kFinished, error);
  if (nothing && !error) fs::remove_all(root_, error);
}

void WorkingFolder::CheckTarget(bool overwrite) const {
  std::error_code error;
  if (target_.empty()) FailToWrite("the output", "its name is empty");
  const fs::file_status status = fs::symlink_status(target_, error);
  if (!fs::exists(status)) return;
  if (!fs::is_directory(status)) FailToWrite(target_, "it is there, and it is not a folder");
  if (!overwrite)
    FailToWrite(target_, "it is there already; choose another folder, or replace it with --overwrite");
  if (!LooksLikeModel(target_)) {
    FailToWrite(target_, "it is not empty and not a model, so --overwrite does not replace it");
  }
}

fs::path WorkingFolder::NoteOf(const fs::path& file) const {
  std::string name = file.string();
  std::replace(name.begin(), name.end(), '/', '.');
  return root_ / kFinished / (name + ".json");
}

std::optional<Json> WorkingFolder::Finished(const fs::path& file, int64_t bytes) const {
  std::error_code error;
  const auto size = fs::file_size(model() / file, error);
  if (error || size != static_cast<uintmax_t>(bytes)) return std::nullopt;
  Json note = ReadPlan(NoteOf(file));
  if (note.is_null()) return std::nullopt;
  return note;
}

void WorkingFolder::NoteFinished(const fs::path& file, const Json& note) const {
  WriteJsonFile(NoteOf(file), note);
}

void WorkingFolder::RemoveUnfinished() const {
  std::vector<fs::path> unfinished;
  std::error_code error;
  for (fs::recursive_directory_iterator it(model(), error); !error && it != fs::end(it);
       it.increment(error)) {
    if (it->is_directory(error)) continue;
    if (!fs::exists(NoteOf(it->path().lexically_relative(model())), error)) unfinished.push_back(it->path());
  }
  for (const fs::path& path : unfinished) fs::remove(path, error);
}

void WorkingFolder::MoveIntoPlace() {
  const fs::path replaced = root_ / "replaced";
  std::error_code error;
  const bool replaces = fs::exists(target_, error);
  if (replaces) Rename(target_, replaced);
  try {
    Rename(model(), target_);
  } catch (const Error&) {
    if (replaces) fs::rename(replaced, target_, error);
    throw;
  }
  fs::remove_all(root_, error);  // it does no harm if it stays
}

void CheckDiskSpace(const fs::path& folder, int64_t bytes) {
  struct statvfs status;
  if (statvfs(folder.c_str(), &status) != 0) return;  // the first write will say more
  const double available = static_cast<double>(status.f_bavail) * static_cast<double>(status.f_frsize);
  if (available >= static_cast<double>(bytes)) return;
  Fail(ErrorKind::kCannotWrite, "cannot write {}: {:.4g} GB are needed, but the disk has only {:.4g} GB left",
       folder.string(), static_cast<double>(bytes) / 1e9, available / 1e9);
}

void WriteJsonFile(const fs::path& path, const Json& json) {
  const std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  OutputFile file(path);
  file.Write(text.data(), text.size());
  file.Sync();
  file.Commit();
}

}  // namespace qwen_image::convert
