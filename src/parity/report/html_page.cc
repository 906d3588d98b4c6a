#include "parity/report/html_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "files/output_file.h"
#include "parity/compare/criterion.h"
#include "parity/report/html_charts.h"
#include "parity/report/html_pictures.h"
#include "parity/report/html_style.h"
#include "parity/report/html_tensors.h"
#include "parity/report/html_text.h"
#include "parity/report/text.h"

namespace qwen_image::report {
namespace {

constexpr size_t kMostNamesOnPage = 100;  // as many missing tensors are named, and as many extra ones
constexpr size_t kTensorsInDetail = 6;    // with heat maps and histograms
constexpr size_t kHintBytes = 2000;

class HtmlReport {
 public:
  HtmlReport(const compare::Comparison& comparison, const record::TensorSet* ref,
             const record::TensorSet* run)
      : c_(comparison), ref_(ref), run_(run) {}

  std::string Write() const {
    const compare::TensorComparison* first = c_.first_divergence();
    const std::string title = c_.passed() ? "Runs agree" : Failed() > 0 ? "Runs part" : "Comparison failed";
    const std::string body = Header() + FirstDivergence(first, UndumpedText(c_)) + FurtherHints(first) +
                             HtmlSection("Missing and extra tensors", Names()) +
                             HtmlSection("Error along the network", NetworkCurve(c_)) +
                             HtmlSection("Error along the steps", StepCurve(c_)) +
                             HtmlSection("Pictures", PicturesHtml(c_, ref_, run_)) +
                             HtmlSection(DetailsTitle(), Details()) +
                             HtmlSection("Differences between the manifests", Manifests()) +
                             HtmlSection("All checkpoints", Table()) + "<div id=\"tip\" hidden></div>";
    return HtmlPage(title, body, kHtmlScript);
  }

 private:
  int64_t Failed() const { return c_.failed(); }

  std::string Header() const {
    std::string html = fmt::format(
        "<header><h1><span class=\"badge{}\">{}</span> {} checkpoints compared, {} failed, {} missing, {} "
        "extra</h1>"
        "<p>Reference: <code>{}</code><br>Run: <code>{}</code></p>",
        c_.passed() ? " good" : "", c_.passed() ? "passed" : "FAILED", c_.tensors.size(), Failed(),
        c_.missing.size(), c_.extra.size(), HtmlText(c_.ref_path.string(), 1000),
        HtmlText(c_.run_path.string(), 1000));
    if (c_.ref_manifest.is_object()) {
      const auto prompt = c_.ref_manifest.find("prompt");
      if (prompt != c_.ref_manifest.end() && prompt->is_string())
        html += fmt::format("<p>Prompt: <code>{}</code></p>", HtmlText(prompt->get<std::string>(), 1000));
    }
    if (const std::string unknown = UnknownOrderText(c_); !unknown.empty())
      html += fmt::format("<p class=\"bad\"><b>Order unknown</b>: {}</p>", HtmlText(unknown, 1000));
    if (c_.tensors.empty() && c_.pictures.empty()) html += "<p class=\"bad\">Nothing was compared.</p>";
    for (const std::string& note : c_.notes)
      html += fmt::format("<p class=\"dim\">{}</p>", HtmlText(note, 1000));
    return html + "</header>\n";
  }

  static std::string HintHtml(const compare::Hint& hint) {
    return fmt::format("<div class=\"hint\"><b>{}</b><br>{}</div>", HtmlText(hint.kind),
                       HtmlText(hint.text, kHintBytes));
  }

  static std::string FirstDivergence(const compare::TensorComparison* t, const std::string& undumped) {
    if (!t) return "";
    std::string html =
        fmt::format("<section class=\"panel\"><h2>First divergence: <code>{}</code></h2>", HtmlText(t->name));
    if (!t->run_name.empty())
      html += fmt::format("<p>Called <code>{}</code> in the run.</p>", HtmlText(t->run_name));
    if (!t->problem.empty()) html += fmt::format("<p class=\"bad\">{}</p>", HtmlText(t->problem, 1000));
    for (const compare::Hint& hint : t->hints) html += HintHtml(hint);
    if (!undumped.empty())
      html += fmt::format("<p><b>Dump these</b>: {}</p>", HtmlText(undumped, kHintBytes));
    if (t->error) html += ErrorHtml(*t);
    return html + SidesHtml(*t) + "</section>\n";
  }

