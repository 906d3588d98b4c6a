// Where workers put pictures: a folder that machines share, or the object store of the NATS server. A picture
// that is there stays: the same job draws the same pixels.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "queue/object_store.h"

namespace qwen_image::queue {

class Results {
 public:
  virtual ~Results() = default;
  virtual void Keep(const std::string& name, const std::string& png) = 0;  // it is safe on return
  // None if there is no whole picture of this name.
  virtual std::optional<std::string> Read(const std::string& name) = 0;
  virtual const char* kind() const = 0;   // kInFolder, kInObjects
  virtual std::string where() const = 0;  // for messages
};

// An empty path: in the object store. Throws Error kCannotWrite for a folder that cannot be written.
std::unique_ptr<Results> OpenResults(const std::filesystem::path& folder, ObjectStore& objects);

}  // namespace qwen_image::queue
