#include "parity/report/tools.h"

#include <fmt/format.h>

#include <map>

#include "files/text.h"
#include "parity/compare/criterion.h"
#include "parity/record/level.h"

namespace qwen_image::report {
namespace {

Json StatsJson(const compare::TensorStats& s) {
  return {{"shape", s.shape}, {"dtype", s.dtype}, {"min", s.min}, {"max", s.max}, {"mean", s.mean},
          {"std", s.std},     {"sum", s.sum},     {"nan", s.nan}, {"inf", s.inf}, {"first", s.first}};
}

// `nmse` and `max_abs` are always there. They are null if the two tensors cannot be compared.
Json ErrorJson(const compare::TensorComparison& t) {
  if (!t.error) return {{"nmse", nullptr}, {"max_abs", nullptr}};
  const compare::ErrorStats& e = *t.error;
  Json json = {{"max_abs", e.max_abs},
               {"mean_abs", e.mean_abs},
               {"max_rel", e.max_rel},
               {"nmse", e.nmse},
               {"cosine", e.cosine},
               {"psnr", e.psnr},
               {"quantiles", {{"50", e.p50}, {"90", e.p90}, {"99", e.p99}, {"99.9", e.p999}}},
               {"worst", {{"index", e.worst}, {"ref", e.worst_ref}, {"run", e.worst_run}}},
               {"measured", compare::Measured(t.criterion, e, t.ref)}};
  if (e.max_ulp) json["max_ulp"] = *e.max_ulp;
  if (t.criterion.kind == compare::Criterion::Kind::kAllClose) json["outside"] = e.outside;
  return json;
}

Json CriterionJson(const compare::Criterion& c) {
  Json json = {{"measure", compare::NameOf(c.kind)}, {"limit", compare::LimitOf(c)}};
  if (c.kind == compare::Criterion::Kind::kAllClose) json.update({{"atol", c.atol}, {"rtol", c.rtol}});
  if (c.kind == compare::Criterion::Kind::kFloor) json.update({{"factor", c.factor}, {"floor", c.floor}});
  return json;
}

Json TensorJson(const compare::TensorComparison& t) {
  Json json = {{"name", t.name},         {"component", record::ComponentOf(t.name)},
               {"shape", t.run.shape},   {"problem", t.problem},
               {"passed", t.passed},     {"ref", StatsJson(t.ref)},
               {"run", StatsJson(t.run)}};
  json.update(ErrorJson(t));
  json.update(CriterionJson(t.criterion));
  if (!t.run_name.empty()) json["run_name"] = t.run_name;
  if (!t.ref_source.empty()) json["ref_source"] = t.ref_source;
  if (!t.run_source.empty()) json["run_source"] = t.run_source;
  for (const compare::Hint& hint : t.hints)
    json["hints"].push_back({{"kind", hint.kind},
                             {"text", hint.text},
                             {"nmse_before", hint.nmse_before},
                             {"nmse_after", hint.nmse_after}});
  return json;
}

Json PictureJson(const compare::ImageComparison& p) {
  Json json = {{"what", p.what},
               {"psnr", p.psnr},
               {"ssim", p.ssim},
               {"rmse", p.rmse},
               {"max_levels", p.max_levels},
               {"ref_mean", p.ref_mean},
               {"ref_std", p.ref_std},
               {"run_mean", p.run_mean},
               {"run_std", p.run_std},
               {"problem", p.problem}};
  if (!p.note.empty()) json["note"] = p.note;
  if (p.passed) json["passed"] = *p.passed;
  return json;
}

std::string XmlEscaped(std::string_view text) {
  std::string escaped;
  for (const char c : Printable(text, 2000)) {
    switch (c) {
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '&':
        escaped += "&amp;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

struct JUnitCase {
  std::string name;
  std::string failure;  // empty: passed
};

std::string FailureText(const compare::TensorComparison& t) {
  if (t.passed) return "";
  if (!t.error) return t.problem;
  std::string text = fmt::format("max_abs {:.3e}, NMSE {:.3e}, cosine {:.6f}; expected {}", t.error->max_abs,
                                 t.error->nmse, t.error->cosine, compare::Describe(t.criterion));
  if (t.run.nan || t.ref.nan)
    text += fmt::format("; NaN: {} in the run, {} in the reference", t.run.nan, t.ref.nan);
  for (const compare::Hint& hint : t.hints) text += "; hint: " + hint.text;
  return text;
}

}  // namespace

Json ReportJson(const compare::Comparison& c) {
  Json checkpoints = Json::array(), pictures = Json::array(), manifests = Json::array();
  for (const compare::TensorComparison& t : c.tensors) checkpoints.push_back(TensorJson(t));
  for (const compare::ImageComparison& p : c.pictures) pictures.push_back(PictureJson(p));
  for (const compare::ManifestDifference& d : c.manifest_differences)
    manifests.push_back({{"key", d.key}, {"ref", d.ref}, {"run", d.run}, {"fatal", d.fatal}});
  const compare::TensorComparison* first = c.first_divergence();
  return {{"passed", c.passed()},
          {"first_divergence", first ? Json(first->name) : Json()},
          {"undumped", c.undumped},
          {"order", compare::NameOf(c.order)},
          {"checkpoints", checkpoints},
          {"missing", c.missing},
          {"extra", c.extra},
          {"pictures", pictures},
          {"manifest_differences", manifests},
          {"notes", c.notes}};
}

std::string ReportJUnit(const compare::Comparison& c) {
  std::map<std::string, std::vector<JUnitCase>> suites;
  for (const compare::TensorComparison& t : c.tensors)
    suites[record::ComponentOf(t.name)].push_back({t.name, FailureText(t)});
  for (const std::string& name : c.missing)
    suites[record::ComponentOf(name)].push_back({name, "missing: in the reference only"});
  for (const std::string& name : c.extra)
    suites[record::ComponentOf(name)].push_back({name, "extra: not in the reference"});
  for (const compare::ImageComparison& p : c.pictures) {
    if (!p.passed) continue;
    suites["picture"].push_back(
        {p.what, *p.passed           ? ""
                 : p.problem.empty() ? fmt::format("PSNR {:.2f} dB, largest error {:.3g} levels{}{}", p.psnr,
                                                   p.max_levels, p.note.empty() ? "" : "; ", p.note)
                                     : p.problem});
  }
  if (suites.empty()) suites["comparison"].push_back({"comparison", "nothing was compared"});
  std::string xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n";
  for (const auto& [component, cases] : suites) {
    size_t failures = 0;
    for (const JUnitCase& test : cases) failures += !test.failure.empty();
    xml += fmt::format("<testsuite name=\"{}\" tests=\"{}\" failures=\"{}\">\n", XmlEscaped(component),
                       cases.size(), failures);
    for (const JUnitCase& test : cases) {
      xml +=
          fmt::format("<testcase classname=\"{}\" name=\"{}\"", XmlEscaped(component), XmlEscaped(test.name));
      xml += test.failure.empty()
                 ? "/>\n"
                 : fmt::format("><failure message=\"{}\"/></testcase>\n", XmlEscaped(test.failure));
    }
    xml += "</testsuite>\n";
  }
  return xml + "</testsuites>\n";
}

}  // namespace qwen_image::report
