#include "parity/report/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "files/text.h"
#include "parity/compare/criterion.h"
#include "parity/record/level.h"

namespace qwen_image::report {
namespace {

constexpr size_t kMostNamesInText = 20;  // as many missing tensors are named, and as many extra ones
constexpr size_t kMostFailures = 12;     // lines of failing tensors, unless all are asked for
constexpr size_t kMaxNameWidth = 64;

constexpr std::string_view kRed = "\x1b[31m", kGreen = "\x1b[32m", kBold = "\x1b[1m", kPlain = "\x1b[0m";

class TextReport {
 public:
  TextReport(const compare::Comparison& comparison, const ReportOptions& options)
      : c_(comparison), o_(options) {}

  std::string Write() {
    AddTable();
    AddFirstDivergence();
    AddUnknownOrder();
    AddNames("missing", c_.missing, "in the reference only");
    AddNames("extra", c_.extra, "not in the reference");
    AddPictures();
    AddManifests();
    for (const std::string& note : c_.notes) Line("note: {}", PrintableLines(note));
    AddVerdict();
    return std::move(text_);
  }

 private:
  template <typename... Args>
  void Line(fmt::format_string<Args...> format, Args&&... args) {
    text_ += fmt::format(format, std::forward<Args>(args)...) + "\n";
  }

  std::string Colored(std::string_view text, std::string_view color) const {
    return o_.color ? fmt::format("{}{}{}", color, text, kPlain) : std::string(text);
  }

  // Failed tensors in their order, then the passed ones nearest to their limits, by component.
  std::vector<const compare::TensorComparison*> Chosen() const {
    std::vector<const compare::TensorComparison*> chosen;
    if (o_.all) {
      for (const compare::TensorComparison& t : c_.tensors) chosen.push_back(&t);
      return chosen;
    }
    std::map<std::string, std::vector<const compare::TensorComparison*>> passed;
    for (const compare::TensorComparison& t : c_.tensors) {
      if (!t.passed && chosen.size() < kMostFailures) chosen.push_back(&t);
      if (t.passed) passed[record::ComponentOf(t.name)].push_back(&t);
    }
    for (auto& [component, tensors] : passed) {
      std::stable_sort(tensors.begin(), tensors.end(),
                       [](const auto* a, const auto* b) { return Severity(*a) > Severity(*b); });
      tensors.resize(std::min(tensors.size(), static_cast<size_t>(std::max<int64_t>(0, o_.worst))));
      chosen.insert(chosen.end(), tensors.begin(), tensors.end());
    }
    return chosen;
  }

  void AddTable() {
    const std::vector<const compare::TensorComparison*> chosen = Chosen();
    if (chosen.empty()) return;
    size_t name_width = 4, shape_width = 5;
    for (const compare::TensorComparison* t : chosen) {
      name_width = std::max(name_width, std::min(kMaxNameWidth, Printable(t->name).size()));
      shape_width = std::max(shape_width, ToString(t->ref.shape).size());
    }
    text_ += Colored(fmt::format("{:<{}}  {:<{}}  {:<8}  {:>9}  {:>9}  {:>11}  {}", "name", name_width,
                                 "shape", shape_width, "dtype", "max_abs", "NMSE", "cosine", "verdict"),
                     kBold) +
             "\n";
    for (const compare::TensorComparison* t : chosen) {
      const std::string dtype =
          t->ref.dtype == t->run.dtype ? t->ref.dtype : t->ref.dtype + "/" + t->run.dtype;
      const std::string figures = t->error ? fmt::format("{:>9.2e}  {:>9.2e}  {:>11.8f}", t->error->max_abs,
                                                         t->error->nmse, t->error->cosine)
                                           : fmt::format("{:>9}  {:>9}  {:>11}", "-", "-", "-");
      Line("{:<{}}  {:<{}}  {:<8}  {}  {}", Printable(t->name), name_width, ToString(t->ref.shape),
           shape_width, dtype, figures, Verdict(*t));
    }
    const std::string left_out =
        chosen.size() < c_.tensors.size()
            ? fmt::format("; {} shown{}", chosen.size(), o_.tell_of_all ? " (--all shows every one)" : "")
            : "";
    Line("{} tensors compared, {} failed{}", c_.tensors.size(), c_.failed(), left_out);
  }

