// The times of a file, whose fields POSIX and macOS call differently.
#pragma once

#include <sys/stat.h>

namespace qwen_image {

inline timespec ModifiedTime(const struct stat& status) {
#ifdef __APPLE__
  return status.st_mtimespec;
#else
  return status.st_mtim;
#endif
}

// Of the last change of contents or attributes, which no program can set.
inline timespec ChangedTime(const struct stat& status) {
#ifdef __APPLE__
  return status.st_ctimespec;
#else
  return status.st_ctim;
#endif
}

}  // namespace qwen_image
