// Jobs on disk: ID.json for each, ID-0.png, … for its pictures. A folder belongs to one process at a time.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/jobs/state.h"

namespace qwen_image::jobs {

std::string NewJobId();                     // 128 random bits, in hexadecimal
bool IsJobId(std::string_view text);        // looks like one
std::string StoredJobText(const Job& job);  // JSON
// Throws Error kBadInput. `where` names the file in messages.
Job ParseStoredJob(std::string_view text, const std::string& where);

class Store {
 public:
  // Makes the folder, for its owner only. Throws Error kCannotWrite: not possible, or another process has it.
  explicit Store(std::filesystem::path folder);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  struct Contents {
    std::vector<Job> jobs;              // oldest first
    std::vector<std::string> problems;  // files that look like jobs and cannot be read; they stay
  };
  // Removes what a killed process left half-written or without its job.
  Contents Load() const;

  void Write(const Job& job) const;  // throws Error kCannotWrite
  void WritePicture(const std::string& id, int64_t index, const Image& image,
                    const std::map<std::string, std::string>& text) const;  // throws Error kCannotWrite
  void WritePng(const std::string& id, int64_t index, std::string_view png) const;  // a picture's whole file
  std::optional<std::string> ReadPicture(const std::string& id, int64_t index) const;
  void Remove(const std::string& id, int64_t pictures) const;

 private:
  void WriteFile(const std::filesystem::path& path, std::string_view bytes, bool sync) const;
  std::filesystem::path RecordPath(const std::string& id) const;
  std::filesystem::path PicturePath(const std::string& id, int64_t index) const;

  std::filesystem::path folder_;
  int lock_ = -1;
};

}  // namespace qwen_image::jobs
