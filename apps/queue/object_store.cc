#include "queue/object_store.h"

#include <algorithm>

#include "core/fail.h"
#include "files/base64.h"
#include "files/digest.h"
#include "files/numbers.h"
#include "files/random_hex.h"
#include "files/text.h"
#include "queue/json_fields.h"

namespace qwen_image::queue {
namespace {

constexpr size_t kChunkBytes = 128 << 10;  // as all clients cut
constexpr size_t kNuidDigits = 22;

// RFC 4648's other alphabet, with padding.
std::string UrlBase64(std::string_view bytes) {
  std::string text = EncodeBase64(bytes);
  std::replace(text.begin(), text.end(), '+', '-');
  std::replace(text.begin(), text.end(), '/', '_');
  return text;
}

std::string DigestText(std::string_view bytes) {
  const std::string hex = Sha256(bytes);
  std::string raw;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
    raw += static_cast<char>(16 * digit(hex[i]) + digit(hex[i + 1]));
  }
  return "SHA-256=" + UrlBase64(raw);
}

// Padding is not written by all clients.
std::string WithoutPadding(std::string text) {
  while (text.ends_with('=') && text != "SHA-256=") text.pop_back();
  return text;
}

bool IsToken(std::string_view text) {
  return !text.empty() && text.size() <= 64 &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") ==
             text.npos;
}

}  // namespace

ObjectStore::ObjectStore(JetStream& jetstream, std::string bucket)
    : jetstream_(jetstream), bucket_(std::move(bucket)), stream_("OBJ_" + bucket_) {}

std::string ObjectStore::MetaSubject(const std::string& name) const {
  return "$O." + bucket_ + ".M." + UrlBase64(name);
}

std::string ObjectStore::ChunkSubject(const std::string& nuid) const {
  return "$O." + bucket_ + ".C." + nuid;
}

void ObjectStore::NeedBucket() {
  jetstream_.NeedStream({{"name", stream_},
                         {"description", "pictures of qwen-image"},
                         {"subjects", {"$O." + bucket_ + ".C.>", "$O." + bucket_ + ".M.>"}},
                         {"retention", "limits"},
                         {"max_consumers", -1},
                         {"max_msgs", -1},
                         {"max_bytes", -1},
                         {"max_age", 0},
                         {"max_msg_size", -1},
                         {"storage", "file"},
                         {"discard", "new"},
                         {"num_replicas", 1},
                         {"allow_rollup_hdrs", true},
                         {"allow_direct", true}});
}

std::optional<ObjectStore::Found> ObjectStore::Find(const std::string& name) {
  const std::optional<StoredMessage> message = jetstream_.Last(stream_, MetaSubject(name));
  if (!message) return std::nullopt;
  constexpr size_t kMaxValues = 10'000;
  Json meta = ParseJson(message->data, "the object " + Quoted(name), kMaxValues);
  if (!meta.is_object()) Fail(ErrorKind::kBadInput, "the object {} has no description", Quoted(name));
  const bool deleted = meta.value("deleted", Json(false)) == true;
  return Found{message->sequence, std::move(meta), deleted};
}

bool ObjectStore::Has(const std::string& name) {
  const std::optional<Found> found = Find(name);
  return found && !found->deleted;
}

bool ObjectStore::Put(const std::string& name, std::string_view bytes) {
  const std::optional<Found> before = Find(name);
  if (before && !before->deleted) return false;
  const std::string nuid = RandomHex(kNuidDigits);
  const auto stored = [&](const StoreResult& result) {
    if (result.outcome == StoreResult::Outcome::kFull) {
      jetstream_.Purge(stream_, ChunkSubject(nuid));
      Fail(ErrorKind::kCannotWrite, "the NATS server has no room for {} of {} bytes", name, bytes.size());
    }
    return result.outcome != StoreResult::Outcome::kConflict;
  };
  uint64_t chunks = 0;
  for (size_t at = 0; at < bytes.size(); at += kChunkBytes, ++chunks)
    stored(jetstream_.Store(ChunkSubject(nuid), std::string(bytes.substr(at, kChunkBytes)),
                            {.id = fmt::format("{}-{}", nuid, chunks)}));
  const Json meta = {
      {"name", name},         {"options", {{"max_chunk_size", kChunkBytes}}},
      {"bucket", bucket_},    {"nuid", nuid},
      {"size", bytes.size()}, {"mtime", "0001-01-01T00:00:00Z"},  // readers take the time of the message
      {"chunks", chunks},     {"digest", DigestText(bytes)}};
  const bool first = stored(jetstream_.Store(
      MetaSubject(name), meta.dump(),
      {.id = nuid, .last_sequence = before ? before->sequence : 0, .replaces_subject = true}));
  if (!first) jetstream_.Purge(stream_, ChunkSubject(nuid));  // another was there before
  return first;
}

std::optional<std::string> ObjectStore::Get(const std::string& name, size_t most_bytes) {
  const std::optional<Found> found = Find(name);
  if (!found || found->deleted) return std::nullopt;
  const uint64_t size = NumberIn(found->meta, "size"), chunks = NumberIn(found->meta, "chunks");
  const std::string nuid = TextIn(found->meta, "nuid"), where = "the object " + Quoted(name);
  if (size > most_bytes)
    Fail(ErrorKind::kBadInput, "{} has {} bytes; at most {} are read", where, size, most_bytes);
  if (!IsToken(nuid)) Fail(ErrorKind::kBadInput, "{} does not say where its parts are", where);
  std::string bytes;
  uint64_t sequence = 1;
  for (uint64_t i = 0; i < chunks; ++i) {
    const std::optional<StoredMessage> chunk = jetstream_.Next(stream_, ChunkSubject(nuid), sequence);
    if (!chunk) Fail(ErrorKind::kBadInput, "{}: part {} of {} is missing", where, i + 1, chunks);
    bytes += chunk->data;
    if (bytes.size() > size)
      Fail(ErrorKind::kBadInput, "{} is longer than the {} bytes that it says", where, size);
    sequence = chunk->sequence + 1;
  }
  if (bytes.size() != size ||
      WithoutPadding(TextIn(found->meta, "digest")) != WithoutPadding(DigestText(bytes)))
    Fail(ErrorKind::kBadInput, "{} is damaged: it is not what its digest says", where);
  return bytes;
}

void ObjectStore::Delete(const std::string& name) {
  const std::optional<Found> found = Find(name);
  if (!found || found->deleted) return;
  Json meta = found->meta;
  meta["deleted"] = true;
  meta["size"] = meta["chunks"] = 0;
  meta.erase("digest");
  const std::string nuid = TextIn(found->meta, "nuid");
  jetstream_.Store(MetaSubject(name), meta.dump(),
                   {.last_sequence = found->sequence, .replaces_subject = true});
  if (IsToken(nuid)) jetstream_.Purge(stream_, ChunkSubject(nuid));
}

}  // namespace qwen_image::queue
