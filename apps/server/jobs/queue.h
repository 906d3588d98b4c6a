// The queue of jobs and what became of them. Every function may be called from any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "draw/record.h"
#include "server/jobs/state.h"

namespace qwen_image::jobs {

struct Limits {
  int64_t queue = 16;  // jobs that wait
  // Ended jobs with pictures; the oldest go first. Of those that ended without one, as many as a server that
  // stops can leave behind are kept besides: the queue and the running one.
  int64_t kept = 200;
  int64_t waiting_bytes = int64_t{1} << 30;  // of the pictures that waiting jobs begin with
};

struct Options {
  std::string model_name = {};  // for the record inside the pictures
  draw::SourceMark mark = draw::SourceMark::kWritten;
  std::function<void(const Job&)> on_state = {};  // a job begins to run, or has ended: for logs
};

// Thrown by Submit when no more jobs can wait.
struct QueueFull {
  int64_t waiting = 0;
  int64_t retry_after_seconds = 1;  // when a place may be free, from the last jobs' times
};

// Workers of other machines that were heard from lately.
struct WorkersSeen {
  int64_t waiting = 0, drawing = 0;
};

// For metrics; sums are since the start.
struct QueueStats {
  std::optional<WorkersSeen> workers;  // none: this process draws
  std::map<State, int64_t> jobs;       // that are known now
  std::map<State, int64_t> ended;
  int64_t pictures = 0, steps = 0;
  StageSeconds seconds;
  double last_seconds_per_step = 0;
};

// What an observer is told.
struct Event {
  enum class Kind { kProgress, kPreview, kEnd } kind = Kind::kProgress;
  std::string preview_png;  // of kPreview
};
using Observer = std::function<void(const Job&, const Event&)>;  // called on the drawing thread: be quick

class Drawer;

class Queue {
 public:
  // The folder holds ended jobs; those that an earlier process left are there again. Throws Error
  // kCannotWrite if the folder cannot be used, or another server uses it. `drawer` (drawer.h): null for this
  // process.
  Queue(const Pipeline& pipeline, std::filesystem::path folder, Limits limits, Options options = {},
        std::shared_ptr<Drawer> drawer = nullptr);
  ~Queue();  // stops drawing; what has not finished is recorded as interrupted
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  // What was found in the folder and could not be read, for a log.
  const std::vector<std::string>& problems() const;

  // Checks the request first (Pipeline::Check). Throws Error (kInterrupted: no more jobs are taken),
  // QueueFull.
  std::string Submit(Request request);
  std::optional<Job> Find(const std::string& id) const;
  std::vector<Job> List() const;  // newest first
  // Stops it within a step. False: there is no such job, or it has ended.
  bool Cancel(const std::string& id);
  // Forgets a job that has ended, and its pictures. False: there is none.
  bool Remove(const std::string& id);
  // The bytes of a finished picture (PNG, its settings inside), or none.
  std::optional<std::string> ReadPng(const std::string& id, int64_t index) const;

  // The newest preview of a job that is being drawn (PNG), or nothing: they are made from the first call on.
  std::string Preview(const std::string& id);

  // The observer hears at once how the job stands, and then of the job until it has ended (kEnd, once) or the
  // handle is gone. Null: there is no such job.
  class Subscription;
  std::shared_ptr<Subscription> Subscribe(const std::string& id, Observer observer);

  // No new jobs; the running one and, with `finish_queue`, the waiting ones are finished. Returns when done.
  void Drain(bool finish_queue);
  // The same, but the running job is interrupted, too; does not wait.
  void Stop();

  QueueStats Stats() const;

  struct Impl;  // for who draws

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace qwen_image::jobs
