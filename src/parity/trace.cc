#include "parity/trace.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <utility>

namespace qwen_image {
namespace {

constexpr double kTolerated = 4;  // a known range comes from one run: other prompts and sizes differ by this

constexpr std::string_view kEntropy = ":attn_entropy";
// The last checkpoint before the entropy is computed: between the two, the run works for the tracer only.
constexpr std::string_view kBeforeEntropy = ":txt_key_rope";

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

bool EndsBlock(std::string_view name) { return name.ends_with(":attn_output") || name.ends_with(":img"); }

// "transformer/step012.neg/transformer_blocks.3:img" → "transformer_blocks.3:img"
std::string_view ModulePath(std::string_view name) { return name.substr(name.rfind('/') + 1); }

std::optional<int64_t> BlockIndex(std::string_view module) {
  constexpr std::string_view kBlocks = "transformer_blocks.";
  if (!module.starts_with(kBlocks)) return std::nullopt;
  int64_t index = 0;
  for (const char c : module.substr(kBlocks.size())) {
    if (c < '0' || c > '9') break;
    index = std::min<int64_t>(10 * index + (c - '0'), 1000);
  }
  return index;
}

}  // namespace

std::optional<ValueRange> QwenImageRange(const std::string& checkpoint) {
  const auto symmetric = [](double limit) { return ValueRange{-limit, limit}; };
  if (!checkpoint.starts_with("transformer/")) return std::nullopt;
  const std::string_view module = ModulePath(checkpoint);
  if (module == "img_in") return symmetric(16);
  if (module == "norm_out") return symmetric(21);
  if (module == "proj_out") return symmetric(6);
  const auto block = BlockIndex(module);
  if (!block) return std::nullopt;
  if (module.ends_with(":img")) {
    // ±2e6 after block 0, ±4.5e7 after block 59: between them it grows evenly by factors.
    return symmetric(2e6 * std::pow(4.5e7 / 2e6, static_cast<double>(*block) / 59));
  }
  if (module.ends_with(".img_norm1") || module.ends_with(".img_norm2")) return symmetric(9);
  if (module.ends_with(":img_modulated1")) return symmetric(70);
  if (module.ends_with(".attn.to_out.0")) return symmetric(120);
  if (module.ends_with(".img_mlp")) return symmetric(26000);
  return std::nullopt;
}

bool TraceEvent::out_of_range() const {
  if (!expected) return false;
  const double reach = kTolerated * std::max(std::abs(expected->min), std::abs(expected->max));
  return range.min < -reach || range.max > reach;
}

RunTracer::RunTracer(CheckpointSelection selection, KnownRanges ranges, CheckpointSink* inner)
    : selection_(std::move(selection)), ranges_(std::move(ranges)), inner_(inner) {}

bool RunTracer::Wants(std::string_view name) const {
  return selection_.Contains(name) || name.ends_with(kEntropy) || name.ends_with(kBeforeEntropy) ||
         (inner_ && inner_->Wants(name));
}

void RunTracer::OnCheckpoint(const std::string& name, const CheckpointView& view) {
  const auto* values = std::get_if<float*>(&view.data);
  if (name.ends_with(kEntropy)) {
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
  if (EndsBlock(name)) event.head_entropy = std::exchange(head_entropy_, {});
  events_.push_back(std::move(event));
}

bool RunTracer::healthy() const {
  return std::none_of(events_.begin(), events_.end(),
                      [](const TraceEvent& e) { return e.nan > 0 || e.inf > 0 || e.out_of_range(); });
}

}  // namespace qwen_image
