// The jobs on a NATS server: the work queue, and what is known of each job. Which streams and subjects there
// are stands in docs/machines.md.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "queue/jetstream.h"
#include "queue/job_message.h"
#include "queue/object_store.h"

namespace qwen_image::queue {

inline constexpr const char* kBucket = "qwen_image";

// What messages between those who are there now are about: "qwen_image.WHAT.OF".
inline constexpr const char *kProgress = "progress", *kPreview = "preview", *kEnded = "ended",
                            *kControl = "control", *kPresence = "presence", *kAsk = "ask",
                            *kWorker = "worker";
std::string SubjectOf(const char* what, const std::string& of);
inline constexpr const char *kWatch = "watch", *kCancel = "cancel";  // what kControl says

// As a part of a subject: what has a meaning there becomes "_".
std::string Token(const std::string& name);
std::string LastToken(const std::string& subject);

class Board {
 public:
  explicit Board(JetStream& jetstream) : jetstream_(jetstream), objects_(jetstream, kBucket) {}

  JetStream& jetstream() { return jetstream_; }
  ObjectStore& objects() { return objects_; }

  void Need();  // makes what is not there yet

  enum class Sent { kSent, kWaits, kDone };
  // Once: a job that waits, is drawn or was drawn is not sent again; one that failed is. `job` is what is
  // known of it. Throws Error kCannotWrite if the queue takes no more.
  Sent Send(const std::string& model, JobMessage message, const jobs::Job& job);
  Sent WouldSend(const std::string& model, const std::string& id) { return WouldSend(model, id, Read(id)); }
  bool InQueue(const std::string& model, const std::string& id);
  // So that it is not drawn: out of the queue, and whoever draws it stops. False: it has ended, or there is
  // none.
  bool Cancel(const std::string& model, const std::string& id);
  uint64_t Waiting() { return jetstream_.Count(kJobs); }

  struct Known {
    JobRecord record;
    uint64_t sequence = 0;
  };
  // None if nothing is known. Of a text that is no record, nothing but its place.
  std::optional<Known> Read(const std::string& id);
  // False if it has changed since it was read.
  bool Write(const JobRecord& record, uint64_t read_sequence);

  // Who draws jobs of this model gets them by Take.
  void NeedWorkers(const std::string& model, std::chrono::milliseconds dead_after);
  std::optional<Delivery> Take(const std::string& model, std::chrono::milliseconds wait);
  // The request of a message, which may be an object of its own.
  Json RequestOf(const JobMessage& message);

 private:
  static constexpr const char *kJobs = "QWEN_IMAGE_JOBS", *kRecords = "QWEN_IMAGE_RECORDS";

  static std::string JobSubject(const std::string& model, const std::string& id);
  static std::string RecordSubject(const std::string& id);
  Sent WouldSend(const std::string& model, const std::string& id, const std::optional<Known>& known);

  JetStream& jetstream_;
  ObjectStore objects_;
};

}  // namespace qwen_image::queue
