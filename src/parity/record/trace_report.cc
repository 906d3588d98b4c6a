// A trace as a file for a viewer and as a table for a terminal.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "files/json.h"
#include "files/output_file.h"
#include "parity/record/trace.h"

namespace qwen_image::record {
namespace {

// "transformer/step003.neg/img_in" → "transformer/step003.neg"; "prompt_embeds" → "pipeline"
std::string StageOf(const std::string& name) {
  const size_t slash = name.rfind('/');
  return slash == name.npos ? "pipeline" : name.substr(0, slash);
}

// JSON has no NaN and no infinity.
Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(fmt::format("{}", value)); }

Json SpanEvent(const std::string& name, const char* category, int thread, double start, double seconds,
               Json args) {
  return {{"name", name},
          {"cat", category},
          {"ph", "X"},
          {"pid", 1},
          {"tid", thread},
          {"ts", start * 1e6},
          {"dur", seconds * 1e6},
          {"args", std::move(args)}};
}

// Counts the heads that see all keys alike and those that see one key only. A few of either are normal.
struct HeadCounts {
  int64_t heads = 0, uniform = 0, collapsed = 0;
  double sum = 0;

  void Add(const std::vector<float>& entropy) {
    for (const float e : entropy) {
      ++heads;
      uniform += e > 0.99f;
      collapsed += e < 0.01f;
      sum += e;
    }
  }
};

struct LayerSummary {
  double seconds = 0;
  int64_t calls = 0, nan = 0, inf = 0, resident = 0;
  bool out_of_range = false, judged = false;
  ValueRange range;
  HeadCounts heads;
};

// "transformer/step003.neg/img_in" → "transformer/img_in"
std::string LayerOf(const std::string& name) {
  const size_t first = name.find('/'), last = name.rfind('/');
  if (first == name.npos) return name.substr(0, name.find("_step"));
  return name.substr(0, name.find_first_of("./")) + name.substr(last);
}

std::string Verdict(const LayerSummary& s) {
  if (s.nan > 0) return fmt::format("NaN: {}", s.nan);
  if (s.inf > 0) return fmt::format("infinite: {}", s.inf);
  if (s.out_of_range) return "OUT OF RANGE";
  return s.judged ? "normal" : "-";
}

std::string Heads(const HeadCounts& h) {
  if (h.heads == 0) return "";
  std::string text = fmt::format("{:.2f}", h.sum / static_cast<double>(h.heads));
  if (h.uniform > 0) text += fmt::format(", {} uniform", h.uniform);
  if (h.collapsed > 0) text += fmt::format(", {} collapsed", h.collapsed);
  return text;
}

}  // namespace

void RunTracer::WriteTrace(const std::filesystem::path& path) const {
  constexpr int kStageRow = 1, kLayerRow = 2;
  Json events = Json::array();
  for (size_t i = 0; i < events_.size();) {  // consecutive events of a stage make one span
    size_t end = i;
    double seconds = 0;
    while (end < events_.size() && StageOf(events_[end].name) == StageOf(events_[i].name))
      seconds += events_[end++].seconds;
    events.push_back(
        SpanEvent(StageOf(events_[i].name), "stage", kStageRow, events_[i].start, seconds, Json::object()));
    i = end;
  }
  for (const TraceEvent& e : events_) {
    Json args = {{"min", Number(e.range.min)}, {"max", Number(e.range.max)}, {"nan", e.nan}, {"inf", e.inf}};
    if (e.expected) args["expected"] = {e.expected->min, e.expected->max};
    if (e.out_of_range()) args["out_of_range"] = true;
    for (const float entropy : e.head_entropy) args["head_entropy"].push_back(Number(entropy));
    events.push_back(SpanEvent(e.name, "layer", kLayerRow, e.start, e.seconds, std::move(args)));
    events.push_back({{"name", "memory"},
                      {"ph", "C"},
                      {"pid", 1},
                      {"ts", (e.start + e.seconds) * 1e6},
                      {"args", {{"resident MB", static_cast<double>(e.resident_bytes) / 1e6}}}});
  }
  const std::string text = Json{{"traceEvents", events}, {"displayTimeUnit", "ms"}}.dump() + "\n";
  OutputFile file(path);
  file.Write(text.data(), text.size());
  file.Commit();
}

std::string RunTracer::Table() const {
  std::vector<std::string> order;
  std::map<std::string, LayerSummary> layers;
  size_t widest = 5;
  for (const TraceEvent& e : events_) {
    const std::string layer = LayerOf(e.name);
    const auto [found, added] = layers.try_emplace(layer);
    LayerSummary& s = found->second;
    if (added) order.push_back(layer);
    widest = std::max(widest, layer.size());
    s.range =
        added ? e.range : ValueRange{std::min(s.range.min, e.range.min), std::max(s.range.max, e.range.max)};
    s.seconds += e.seconds;
    ++s.calls;
    s.nan += e.nan;
    s.inf += e.inf;
    s.resident = std::max(s.resident, e.resident_bytes);
    s.judged |= e.expected.has_value();
    s.out_of_range |= e.out_of_range();
    s.heads.Add(e.head_entropy);
  }
  std::string text = fmt::format("{:<{}} {:>5} {:>9} {:>11} {:>11} {:>7}  {:<14} {}\n", "layer", widest,
                                 "calls", "ms/call", "min", "max", "MB", "values", "attention entropy");
  for (const std::string& layer : order) {
    const LayerSummary& s = layers.at(layer);
    std::string line =
        fmt::format("{:<{}} {:>5} {:>9.2f} {:>11.4g} {:>11.4g} {:>7.0f}  {:<14} {}", layer, widest, s.calls,
                    1e3 * s.seconds / static_cast<double>(s.calls), s.range.min, s.range.max,
                    static_cast<double>(s.resident) / 1e6, Verdict(s), Heads(s.heads));
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace qwen_image::record
