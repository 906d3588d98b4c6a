#include "queue/job_message.h"

#include <algorithm>
#include <limits>

#include "core/fail.h"
#include "files/digest.h"
#include "files/text.h"
#include "server/jobs/store.h"
#include "weights/config_reader.h"

namespace qwen_image::queue {
namespace {

// The version of these texts. A worker of an older program does not guess what a newer one means.
constexpr int64_t kFormat = 1;
constexpr size_t kMaxValues = 20'000, kMaxRecordBytes = 1 << 20, kMaxTries = 100, kMaxName = 200;
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

std::string Text(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json ParseObject(std::string_view text, const std::string& where, size_t most_bytes) {
  if (text.size() > most_bytes)
    Fail(ErrorKind::kBadInput, "{}: it has {} bytes; at most {} are read", where, text.size(), most_bytes);
  Json json = ParseJson(text, where, kMaxValues);
  if (!json.is_object()) Fail(ErrorKind::kBadInput, "{}: it is no object", where);
  return json;
}

void CheckFormat(const ConfigReader& reader) {
  const int64_t format = reader.Int("format", 0, kMax);
  if (format != kFormat)
    Fail(ErrorKind::kBadInput, "{}: it is of another version of qwen-image (format {}; this one reads {})",
         reader.where(), format, kFormat);
}

std::string Name(const ConfigReader& reader, const char* key) {
  std::string name = reader.String(key, "");
  if (name.size() > kMaxName) Fail(ErrorKind::kBadInput, "{}: \"{}\" is too long", reader.where(), key);
  return name;
}

}  // namespace

std::string JobMessageText(const JobMessage& message) {
  Json json = {{"format", kFormat}, {"id", message.id}};
  if (!message.build.empty()) json["build"] = message.build;
  if (!message.request.is_null()) json["request"] = message.request;
  return Text(json);
}

JobMessage ParseJobMessage(std::string_view text, const std::string& where) {
  Json json = ParseObject(text, where, 2 * kMaxMessageBytes);
  const ConfigReader reader(json, where);
  CheckFormat(reader);
  JobMessage message{.id = Name(reader, "id"), .build = Name(reader, "build")};
  if (!jobs::IsJobId(message.id))
    Fail(ErrorKind::kBadInput, "{}: {} is not the id of a job", where, Quoted(message.id));
  if (const auto request = json.find("request"); request != json.end()) {
    if (!request->is_object()) Fail(ErrorKind::kBadInput, "{}: \"request\" is no object", where);
    message.request = std::move(*request);
  }
  return message;
}

std::string IdOfRequest(const std::string& model, const std::string& build, const Json& request) {
  // nlohmann's objects are sorted by their keys.
  const std::string text = Text({{"model", model}, {"build", build}, {"request", request}});
  constexpr size_t kIdDigits = 32;  // as all ids of jobs have
  return Sha256(text).substr(0, kIdDigits);
}

std::string RequestObject(const std::string& id) { return id + ".request.json"; }

std::string PictureName(const std::string& id, int64_t index) { return fmt::format("{}-{}.png", id, index); }

std::string JobRecordText(const JobRecord& record) {
  Json json = Json::parse(jobs::StoredJobText(record.job));
  json["format"] = kFormat;
  json["worker"] = record.worker;
  json["kept_in"] = record.kept_in;
  json["tries"] = Json::array();
  for (const Try& one : record.tries)
    json["tries"].push_back(
        {{"worker", one.worker}, {"begun", one.begun}, {"ended", one.ended}, {"counts", one.counts}});
  return Text(json);
}

JobRecord ParseJobRecord(std::string_view text, const std::string& where) {
  const Json json = ParseObject(text, where, kMaxRecordBytes);
  const ConfigReader reader(json, where);
  CheckFormat(reader);
  JobRecord record{.job = jobs::ParseStoredJob(text, where),
                   .worker = Name(reader, "worker"),
                   .kept_in = Name(reader, "kept_in")};
  const auto tries = json.find("tries");
  if (tries == json.end() || !tries->is_array() || tries->size() > kMaxTries)
    Fail(ErrorKind::kBadInput, "{}: \"tries\" is no list, or is too long", where);
  for (const Json& entry : *tries) {
    const ConfigReader one(entry, where + ": tries");
    record.tries.push_back(
        {Name(one, "worker"), one.Int("begun", 0, kMax), one.String("ended", ""), one.Bool("counts", true)});
  }
  return record;
}

std::string ProgressText(const jobs::JobProgress& p) {
  return Text({{"stage", p.stage},
               {"step", p.step},
               {"steps", p.steps},
               {"picture", p.picture},
               {"fraction", p.fraction},
               {"seconds_per_step", p.seconds_per_step},
               {"seconds_left", p.seconds_left}});
}

jobs::JobProgress ParseProgress(std::string_view text) {
  constexpr size_t kMost = 4096;
  const Json json = ParseObject(text, "progress of a job", kMost);
  const ConfigReader reader(json, "progress of a job");
  return {.stage = Printable(Name(reader, "stage")),
          .step = reader.Int("step", 0, kMax),
          .steps = reader.Int("steps", 0, kMax),
          .picture = reader.Int("picture", 0, kMax),
          .fraction = std::min(1.0, std::max(0.0, reader.Number("fraction"))),
          .seconds_per_step = reader.Number("seconds_per_step"),
          .seconds_left = reader.Number("seconds_left")};
}

std::string PresenceText(const Presence& presence) {
  return Text({{"worker", presence.worker},
               {"model", presence.model},
               {"build", presence.build},
               {"version", presence.version},
               {"job", presence.job}});
}

Presence ParsePresence(std::string_view text) {
  constexpr size_t kMost = 4096;
  const Json json = ParseObject(text, "a worker's message", kMost);
  const ConfigReader reader(json, "a worker's message");
  return {Name(reader, "worker"), Name(reader, "model"), Name(reader, "build"), Name(reader, "version"),
          Name(reader, "job")};
}

}  // namespace qwen_image::queue