  std::string Verdict(const compare::TensorComparison& t) const {
    if (!t.problem.empty()) return Colored("FAILED", kRed) + " " + PrintableLines(t.problem);
    if (t.passed) return Colored("ok", kGreen);
    return Colored("FAILED", kRed) + " " + Reason(t);
  }

  static std::string Reason(const compare::TensorComparison& t) {
    if (t.ref.nan || t.run.nan)
      return fmt::format("NaN: {} in the run, {} in the reference", t.run.nan, t.ref.nan);
    if (std::isnan(t.error->nmse)) return "an infinity on one side only";
    if (t.criterion.kind == compare::Criterion::Kind::kAllClose)
      return fmt::format("{} elements beyond {}", t.error->outside, compare::Describe(t.criterion));
    return compare::Describe(t.criterion);
  }

  void AddFirstDivergence() {
    const compare::TensorComparison* t = c_.first_divergence();
    if (!t) return;
    Line("");
    Line("{}", Colored(fmt::format("first divergence: {}", Printable(t->name)), kBold));
    if (!t->run_name.empty()) Line("  called {} in the run", Quoted(t->run_name));
    if (t->error) {
      const compare::ErrorStats& e = *t->error;
      Line("  must be    {}", compare::Describe(t->criterion));
      Line(
          "  error      max_abs {:.3e}  mean_abs {:.3e}  max_rel {:.3e}  NMSE {:.3e}  cosine {:.8f}  PSNR "
          "{:.1f} "
          "dB{}",
          e.max_abs, e.mean_abs, e.max_rel, e.nmse, e.cosine, e.psnr,
          e.max_ulp ? fmt::format("  ULP {:.0f}", *e.max_ulp) : "");
      Line("  quantiles  50 % {:.2e}  90 % {:.2e}  99 % {:.2e}  99.9 % {:.2e}", e.p50, e.p90, e.p99, e.p999);
      if (e.worst >= 0)
        Line("  worst      at {}: {:.9g} in the run, {:.9g} in the reference",
             CoordinatesOf(e.worst, t->ref.shape), e.worst_run, e.worst_ref);
    } else {
      Line("  {}", PrintableLines(t->problem));
    }
    if (!t->ref_source.empty()) Line("  ref made in {}", Printable(t->ref_source));
    if (!t->run_source.empty()) Line("  run made in {}", Printable(t->run_source));
    AddStats("ref", t->ref);
    AddStats("run", t->run);
    for (const compare::Hint& hint : t->hints)
      Line("  {} {}", Colored("hint:", kBold), PrintableLines(hint.text));
    if (const std::string undumped = UndumpedText(c_); !undumped.empty())
      Line("  {} {}", Colored("dump these:", kBold), undumped);
    Line("");
  }

  void AddUnknownOrder() {
    const std::string unknown = UnknownOrderText(c_);
    if (unknown.empty()) return;
    Line("");
    Line("{}{}", Colored("order unknown: ", kBold), unknown);
    for (const compare::TensorComparison& t : c_.tensors) {
      for (const compare::Hint& hint : t.hints)
        Line("  {} {}", Colored(fmt::format("hint for {}:", Printable(t.name)), kBold),
             PrintableLines(hint.text));
    }
    Line("");
  }

  void AddStats(std::string_view side, const compare::TensorStats& s) {
    Line("  {}        min {:.5g}  max {:.5g}  mean {:.5g}  std {:.5g}  sum {:.5g}{}", side, s.min, s.max,
         s.mean, s.std, s.sum, s.nan || s.inf ? fmt::format("  NaN {}  Inf {}", s.nan, s.inf) : "");
    std::string first;
    for (const double value : s.first) first += fmt::format(" {:.6g}", value);
    Line("             starts{}", first);
  }

