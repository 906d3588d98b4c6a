// A file on its way into the cache: blobs/<hash>.incomplete, hashed as it grows. It stays when the download
// is interrupted, so that the next one goes on from there; Commit() gives it its name, blobs/<hash>.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "files/digest.h"

namespace qwen_image::hub {

// Held as long as the object lives, against other processes. The same file that huggingface_hub locks, so
// that the two do not write one blob together.
class BlobLock {
 public:
  // Throws Error kCannotWrite if it is taken.
  BlobLock(const std::filesystem::path& repo_folder, const std::string& hash);
  ~BlobLock();
  BlobLock(const BlobLock&) = delete;
  BlobLock& operator=(const BlobLock&) = delete;

 private:
  int fd_ = -1;
};

class IncompleteBlob {
 public:
  // Takes in what an earlier download left. `pause` is called now and then meanwhile, and may throw. All
  // functions throw Error kCannotWrite.
  IncompleteBlob(const std::filesystem::path& repo_folder, const std::string& hash, uint64_t expected_size,
                 const std::function<void()>& pause);
  ~IncompleteBlob();
  IncompleteBlob(const IncompleteBlob&) = delete;
  IncompleteBlob& operator=(const IncompleteBlob&) = delete;

  uint64_t size() const { return size_; }
  uint64_t expected_size() const { return expected_size_; }
  bool full() const { return size_ == expected_size_; }
  bool has_old_bytes() const { return has_old_bytes_; }  // of an earlier download

  void Append(std::string_view bytes);  // no more than expected_size() in all
  void Restart();                       // from the first byte
  bool HashIsRight();                   // of a full file; Restart() or Commit() follows
  void Commit();
  void Discard();  // removes the file

 private:
  void TakeIn(const std::function<void()>& pause);

  BlobLock lock_;
  std::filesystem::path final_path_, path_;
  std::string hash_;
  uint64_t expected_size_;
  Digest digest_;
  int fd_ = -1;
  uint64_t size_ = 0;
  bool has_old_bytes_ = false;
};

// Bytes that an interrupted download of this blob left behind.
uint64_t IncompleteSize(const std::filesystem::path& repo_folder, const std::string& hash,
                        uint64_t expected_size);

// The same of all blobs of a repository.
uint64_t IncompleteBytes(const std::filesystem::path& repo_folder);

}  // namespace qwen_image::hub
