#include "server/api/metrics.h"

#include <fmt/format.h>

#include <iterator>

#include "core/memory.h"
#include "qwen_image/qwen_image.h"

namespace qwen_image::api {
namespace {

class Page {
 public:
  void Begin(const char* name, const char* type, const char* help) {
    name_ = name;
    fmt::format_to(Out(), "# HELP qwen_image_{} {}\n# TYPE qwen_image_{} {}\n", name, help, name, type);
  }
  template <typename Number>
  void Value(Number value, const std::string& labels = "") {
    fmt::format_to(Out(), "qwen_image_{}{} {}\n", name_, labels.empty() ? "" : "{" + labels + "}", value);
  }
  template <typename Number>
  void One(const char* name, const char* type, const char* help, Number value) {
    Begin(name, type, help);
    Value(value);
  }
  std::string text;

 private:
  std::back_insert_iterator<std::string> Out() { return std::back_inserter(text); }
  const char* name_ = "";
};

int64_t CountOf(const std::map<jobs::State, int64_t>& counts, jobs::State state) {
  const auto found = counts.find(state);
  return found == counts.end() ? 0 : found->second;
}

}  // namespace

std::string MetricsText(const jobs::QueueStats& jobs, const http::ListenerStats& http,
                        const ServedModel& served) {
  Page page;
  page.Begin("info", "gauge",
             "The model that is loaded, the device that it computes on, the program's version.");
  page.Value(
      1, fmt::format("model=\"{}\",device=\"{}\",version=\"{}\"", served.model, served.device, Version()));
  page.One("queue_length", "gauge", "Jobs that wait.", CountOf(jobs.jobs, jobs::State::kQueued));
  page.One("queue_limit", "gauge", "Jobs that may wait.", served.queue_limit);
  page.Begin("jobs", "gauge", "Jobs that the server knows, by state.");
  for (const jobs::State state : jobs::kStates)
    page.Value(CountOf(jobs.jobs, state), fmt::format("state=\"{}\"", Name(state)));
  page.Begin("jobs_ended_total", "counter", "Jobs that ended since the start, by state.");
  for (const jobs::State state : jobs::kStates) {
    if (HasEnded(state)) page.Value(CountOf(jobs.ended, state), fmt::format("state=\"{}\"", Name(state)));
  }
  if (jobs.workers) {
    page.Begin("workers", "gauge",
               "Workers of other machines that were heard from in the last 15 s, by what they do.");
    page.Value(jobs.workers->waiting, "state=\"waiting\"");
    page.Value(jobs.workers->drawing, "state=\"drawing\"");
  }
  page.One("pictures_total", "counter", "Pictures drawn.", jobs.pictures);
  page.One("steps_total", "counter", "Denoising steps computed for finished pictures.", jobs.steps);
  page.Begin("stage_seconds_total", "counter", "Time spent, by stage.");
  page.Value(jobs.seconds.encode_prompt, "stage=\"encode prompt\"");
  page.Value(jobs.seconds.encode_pictures, "stage=\"encode pictures\"");
  page.Value(jobs.seconds.denoise, "stage=\"denoise\"");
  page.Value(jobs.seconds.decode, "stage=\"decode\"");
  page.One("seconds_per_step", "gauge", "Of the last finished picture.", jobs.last_seconds_per_step);
  const MemoryUse memory = MemoryInUse();
  page.One("resident_memory_bytes", "gauge", "Memory of the process, mapped weights included.",
           memory.resident);
  page.One("peak_memory_bytes", "gauge", "The most it ever was.", memory.peak);
  page.Begin("requests_total", "counter", "Requests answered, by status (499: the client left).");
  for (const auto& [status, count] : http.requests) page.Value(count, fmt::format("status=\"{}\"", status));
  page.One("connections", "gauge", "Open connections.", http.connections);
  page.One("connections_refused_total", "counter", "Connections beyond the limit.", http.refused_connections);
  return page.text;
}

}  // namespace qwen_image::api
