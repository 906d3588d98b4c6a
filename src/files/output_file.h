// OutputFile: bytes go to a temporary name beside the target; Commit() renames it into place. Destroyed
// without Commit() it removes the temporary file, so that a failed or interrupted run leaves nothing
// half-written.
#pragma once

#include <cstdio>
#include <filesystem>
#include <string>

namespace qwen_image {

class OutputFile {
 public:
  enum class Folder {
    kUsers,
    // One that the program keeps: its files are their owner's alone, whatever the folder allows, and who
    // keeps it removes what killed processes left, which would mean to read the folder for every file.
    kOwn,
  };

  // Throws Error kCannotWrite: no such folder, not allowed, the target is a folder, …
  // A symbolic link is followed. A character device or pipe (/dev/null, /dev/stdout) is written directly.
  explicit OutputFile(const std::filesystem::path& target, Folder folder = Folder::kUsers);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void Write(const void* data, size_t size);  // throws Error kCannotWrite (disk full, …)
  // Waits until what was written is on the disk: for files that a later run relies on.
  void Sync();
  void Commit();  // flushes, checks, renames

 private:
  std::filesystem::path target_;
  std::filesystem::path temporary_;  // empty when the target is written directly
  std::FILE* file_ = nullptr;
};

// Throws Error kCannotWrite if OutputFile could not be used for `target`. Called at the start of a long run,
// so that a missing folder is not noticed after an hour.
void CheckWritable(const std::filesystem::path& target);

// Removes what killed processes left of their OutputFiles for `target`. OutputFile does so itself, before it
// writes to a user's folder. Files of processes that still run are left alone, and so is whatever is no
// regular file.
void RemoveLeftovers(const std::filesystem::path& target);

}  // namespace qwen_image
