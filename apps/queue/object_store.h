// Files in a bucket of JetStream's object store, in its public layout: whatever reads object stores reads
// them, too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "queue/jetstream.h"

namespace qwen_image::queue {

class ObjectStore {
 public:
  // `bucket`: letters, digits, _ and -.
  ObjectStore(JetStream& jetstream, std::string bucket);

  void NeedBucket();

  // An object that is there stays as it is: false. It appears when all of it is stored. Throws Error
  // kCannotWrite if the server has no room.
  bool Put(const std::string& name, std::string_view bytes);
  // None if there is no such object. Throws Error kBadInput if it is larger, or not what its digest says.
  std::optional<std::string> Get(const std::string& name, size_t most_bytes);
  bool Has(const std::string& name);
  void Delete(const std::string& name);

 private:
  struct Found {
    uint64_t sequence = 0;
    Json meta;
    bool deleted = false;
  };
  std::optional<Found> Find(const std::string& name);
  std::string MetaSubject(const std::string& name) const;
  std::string ChunkSubject(const std::string& nuid) const;

  JetStream& jetstream_;
  const std::string bucket_, stream_;
};

}  // namespace qwen_image::queue
