#include "generate_report.h"

#include <cmath>
#include <string>

#include "core/memory.h"
#include "device_report.h"
#include "files/text.h"
#include "picture_record.h"
#include "print.h"
#include "progress.h"

namespace qwen_image::cli {
namespace {

double SecondsPerStep(const Picture& p) {
  return p.steps_run > 0 ? p.seconds.denoise / static_cast<double>(p.steps_run) : 0;
}

// This run's and those that an earlier one finished.
int64_t AllSteps(const Picture& p) { return p.steps_resumed + p.steps_run; }

std::string DenoiseDetails(const Picture& p) {
  std::string text = HumanSeconds(SecondsPerStep(p)) + "/step";
  if (p.steps_estimated > 0)
    text += fmt::format(", {} of {} steps estimated", p.steps_estimated, AllSteps(p));
  if (p.steps_resumed > 0) text += fmt::format(", resumed after step {}", p.steps_resumed);
  return text;
}

// What people complain of first in edits: "against the input: shift +0.5, -1.2 px, zoom 100.1 % x 99.8 %".
std::string AlignmentText(const Alignment& a) {
  if (!a.measurable)
    return "shift and zoom could not be measured: too few edges of the input are found again";
  const auto tenths = [](double value) { return std::round(10 * value) / 10 + 0.0; };  // no -0.0
  return fmt::format("against the input: shift {:+.1f}, {:+.1f} px, zoom {:.1f} % x {:.1f} %",
                     tenths(a.shift_x), tenths(a.shift_y), 100 + a.scale_x, 100 + a.scale_y);
}

void PrintSource(std::FILE* stream, const Picture& p) {
  if (!p.source) return;
  const SourceReport& s = *p.source;
  const bool enlarged = s.enlarged_width != s.input_width || s.enlarged_height != s.input_height;
  Print(stream, "  input {}x{}{}, worked at {}x{}, result {}x{}{}; {}\n", s.input_width, s.input_height,
        enlarged ? fmt::format(", enlarged to {}x{}", s.enlarged_width, s.enlarged_height) : "",
        s.working_width, s.working_height, p.width, p.height,
        std::abs(s.stretch_percent) < 0.05
            ? ""
            : fmt::format(" (stretched by {:+.1f} %, see --keep-size)", s.stretch_percent),
        AlignmentText(s.alignment));
}

Json SourceJson(const Picture& p) {
  const SourceReport& s = *p.source;
  Json json = {{"input_width", s.input_width},         {"input_height", s.input_height},
               {"enlarged_width", s.enlarged_width},   {"enlarged_height", s.enlarged_height},
               {"working_width", s.working_width},     {"working_height", s.working_height},
               {"stretch_percent", s.stretch_percent}, {"alignment", nullptr}};
  if (s.alignment.measurable) {
    json["alignment"] = {{"shift_x", s.alignment.shift_x},         {"shift_y", s.alignment.shift_y},
                         {"scale_x_percent", s.alignment.scale_x}, {"scale_y_percent", s.alignment.scale_y},
                         {"confidence", s.alignment.confidence},   {"uncertainty", s.alignment.uncertainty}};
  }
  return json;
}

std::string StepsText(const Picture& p) {
  const int64_t steps = AllSteps(p);
  std::string text = fmt::format("{} step{}", steps, steps == 1 ? "" : "s");
  if (steps != p.steps) text += fmt::format(" of {} (strength {})", p.steps, p.strength.value_or(1));
  return text;
}

void PrintLoras(std::FILE* stream, const Pipeline& pipeline, const Picture& p) {
  for (const AppliedLora& lora : pipeline.loras()) {
    Print(stream, "  lora: {} × {}, {} of {} layers\n", Printable(lora.name), lora.scale, lora.layers,
          lora.total);
  }
  if (!pipeline.defaults().lightning) return;
  const Defaults& made_for = pipeline.defaults();
  const bool as_made = p.steps == made_for.steps && p.cfg == made_for.cfg;
  Print(stream, "  Lightning LoRA: {}{} steps, cfg {}\n", as_made ? "" : "made for ", made_for.steps,
        made_for.cfg);
  if (p.cfg > 1) {
    Print(stderr,
          "note: a Lightning LoRA needs no guidance: cfg {} takes twice the time and usually spoils the "
          "picture\n",
          p.cfg);
  }
}

}  // namespace

bool IsStandardOutput(const std::filesystem::path& output) {
  return output == "/dev/stdout" || output == "/dev/fd/1" || output == "/proc/self/fd/1";
}

void PrintSummary(const Job& job, const Picture& p, const Pipeline& pipeline) {
  std::FILE* stream = IsStandardOutput(job.output) ? stderr : stdout;
  if (p.prompt_truncated) {
    Print(stderr, "note: the prompt has {} tokens; the end was cut off (see --max-sequence-length)\n",
          p.prompt_tokens);
  }
  Print(stream, "{}: {}x{}, {}, cfg {}, seed {}\n", job.output.string(), p.width, p.height, StepsText(p),
        p.cfg, p.seed);
  Print(stream, "  prompt {}{}{} + denoise {} ({}) + decode {}; peak memory {:.0f} MB\n",
        HumanSeconds(p.seconds.encode_prompt), p.prompt_from_cache ? " (cached)" : "",
        p.source ? " + pictures " + HumanSeconds(p.seconds.encode_pictures) : "",
        HumanSeconds(p.seconds.denoise), DenoiseDetails(p), HumanSeconds(p.seconds.decode),
        static_cast<double>(MemoryInUse().peak) / 1e6);
  PrintSource(stream, p);
  PrintLoras(stream, pipeline, p);
}

void PrintJson(const Job& job, const Picture& p, Json record, const StartSeconds& start,
               const Pipeline& pipeline) {
  record["file"] = job.output.string();
  record["prompt_tokens"] = p.prompt_tokens;
  record["prompt_truncated"] = p.prompt_truncated;
  record["prompt_from_cache"] = p.prompt_from_cache;
  record["steps_estimated"] = p.steps_estimated;
  record["steps_resumed"] = p.steps_resumed;
  record["steps_run"] = p.steps_run;
  if (p.source) record["source"] = SourceJson(p);
  if (!p.notes.empty()) record["notes"] = p.notes;
  record["threads"] = pipeline.threads();
  if (Json kernels = KernelsJson(pipeline); !kernels.is_null()) record["kernels"] = std::move(kernels);
  if (Json weights = WeightsJson(pipeline); !weights.is_null()) record["weights"] = std::move(weights);
  record["seconds"] = {{"load", start.load},
                       {"encode_prompt", p.seconds.encode_prompt},
                       {"encode_pictures", p.seconds.encode_pictures},
                       {"denoise", p.seconds.denoise},
                       {"per_step", SecondsPerStep(p)},
                       {"decode", p.seconds.decode}};
  if (start.start_to_first_step) record["seconds"]["start_to_first_step"] = *start.start_to_first_step;
  record["peak_memory_bytes"] = MemoryInUse().peak;
  Print(stdout, "{}\n", draw::RecordText(record));
}

}  // namespace qwen_image::cli
