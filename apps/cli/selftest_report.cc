#include "selftest_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "families/checkpoint_names.h"
#include "files/text.h"
#include "parity/compare/criterion.h"
#include "parity/compare/image.h"
#include "parity/record/level.h"
#include "parity/report/text.h"
#include "progress.h"
#include "text_table.h"

namespace qwen_image::cli {
namespace {

// About ten times what MLX's CPU device shows with the embedded model: pictures at 53 dB.
constexpr double kFastPsnr = 40;

std::span<const StageNames> StagesOf(const compare::Comparison& comparison) {
  std::vector<std::string> names;
  for (const compare::TensorComparison& t : comparison.tensors) names.push_back(t.name);
  return NamesFor(names).stages;
}

bool Has(const StageNames& stage, std::string_view component, std::string_view module) {
  return stage.component == component &&
         (stage.prefixes.empty() || std::any_of(stage.prefixes.begin(), stage.prefixes.end(),
                                                [&](std::string_view p) { return module.starts_with(p); }));
}

// Null for what is no device's work: tokens, noise levels, the steps between.
const StageNames* StageOf(std::span<const StageNames> stages, const std::string& checkpoint) {
  if (checkpoint == "image_latents") return nullptr;  // the pipeline draws and packs them
  std::string component = record::ComponentOf(checkpoint);
  std::string_view module = ModuleOf(checkpoint);
  if (const std::string_view maker = record::ComponentThatMakes(checkpoint); !maker.empty()) {
    component = maker;
    module = "";  // what a component returns is the work of its last stage
  }
  // Stages with prefixes come before the one that has the rest of their component.
  const auto found = std::find_if(stages.begin(), stages.end(),
                                  [&](const StageNames& stage) { return Has(stage, component, module); });
  return found == stages.end() ? nullptr : &*found;
}

std::string PictureText(const SelftestPicture& picture, const SelftestResult& result,
                        const TextStyle& style) {
  const compare::ImageComparison& d = picture.difference;
  const std::string verdict = d.passed.value_or(false) ? style.Green("ok") : style.Red("FAILED");
  if (!d.problem.empty()) return fmt::format("{}: {}: {}\n", picture.name, d.problem, verdict);
  const std::string limit = result.precision == Precision::kExact ? "at most 1 level and at least 60 dB"
                                                                  : fmt::format("at least {} dB", kFastPsnr);
  return fmt::format(
      "{}: {:.0f} of 255 levels off at most, PSNR {:.1f} dB ({} asked for): {}\n"
      "  drawn in {} on the CPU, in {} on {}\n",
      picture.name, d.max_levels, d.psnr, limit, verdict, HumanSeconds(picture.cpu_seconds),
      HumanSeconds(picture.device_seconds), NameOf(result.device.device));
}

std::string Advice(const SelftestResult& result) {
  const auto bad = std::find_if(result.stages.begin(), result.stages.end(),
                                [](const SelftestStage& stage) { return stage.failed > 0; });
  if (bad == result.stages.end())
    return "Every stage computes the right values from the CPU's inputs, and the picture is off all the "
           "same: "
           "the blocks are compiled only where no tensors are recorded, so look at that.\n";
  return fmt::format(
      "The first stage that differs is the {}, at {}. To find the operation, record the run on "
      "the CPU and search from there: docs/mlx.md tells how.\n",
      bad->name, Printable(bad->worst.name));
}

Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(); }

}  // namespace

void SelftestResult::Add(const compare::Comparison& comparison) {
  missing.insert(missing.end(), comparison.missing.begin(), comparison.missing.end());
  missing.insert(missing.end(), comparison.extra.begin(), comparison.extra.end());
  const std::span<const StageNames> known = StagesOf(comparison);
  if (stages.empty())
    for (const StageNames& stage : known) stages.push_back({.name = std::string(stage.title)});
  for (const compare::TensorComparison& compared : comparison.tensors) {
    const StageNames* names = StageOf(known, compared.name);
    if (!names) continue;
    compare::TensorComparison tensor = compared;
    if (precision == Precision::kFast && names->rounds &&
        tensor.criterion.kind == compare::Criterion::Kind::kNmse)
      compare::HoldToNmse(compare::kRoundedBlockNmse, tensor);
    const auto stage =
        std::find_if(stages.begin(), stages.end(), [&](const auto& s) { return s.name == names->title; });
    ++stage->tensors;
    stage->failed += tensor.passed ? 0 : 1;
    if (tensor.error && !(tensor.error->max_abs <= stage->max_abs)) stage->max_abs = tensor.error->max_abs;
    if (stage->tensors == 1 || report::Severity(tensor) > report::Severity(stage->worst))
      stage->worst = std::move(tensor);
  }
}