  static std::string ErrorHtml(const compare::TensorComparison& t) {
    const compare::ErrorStats& e = *t.error;
    std::string html = fmt::format(
        "<p>Must be {}. Error: NMSE {}, max {}, mean {}, max relative {}, cosine {}, PSNR {} dB{}. Quantiles "
        "of |error|: "
        "50 % {}, 90 % {}, 99 % {}, 99.9 % {}.</p>",
        HtmlText(compare::Describe(t.criterion)), HtmlNumber(e.nmse), HtmlNumber(e.max_abs),
        HtmlNumber(e.mean_abs), HtmlNumber(e.max_rel), HtmlNumber(e.cosine, 8), HtmlNumber(e.psnr, 4),
        e.max_ulp ? fmt::format(", {} ULP", HtmlNumber(*e.max_ulp)) : "", HtmlNumber(e.p50),
        HtmlNumber(e.p90), HtmlNumber(e.p99), HtmlNumber(e.p999));
    if (e.worst >= 0)
      html += fmt::format("<p>Worst element: {}, {} in the run, {} in the reference.</p>",
                          CoordinatesOf(e.worst, t.ref.shape), HtmlNumber(e.worst_run, 9),
                          HtmlNumber(e.worst_ref, 9));
    return html;
  }

  static std::string SidesHtml(const compare::TensorComparison& t) {
    std::string rows;
    for (const auto& [label, s] : {std::pair("reference", &t.ref), std::pair("run", &t.run)}) {
      std::string first;
      for (const double value : s->first) first += HtmlNumber(value, 6) + " ";
      rows += fmt::format(
          "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</"
          "td><td>{} / {}</td></tr>"
          "<tr><td></td><td class=\"values10\" colspan=\"8\">{}</td></tr>",
          label, ToString(s->shape), HtmlText(s->dtype), HtmlNumber(s->min, 5), HtmlNumber(s->max, 5),
          HtmlNumber(s->mean, 5), HtmlNumber(s->std, 5), HtmlNumber(s->sum, 5), s->nan, s->inf, first);
    }
    return "<div "
           "class=\"scroll\"><table><thead><tr><th></th><th>shape</th><th>type</th><th>min</th><th>max</"
           "th><th>mean</th>"
           "<th>std</th><th>sum</th><th>NaN / Inf</th></tr></thead><tbody>" +
           rows + "</tbody></table></div>";
  }

  std::string FurtherHints(const compare::TensorComparison* first) const {
    std::string html;
    for (const compare::TensorComparison& t : c_.tensors) {
      if (&t == first || t.hints.empty()) continue;
      html += fmt::format("<h3>{}</h3>", HtmlText(t.name));
      for (const compare::Hint& hint : t.hints) html += HintHtml(hint);
    }
    return html.empty()
               ? ""
               : "<details><summary>Hints for further tensors (they may only carry the first one's error)"
                 "</summary>" +
                     html + "</details>\n";
  }

  std::string Names() const {
    std::string html;
    for (const auto& [label, names] : {std::pair("Missing: in the reference only", &c_.missing),
                                       std::pair("Extra: in the run only", &c_.extra)}) {
      if (names->empty()) continue;
      html += fmt::format("<p class=\"bad\">{} ({})</p><ul>", label, names->size());
      for (size_t i = 0; i < std::min(names->size(), kMostNamesOnPage); ++i)
        html += fmt::format("<li><code>{}</code></li>", HtmlText((*names)[i]));
      if (names->size() > kMostNamesOnPage)
        html += fmt::format("<li>and {} more</li>", names->size() - kMostNamesOnPage);
      html += "</ul>";
    }
    return html;
  }

  const char* DetailsTitle() const {
    return Failed() > 0 ? "The worst tensors" : "The tensors nearest to their limits";
  }

