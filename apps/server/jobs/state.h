// A job: pictures that somebody asked the server to draw.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "qwen_image/qwen_image.h"

namespace qwen_image::jobs {

// What is drawn: `count` pictures, with the seeds request.seed, request.seed + 1, …
struct Request {
  GenerateRequest request;
  int64_t count = 1;
  std::vector<std::string> notes = {};  // what was found while reading it; the first of Job::notes
};

enum class State { kQueued, kRunning, kDone, kFailed, kCancelled, kInterrupted };
const char* Name(State state);  // "queued", …
inline constexpr State kStates[] = {State::kQueued, State::kRunning,   State::kDone,
                                    State::kFailed, State::kCancelled, State::kInterrupted};
inline bool HasEnded(State state) { return state != State::kQueued && state != State::kRunning; }

struct JobProgress {
  int64_t position = 0;  // in the queue; 0: it runs
  std::string stage;     // "encode prompt", "encode pictures", "denoise", "decode"
  int64_t step = 0, steps = 0;
  int64_t picture = 0;  // which of the job's pictures, from 0
  double fraction = 0;  // of the whole job
  double seconds_per_step = 0;
  double seconds_left = 0;  // 0: not known yet
};

struct JobImage {
  int64_t width = 0, height = 0;
  uint64_t seed = 0;
  int64_t channels = 3;  // 4: with alpha
};

// A job as it stands at one moment; a copy that belongs to the reader.
struct Job {
  std::string id;
  State state = State::kQueued;
  int64_t created = 0, started = 0, finished = 0;  // Unix time in milliseconds; 0: not yet
  GenerateRequest settings;  // without data; every default is filled in as soon as it is known
  int64_t count = 1;         // of pictures to draw
  int64_t input_images = 0;  // how many pictures it edits
  bool has_init_image = false, has_mask = false;

  int64_t width() const { return settings.width.value_or(0); }  // 0: not known yet
  int64_t height() const { return settings.height.value_or(0); }
  int64_t steps() const { return settings.steps.value_or(0); }
  double cfg() const { return settings.cfg.value_or(0); }
  std::string negative_prompt() const { return settings.negative_prompt.value_or(""); }

  JobProgress progress;
  std::vector<JobImage> images;  // finished ones
  std::vector<std::string> notes;
  ErrorKind error_kind = ErrorKind::kInternal;  // of kFailed
  std::string error;                            // of kFailed, kCancelled, kInterrupted: what to tell the user
};

// A job that waits. `defaults`: those of its model.
Job NewJob(const Request& asked, const Defaults& defaults, const std::string& id, int64_t created);

}  // namespace qwen_image::jobs
