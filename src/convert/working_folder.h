// WorkingFolder: where a conversion grows until it is whole. Everything is written to TARGET.partial; what is
// finished there survives an interruption, and a run with the same source and options goes on behind it. At
// the end TARGET appears with one rename.
//
//   TARGET.partial/plan.json       what is being converted, and how
//   TARGET.partial/finished/…      notes about finished files
//   TARGET.partial/model/…         what becomes TARGET
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "files/json.h"

namespace qwen_image::convert {

// Holds a lock on a file for as long as it lives.
class FileLock {
 public:
  FileLock() = default;
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  bool Take(const std::filesystem::path& path);  // false: another process has it. Throws Error kCannotWrite.

 private:
  int fd_ = -1;
};

class WorkingFolder {
 public:
  // `plan` is compared with that of an earlier run. Throws Error kCannotWrite: the target is there already
  // (unless it is to be overwritten and is a model), an unfinished conversion of something else is (unless it
  // is to be overwritten), another program is at it, …
  WorkingFolder(const std::filesystem::path& target, const Json& plan, bool overwrite);
  ~WorkingFolder();  // removes the folder if nothing in it is finished
  WorkingFolder(const WorkingFolder&) = delete;
  WorkingFolder& operator=(const WorkingFolder&) = delete;

  std::filesystem::path model() const { return root_ / "model"; }

  // What was noted when `file` (in the model) was finished; nothing if it was not, or has not this size.
  std::optional<Json> Finished(const std::filesystem::path& file, int64_t bytes) const;
  void NoteFinished(const std::filesystem::path& file, const Json& note) const;
  // Removes everything in the model that is not noted as finished: what a killed run left behind.
  void RemoveUnfinished() const;

  void MoveIntoPlace();  // the model becomes the target

 private:
  void CheckTarget(bool overwrite) const;
  void Adopt(const Json& plan, bool overwrite) const;
  std::filesystem::path NoteOf(const std::filesystem::path& file) const;

  std::filesystem::path target_, root_;
  FileLock lock_;
};

// Throws Error kCannotWrite if the disk of `folder` has no room for so many bytes.
void CheckDiskSpace(const std::filesystem::path& folder, int64_t bytes);

void WriteJsonFile(const std::filesystem::path& path, const Json& json);  // throws Error kCannotWrite

}  // namespace qwen_image::convert
