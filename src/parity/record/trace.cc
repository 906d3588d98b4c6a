#include "parity/record/trace.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <utility>

namespace qwen_image::record {
namespace {

constexpr double kTolerated =
    4;  // a known range comes from one run; other prompts and sizes differ by this factor

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

void Measure(const float* values, int64_t count, TraceEvent& event) {
  bool any = false;
  for (int64_t i = 0; i < count; ++i) {
    const double v = values[i];
    if (std::isnan(v)) {
      ++event.nan;
    } else if (std::isinf(v)) {
      ++event.inf;
    } else {
      event.range =
          any ? ValueRange{std::min(event.range.min, v), std::max(event.range.max, v)} : ValueRange{v, v};
      any = true;
    }
  }
}

}  // namespace

bool TraceEvent::out_of_range() const {
  if (!expected) return false;
  const double reach = kTolerated * std::max(std::abs(expected->min), std::abs(expected->max));
  return range.min < -reach || range.max > reach;
}

RunTracer::RunTracer(const CheckpointNames& names, CheckpointSelection selection, KnownRanges ranges,
                     CheckpointSink* inner)
    : names_(&names), selection_(std::move(selection)), ranges_(std::move(ranges)), inner_(inner) {}

bool RunTracer::Wants(std::string_view name) const {
  // The run computes the entropy for the tracer only. That work lies between the checkpoint `before` and the
  // entropy's, so the tracer wants both and does not count the time between them.
  const std::string_view before = names_->before_attention;
  return selection_.Contains(name) || name.ends_with(kAttentionEntropy) ||
         (!before.empty() && name.ends_with(before)) || (inner_ && inner_->Wants(name));
}

void RunTracer::OnCheckpoint(const std::string& name, const CheckpointView& view) {
  const auto* values = std::get_if<float*>(&view.data);
  if (name.ends_with(kAttentionEntropy)) {
    head_entropy_.assign(*values, *values + ElementCount(view.shape));
  } else {
    computed_ += std::chrono::duration<double>(Clock::now() - resumed_).count();
    if (selection_.Contains(name) && values) Record(name, *values, ElementCount(view.shape));
  }
  if (inner_ && inner_->Wants(name)) inner_->OnCheckpoint(name, view);
  resumed_ = Clock::now();
}

void RunTracer::Record(const std::string& name, const float* values, int64_t count) {
  TraceEvent event;
  event.name = name;
  event.start = recorded_;
  event.seconds = computed_ - recorded_;
  recorded_ = computed_;
  Measure(values, count, event);
  if (ranges_) event.expected = ranges_(name);
  event.resident_bytes = ResidentBytes();
  const auto block = ParseBlockName(*names_, name);
  const bool ends_block = block && block->list == names_->denoiser_blocks &&
                          (block->rest == kAttentionOutput || IsOutput(block->rest, names_->block_end));
  if (ends_block) event.head_entropy = std::exchange(head_entropy_, {});
  events_.push_back(std::move(event));
}

bool RunTracer::healthy() const {
  return std::none_of(events_.begin(), events_.end(),
                      [](const TraceEvent& e) { return e.nan > 0 || e.inf > 0 || e.out_of_range(); });
}

}  // namespace qwen_image::record