  void AddNames(std::string_view what, const std::vector<std::string>& names, std::string_view why) {
    for (size_t i = 0; i < std::min(names.size(), kMostNamesInText); ++i)
      Line("{}: {} ({})", Colored(what, kRed), Printable(names[i]), why);
    if (names.size() > kMostNamesInText)
      Line("{}: and {} more", Colored(what, kRed), names.size() - kMostNamesInText);
  }

  void AddPictures() {
    for (const compare::ImageComparison& p : c_.pictures) {
      if (!p.problem.empty()) {
        Line("picture ({}): {}", p.what, PrintableLines(p.problem));
        continue;
      }
      Line("picture ({}): PSNR {:.2f} dB  SSIM {:.6f}  RMSE {:.4f} levels  largest {:.3g} levels", p.what,
           p.psnr, p.ssim, p.rmse, p.max_levels);
      if (!p.note.empty()) Line("  {}", p.note);
      for (size_t i = 0; i < p.ref_mean.size(); ++i)
        Line("  {}  mean {:.5g} in the run, {:.5g} in the reference; std {:.5g}, {:.5g}", "RGBA"[i],
             p.run_mean[i], p.ref_mean[i], p.run_std[i], p.ref_std[i]);
    }
  }

  void AddManifests() {
    for (const compare::ManifestDifference& d : c_.manifest_differences) {
      const auto said = [](const std::string& value) {
        return value.empty() ? "not said" : Printable(value, 60);
      };
      Line("{}: {} is {} in the run, {} in the reference",
           d.fatal ? Colored("other settings", kRed) : std::string("manifests"), Printable(d.key),
           said(d.run), said(d.ref));
    }
  }

  void AddVerdict() {
    if (c_.passed()) {
      Line("parity: {}", Colored("passed", kGreen));
    } else {
      Line("parity: {}{}", Colored("FAILED", kRed),
           c_.tensors.empty() && c_.pictures.empty() ? " (nothing was compared)" : "");
    }
  }

  const compare::Comparison& c_;
  const ReportOptions& o_;
  std::string text_;
};

}  // namespace

std::string UnknownOrderText(const compare::Comparison& c) {
  if (c.order != compare::Order::kUnknown || c.failed() < 2) return "";
  return fmt::format(
      "{} tensors differ, and nothing tells which of them was computed first: there is no manifest, the "
      "files "
      "are not in the order of computing, and not all of their names are this engine's. Save the reference "
      "as "
      "a .npz whose members are in that order, or give it a manifest.",
      c.failed());
}

std::string UndumpedText(const compare::Comparison& c) {
  if (c.undumped.empty()) return "";
  std::string names;
  for (size_t i = 0; i < std::min(c.undumped.size(), kMostNamesInText); ++i)
    names += (i > 0 ? ", " : "") + Printable(c.undumped[i]);
  if (c.undumped.size() > kMostNamesInText)
    names += fmt::format(" and {} more", c.undumped.size() - kMostNamesInText);
  return fmt::format(
      "{} ({} of the reference's tensors lie between the last one that both have and this one; the run lacks "
      "them)",
      names, c.undumped.size());
}

double Severity(const compare::TensorComparison& t) {
  if (!t.passed || !t.error) return std::numeric_limits<double>::infinity();
  const double limit = compare::LimitOf(t.criterion);
  return limit > 0 ? compare::Measured(t.criterion, *t.error, t.ref) / limit : 0;
}

std::string CoordinatesOf(int64_t index, const Shape& shape) {
  Shape coordinates(shape.size());
  for (size_t i = shape.size(); i-- > 0;) {
    const int64_t size = std::max<int64_t>(1, shape[i]);
    coordinates[i] = index % size;
    index /= size;
  }
  return ToString(coordinates);
}

std::string ReportText(const compare::Comparison& comparison, const ReportOptions& options) {
  return TextReport(comparison, options).Write();
}

}  // namespace qwen_image::report
