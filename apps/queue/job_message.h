// A job on its way to a worker, and what is known of it: the texts of messages. They come from others, so
// nothing in them is believed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "files/json.h"
#include "server/jobs/progress.h"
#include "server/jobs/state.h"

namespace qwen_image::queue {

// Larger requests travel as an object, which the message names.
inline constexpr size_t kMaxMessageBytes = 256 << 10;
// Of a request with its pictures: as many bytes as the server takes over HTTP.
inline constexpr size_t kMaxRequestBytes = 128 << 20;

struct JobMessage {
  std::string id;
  std::string build;  // only workers of this build draw it; empty: any
  Json request;       // as POST /jobs takes it; null: it is the object RequestObject(id)
};

std::string JobMessageText(const JobMessage& message);
// Throws Error kBadInput.
JobMessage ParseJobMessage(std::string_view text, const std::string& where);

// The same request has the same id, so that a job that is sent again is not drawn again.
std::string IdOfRequest(const std::string& model, const std::string& build, const Json& request);

std::string RequestObject(const std::string& id);               // "ID.request.json"
std::string PictureName(const std::string& id, int64_t index);  // "ID-0.png", as an object and as a file

// A worker that began to draw a job.
struct Try {
  std::string worker;
  int64_t begun = 0;   // Unix time in milliseconds
  std::string ended;   // why it did not finish; empty: nothing was heard of it any more, or it draws
  bool counts = true;  // false: it gave the job back because it was stopped
};

// What is known of a job, kept under its id. The newest replaces the others.
struct JobRecord {
  jobs::Job job;
  std::string worker;  // who draws it, or has drawn it
  std::vector<Try> tries;
  std::string kept_in;  // where the pictures are: kInFolder or kInObjects
};
inline constexpr const char *kInFolder = "folder", *kInObjects = "objects";

std::string JobRecordText(const JobRecord& record);
JobRecord ParseJobRecord(std::string_view text, const std::string& where);  // throws Error kBadInput

// How far a job is, as its worker tells it.
std::string ProgressText(const jobs::JobProgress& progress);
jobs::JobProgress ParseProgress(std::string_view text);  // throws Error kBadInput

// A worker that is there.
struct Presence {
  std::string worker, model, build, version;
  std::string job;  // that it draws; empty: it waits
};
std::string PresenceText(const Presence& presence);
Presence ParsePresence(std::string_view text);  // throws Error kBadInput

}  // namespace qwen_image::queue
