// RunTracer: a sink that watches a run's health while it goes on: range, NaN and infinity of every layer,
// entropy of every attention head, time and memory. It may stand before another sink, whose time it does not
// count.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/checkpoint.h"
#include "families/checkpoint_names.h"
#include "parity/record/level.h"

namespace qwen_image::record {

// The normal range of a checkpoint's values; nothing if it is not known.
using KnownRanges = std::function<std::optional<ValueRange>(std::string_view checkpoint)>;

struct TraceEvent {
  std::string name;
  double start = 0, seconds = 0;  // `seconds` since the last event: the time to compute this tensor
  ValueRange range;               // of the finite values
  int64_t nan = 0, inf = 0;
  std::optional<ValueRange> expected;
  int64_t resident_bytes = 0;       // of the process, now
  std::vector<float> head_entropy;  // of the block's attention, 0 (one key) to 1 (all keys alike)

  bool out_of_range() const;  // far outside of what is expected
};

class RunTracer : public CheckpointSink {
 public:
  // `names` are those of the family that is traced.
  RunTracer(const CheckpointNames& names, CheckpointSelection selection, KnownRanges ranges,
            CheckpointSink* inner);

  bool Wants(std::string_view name) const override;
  void OnCheckpoint(const std::string& name, const CheckpointView& view) override;

  const std::vector<TraceEvent>& events() const { return events_; }
  bool healthy() const;  // no NaN, no infinity, no value far outside of what is expected

  // Chrome's trace format: chrome://tracing or ui.perfetto.dev show it. Throws Error kCannotWrite.
  void WriteTrace(const std::filesystem::path& path) const;
  // One line per layer, all steps together.
  std::string Table() const;

 private:
  using Clock = std::chrono::steady_clock;
  void Record(const std::string& name, const float* values, int64_t count);

  const CheckpointNames* names_;
  CheckpointSelection selection_;
  KnownRanges ranges_;
  CheckpointSink* inner_;                     // may be null
  Clock::time_point resumed_ = Clock::now();  // when the run last went on
  double computed_ = 0;                       // seconds of the run itself, without the sinks'
  double recorded_ = 0;                       // the part of `computed_` up to the last event
  std::vector<float> head_entropy_;           // of the block that is running
  std::vector<TraceEvent> events_;
};

}  // namespace qwen_image::record