void SelftestResult::Add(SelftestPicture picture) {
  compare::ImageComparison& d = picture.difference;
  d.passed =
      precision == Precision::kExact ? compare::IsSameImage(d) : d.problem.empty() && d.psnr >= kFastPsnr;
  pictures.push_back(std::move(picture));
}

bool SelftestResult::passed() const {
  return !pictures.empty() && missing.empty() &&
         std::all_of(stages.begin(), stages.end(), [](const auto& s) { return s.failed == 0; }) &&
         std::all_of(pictures.begin(), pictures.end(), [](const auto& p) { return *p.difference.passed; });
}

std::string SelftestText(const SelftestResult& r, const TextStyle& style) {
  const std::string_view device = NameOf(r.device.device);
  std::string text =
      fmt::format("{}: {}\n{}\n\n", style.Bold(device), r.device.description,
                  r.precision == Precision::kExact ? "exact: activations in fp32, as on the CPU"
                                                   : "fast: activations in bf16, the CPU's in fp32");
  TextTable table({{"stage", false},
                   {"tensors"},
                   {"NMSE"},
                   {"largest error"},
                   {"limit", false},
                   {"", false},
                   {"nearest to its limit", false}});
  for (const SelftestStage& stage : r.stages) {
    if (stage.tensors == 0) continue;
    const auto& error = stage.worst.error;
    table.AddRow({stage.name, std::to_string(stage.tensors), error ? fmt::format("{:.1e}", error->nmse) : "-",
                  fmt::format("{:.1e}", stage.max_abs), compare::Describe(stage.worst.criterion),
                  stage.failed == 0 ? "ok" : "FAILED", Printable(stage.worst.name)});
  }
  for (const std::string& line : table.Lines()) text += line + "\n";
  text += "Every tensor was computed from the CPU's inputs, so an error belongs to its own stage.\n\n";
  for (const std::string& name : r.missing)
    text += fmt::format("{} {}: only one of the two computed it\n", style.Red("missing:"), Printable(name));
  for (const SelftestPicture& picture : r.pictures) text += PictureText(picture, r, style);
  if (!r.weights_note.empty()) text += fmt::format("weights: {}\n", r.weights_note);
  if (r.passed())
    return text + style.Green(fmt::format("\nselftest passed: {} draws what the CPU draws\n", device));
  return text + "\n" + Advice(r) + style.Red(fmt::format("selftest FAILED on {}\n", device));
}

Json SelftestJson(const SelftestResult& r) {
  Json json = {{"passed", r.passed()},
               {"device", NameOf(r.device.device)},
               {"description", r.device.description},
               {"model", r.model},
               {"precision", r.precision == Precision::kExact ? "exact" : "fast"},
               {"stages", Json::array()},
               {"pictures", Json::array()},
               {"missing", r.missing},
               {"weights", r.weights}};
  for (const SelftestStage& stage : r.stages) {
    if (stage.tensors == 0) continue;
    const auto& error = stage.worst.error;
    json["stages"].push_back({{"stage", stage.name},
                              {"tensors", stage.tensors},
                              {"failed", stage.failed},
                              {"nmse", error ? Number(error->nmse) : Json()},
                              {"max_abs", Number(stage.max_abs)},
                              {"limit", compare::Describe(stage.worst.criterion)},
                              {"nearest_to_its_limit", stage.worst.name}});
  }
  for (const SelftestPicture& picture : r.pictures) {
    const compare::ImageComparison& d = picture.difference;
    json["pictures"].push_back({{"picture", picture.name},
                                {"passed", *d.passed},
                                {"max_levels", Number(d.max_levels)},
                                {"psnr", Number(d.psnr)},  // null: equal
                                {"seconds_cpu", picture.cpu_seconds},
                                {"seconds_device", picture.device_seconds}});
  }
  return json;
}

}  // namespace qwen_image::cli