  // The first divergence, then the failed tensors with the largest errors. If none failed: those nearest to
  // their limits.
  std::vector<const compare::TensorComparison*> InDetail() const {
    std::vector<const compare::TensorComparison*> chosen;
    const bool any_failed = Failed() > 0;
    for (const compare::TensorComparison& t : c_.tensors) {
      if (t.error && (!any_failed || !t.passed)) chosen.push_back(&t);
    }
    const auto badness = [any_failed](const compare::TensorComparison* t) {
      const double value = any_failed ? t->error->nmse : Severity(*t);
      return std::isnan(value) ? INFINITY : value;
    };
    if (chosen.size() > 1)
      std::stable_sort(chosen.begin() + (any_failed ? 1 : 0), chosen.end(),
                       [&](const auto* a, const auto* b) { return badness(a) > badness(b); });
    chosen.resize(std::min(chosen.size(), kTensorsInDetail));
    return chosen;
  }

  std::string Details() const {
    std::string html;
    if (!ref_ || !run_) return html;
    for (const compare::TensorComparison* t : InDetail()) html += TensorHtml(*t, *ref_, *run_);
    return html;
  }

  std::string Manifests() const {
    if (c_.manifest_differences.empty()) return "";
    std::string rows;
    for (const compare::ManifestDifference& d : c_.manifest_differences)
      rows += fmt::format("<tr{}><td>{}</td><td>{}</td><td>{}</td></tr>", d.fatal ? " class=\"bad\"" : "",
                          HtmlText(d.key), HtmlText(d.ref, 1000), HtmlText(d.run, 1000));
    return "<div "
           "class=\"scroll\"><table><thead><tr><th></th><th>reference</th><th>run</th></tr></thead><tbody>" +
           rows + "</tbody></table></div>";
  }

  std::string Table() const {
    if (c_.tensors.empty()) return "";
    std::string html =
        "<div class=\"controls\"><input type=\"search\" id=\"find\" placeholder=\"part of a name\" "
        "aria-label=\"part of a "
        "name\"><label><input type=\"checkbox\" id=\"bad\"> failed only</label><span id=\"shown\" "
        "class=\"dim\"></span></div>"
        "<div class=\"scroll\"><table id=\"tensors\"><thead><tr><th><button>name</button></th><th "
        "class=\"wide-only\">"
        "<button>shape</button></th><th class=\"wide-only\"><button>type</button></th><th "
        "data-number=\"1\"><button>max "
        "|error|</button></th><th data-number=\"1\"><button>NMSE</button></th><th class=\"wide-only\" "
        "data-number=\"1\"><button>cosine</button></th><th><button>verdict</button></th></tr></"
        "thead><tbody>\n";
    for (const compare::TensorComparison& t : c_.tensors) {
      const std::string type = t.ref.dtype == t.run.dtype ? t.ref.dtype : t.ref.dtype + "/" + t.run.dtype;
      const auto figure = [&](double compare::ErrorStats::*member, int digits) {
        return t.error ? HtmlNumber((*t.error).*member, digits) : std::string("–");
      };
      html += fmt::format(
          "<tr{}><td>{}</td><td class=\"wide-only\">{}</td><td "
          "class=\"wide-only\">{}</td><td>{}</td><td>{}</td><td "
          "class=\"wide-only\">{}</td><td>{}</td></tr>\n",
          t.passed ? "" : " class=\"f\"", HtmlText(t.name), ToString(t.ref.shape), HtmlText(type),
          figure(&compare::ErrorStats::max_abs, 3), figure(&compare::ErrorStats::nmse, 3),
          figure(&compare::ErrorStats::cosine, 7),
          t.passed             ? "ok"
          : !t.problem.empty() ? HtmlText(t.problem)
                               : "failed");
    }
    return html + "</tbody></table></div>";
  }

  const compare::Comparison& c_;
  const record::TensorSet *ref_, *run_;  // null for two pictures
};

void WriteReport(const std::filesystem::path& path, const compare::Comparison& comparison,
                 const record::TensorSet* ref, const record::TensorSet* run) {
  const std::string html = HtmlReport(comparison, ref, run).Write();
  OutputFile file(path);
  file.Write(html.data(), html.size());
  file.Commit();
}

}  // namespace

void WriteHtmlReport(const std::filesystem::path& file, const compare::Comparison& comparison,
                     const record::TensorSet& ref, const record::TensorSet& run) {
  WriteReport(file, comparison, &ref, &run);
}

void WriteHtmlReport(const std::filesystem::path& file, const compare::Comparison& comparison) {
  WriteReport(file, comparison, nullptr, nullptr);
}

}  // namespace qwen_image::report
