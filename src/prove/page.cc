#include "prove/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "parity/report/html_charts.h"
#include "parity/report/html_text.h"

namespace qwen_image::prove {
namespace {

using report::HtmlNumber;
using report::HtmlSection;
using report::HtmlText;

constexpr size_t kLongText = 2000;

std::string TextIn(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

double NumberIn(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number() ? found->get<double>() : std::nan("");
}

std::string Gigabytes(double bytes) {
  return bytes >= 1e8 ? fmt::format("{:.1f}&nbsp;GB", bytes / 1e9)
                      : fmt::format("{:.1f}&nbsp;MB", bytes / 1e6);
}

std::string Seconds(double seconds) {
  if (std::isnan(seconds)) return "";
  return fmt::format("{:.{}f}&nbsp;s", seconds, seconds < 100 ? 2 : 0);
}

// Cells are HTML.
class HtmlTable {
 public:
  HtmlTable(std::initializer_list<const char*> titles) {
    for (const char* title : titles) head_ += fmt::format("<th>{}</th>", title);
  }
  void Add(std::initializer_list<std::string> cells, bool bad = false) {
    body_ += bad ? "<tr class=\"bad\">" : "<tr>";
    for (const std::string& cell : cells) body_ += "<td>" + cell + "</td>";
    body_ += "</tr>\n";
  }
  std::string Html() const {
    if (body_.empty()) return "";
    return "<div class=\"scroll\"><table><thead><tr>" + head_ + "</tr></thead><tbody>\n" + body_ +
           "</tbody></table></div>";
  }

 private:
  std::string head_, body_;
};

std::string Status(const Json& part) {
  const std::string status = TextIn(part, "status");
  return fmt::format("<span class=\"{}\" style=\"white-space:nowrap\">{}</span>",
                     status == kPassed   ? "good"
                     : status == kFailed ? "bad"
                                         : "dim",
                     HtmlText(status));
}

std::string Why(const Json& part) {
  const std::string why = TextIn(part, "why");
  return why.empty() ? "" : fmt::format("<p>{}: {}</p>", Status(part), HtmlText(why, kLongText));
}

std::string DoctorHtml(const Json& part) {
  std::string html = Why(part);
  if (part.contains("what")) html += fmt::format("<p>{}</p>", HtmlText(TextIn(part, "what")));
  HtmlTable parts({"part", "size", "parameters", "stored as", ""});
  for (const Json& piece : part.value("parts", Json::array())) {
    std::string formats;
    for (const auto& [format, bytes] : piece.at("formats").items())
      formats += fmt::format("{}{} {}", formats.empty() ? "" : ", ", HtmlText(format), Gigabytes(bytes));
    parts.Add({HtmlText(TextIn(piece, "name")), Gigabytes(NumberIn(piece, "bytes")),
               fmt::format("{:.2f} M", NumberIn(piece, "parameters") / 1e6), formats,
               HtmlText(TextIn(piece, "text"))},
              TextIn(piece, "health") == "broken");
  }
  HtmlTable findings({"", "about", ""});
  for (const Json& finding : part.value("findings", Json::array()))
    findings.Add({HtmlText(TextIn(finding, "health")), HtmlText(TextIn(finding, "subject")),
                  HtmlText(TextIn(finding, "text"), kLongText)},
                 TextIn(finding, "health") == "broken");
  HtmlTable sizes({"picture", "memory", "", "a step, estimated"});
  for (const Json& size : part.value("pictures", Json::array()))
    sizes.Add({fmt::format("{}×{}", NumberIn(size, "width"), NumberIn(size, "height")),
               Gigabytes(NumberIn(size, "memory")), size.value("fits", false) ? "fits" : "does not fit",
               Seconds(NumberIn(size, "seconds_per_step"))});
  return html + parts.Html() + findings.Html() + sizes.Html();
}

std::string MachineHtml(const Json& part) {
  HtmlTable table({"", ""});
  for (const char* key : {"processor", "instruction_set", "system", "kernel", "version", "engine"})
    table.Add({key, HtmlText(TextIn(part, key))});
  table.Add({"processors, threads",
             fmt::format("{}, {}", NumberIn(part, "processors"), NumberIn(part, "threads"))});
  table.Add({"memory, available",
             Gigabytes(NumberIn(part, "memory")) + ", " + Gigabytes(NumberIn(part, "available_memory"))});
  return Why(part) + table.Html();
}

std::string LoadingHtml(const Json& part) {
  if (!part.contains("seconds")) return Why(part);
  HtmlTable files({"part", "file", "size", "fingerprint"});
  for (const Json& piece : part.value("parts", Json::array())) {
    for (const Json& file : piece.at("files"))
      files.Add({HtmlText(TextIn(piece, "name")), HtmlText(TextIn(file, "name")),
                 Gigabytes(NumberIn(file, "bytes")), HtmlText(TextIn(file, "fingerprint").substr(0, 16))});
  }
  return Why(part) +
         fmt::format("<p>Loaded in {}; {} of memory were in use then.</p>",
                     Seconds(NumberIn(part, "seconds")), Gigabytes(NumberIn(part, "resident"))) +
         files.Html();
}

// A curve and a table of the blocks; a curve of the steps.
std::string ErrorsHtml(const Json& part) {
  if (!part.contains("blocks")) return "";
  std::vector<report::ErrorSeries> blocks, steps;
  const auto add = [](std::vector<report::ErrorSeries>& all, const std::string& name, double x, double nmse) {
    auto series = std::find_if(all.begin(), all.end(), [&](const auto& s) { return s.name == name; });
    if (series == all.end()) series = all.insert(all.end(), {name, {}});
    series->points.emplace_back(static_cast<int64_t>(x), nmse);
  };
  HtmlTable table({"block", "NMSE alone", "NMSE gathered", "min", "max", "rms", "NaN, Inf", ""});
  for (const Json& row : part["blocks"]) {
    const std::string stream = TextIn(row, "stream"), of = stream.empty() ? "" : " " + stream;
    const double block = NumberIn(row, "block"), nan = NumberIn(row, "nan"), inf = NumberIn(row, "inf");
    add(blocks, "block alone" + of, block, NumberIn(row, "isolated"));
    add(blocks, "gathered" + of, block, NumberIn(row, "accumulated"));
    table.Add({fmt::format("{}{}", block, HtmlText(of)), HtmlNumber(NumberIn(row, "isolated")),
               HtmlNumber(NumberIn(row, "accumulated")), HtmlNumber(NumberIn(row, "min"), 4),
               HtmlNumber(NumberIn(row, "max"), 4), HtmlNumber(NumberIn(row, "rms"), 4),
               fmt::format("{}, {}", nan, inf), row.value("unusual", false) ? "beyond the known range" : ""},
              nan + inf > 0);
  }
  for (const Json& row : part["steps"]) add(steps, "velocity", NumberIn(row, "step"), NumberIn(row, "nmse"));
  const bool identical = part.value("identical", false);
  const std::string all =
      fmt::format("<details{}><summary>All blocks, and what values they have</summary>{}</details>",
                  identical ? " open" : "", table.Html());
  if (identical) return all;  // curves would be empty
  const std::string name = TextIn(part, "name");
  return "<h3>NMSE of each transformer block, the worst of all steps</h3>" +
         report::SeriesCurve(name + "-blocks", "NMSE of each transformer block", blocks) +
         "<h3>NMSE of the velocity at each step</h3>" +
         report::SeriesCurve(name + "-steps", "NMSE of the velocity at each step", steps) + all;
}

std::string PictureErrorHtml(const Json& part) {
  const auto picture = part.find("picture");
  if (picture == part.end()) return "";
  const double psnr = NumberIn(*picture, "psnr"), levels = NumberIn(*picture, "max_levels");
  if (levels == 0) return "<p>The two pictures are identical.</p>";
  return fmt::format("<p>The two pictures: PSNR {} dB, SSIM {}, at most {} of 255 levels apart.</p>",
                     HtmlNumber(psnr, 4), HtmlNumber(NumberIn(*picture, "ssim"), 4), HtmlNumber(levels));
}

std::string VerdictHtml(const Json& part, const char* key, const char* what) {
  const auto verdict = part.find(key);
  if (verdict == part.end()) return "";
  std::string html = fmt::format("<p>{}: {} tensors, {} beyond their limits, {} missing, {} extra", what,
                                 NumberIn(*verdict, "tensors"), NumberIn(*verdict, "failed"),
                                 NumberIn(*verdict, "missing"), NumberIn(*verdict, "extra"));
  if (const auto near = verdict->find("nearest_to_its_limit"); near != verdict->end())
    html += fmt::format("; nearest to its limit, or furthest beyond: <code>{}</code> with NMSE {} ({})",
                        HtmlText(TextIn(*near, "name")), HtmlNumber(NumberIn(*near, "nmse")),
                        HtmlText(TextIn(*near, "limit")));
  return html + ".</p>";
}

std::string PrecisionsHtml(const Json& part) {
  std::string html = Why(part);
  if (!part.contains("blocks")) return html;
  if (part.value("identical", false))
    html +=
        "<p>Fast and exact compute the same bits with this model: none of its layers is computed in 8 "
        "bits.</p>";
  const Json& drawn = part["drawn"];
  html += fmt::format(
      "<p>{}×{}, {} steps without guidance; exact took {}, fast {} (both while tensors were "
      "recorded).</p>",
      NumberIn(drawn["fast"], "width"), NumberIn(drawn["fast"], "height"), NumberIn(drawn["fast"], "steps"),
      Seconds(NumberIn(drawn["exact"]["seconds"], "all")),
      Seconds(NumberIn(drawn["fast"]["seconds"], "all")));
  html += VerdictHtml(part, "isolated", "Each block from the same inputs");
  return html + PictureErrorHtml(part) + ErrorsHtml(part);
}

std::string DiffusersHtml(const Json& part) {
  std::string html = Why(part);
  if (!part.contains("blocks")) return html;
  std::string versions;
  for (const auto& [name, version] : part["versions"].items())
    versions += fmt::format(", {} {}", HtmlText(name), HtmlText(version.get<std::string>()));
  html += fmt::format("<p>{} in {}{}; {}×{}, {} steps.</p>", HtmlText(TextIn(part, "pipeline")),
                      HtmlText(TextIn(part, "dtype")), versions, NumberIn(part["drawn"], "width"),
                      NumberIn(part["drawn"], "height"), NumberIn(part["drawn"], "steps"));
  return html + VerdictHtml(part, "isolated", "Each block from diffusers' inputs") +
         VerdictHtml(part, "accumulated", "The run by itself") + PictureErrorHtml(part) + ErrorsHtml(part);
}

std::string PicturesHtml(const Json& part, const std::vector<ReportPicture>& pictures) {
  HtmlTable table({"picture", "", "size", "steps", "cfg", "prompt", "pictures in", "steps", "a step",
                   "decode", "peak memory"});
  for (const Json& entry : part.value("pictures", Json::array())) {
    if (!entry.contains("seconds")) {
      table.Add({HtmlText(TextIn(entry, "file")),
                 Status(entry) + ": " + HtmlText(TextIn(entry, "why"), kLongText)});
      continue;
    }
    double peak = 0;
    for (const auto& [stage, bytes] : entry["memory"]["peak"].items())
      peak = std::max(peak, bytes.get<double>());
    const Json& seconds = entry["seconds"];
    table.Add({HtmlText(TextIn(entry, "file")), Status(entry),
               fmt::format("{}×{}", NumberIn(entry, "width"), NumberIn(entry, "height")),
               HtmlNumber(NumberIn(entry, "steps")), HtmlNumber(NumberIn(entry, "cfg")),
               Seconds(NumberIn(seconds, "encode_prompt")), Seconds(NumberIn(seconds, "encode_pictures")),
               Seconds(NumberIn(seconds, "denoise")), Seconds(NumberIn(entry, "seconds_per_step")),
               Seconds(NumberIn(seconds, "decode")), Gigabytes(peak)});
  }
  std::string figures;
  for (const ReportPicture& picture : pictures) {
    const std::string file = HtmlText(picture.file);
    const char* css_class = picture.image.has_alpha() ? "picture clear" : "picture";
    figures += fmt::format("<figure>{}<figcaption>{}</figcaption></figure>",
                           report::HtmlImage(picture.image, file, css_class), file);
  }
  return Why(part) + table.Html() + (figures.empty() ? "" : "<div class=\"pictures\">" + figures + "</div>");
}

std::string PartHtml(const Json& part, const Report& report) {
  const std::string name = TextIn(part, "name");
  if (name == "doctor") return DoctorHtml(part);
  if (name == "machine") return MachineHtml(part);
  if (name == "loading") return LoadingHtml(part);
  if (name == "precisions") return PrecisionsHtml(part);
  if (name == "pictures") return PicturesHtml(part, report.pictures);
  return DiffusersHtml(part);
}

}  // namespace

std::string PageHtml(const Report& report) {
  const Json& document = report.document;
  HtmlTable summary({"part", "", "time", ""});
  std::string sections;
  for (const Json& part : document.at("parts")) {
    const std::string title = HtmlText(TextIn(part, "title"));
    summary.Add(
        {title, Status(part), Seconds(NumberIn(part, "part_seconds")), HtmlText(TextIn(part, "why"))});
    sections += HtmlSection(title, PartHtml(part, report));
  }
  const bool passed = report.passed();
  const std::string header = fmt::format(
      "<header><h1><span class=\"badge{}\">{}</span> qwen-image {} on a model</h1><p class=\"dim\">By "
      "qwen-image "
      "prove{}. Prompts and seeds are the program's own; folders of the user are left out.</p></header>",
      passed ? " good" : "", passed ? "passed" : "FAILED", HtmlText(TextIn(document, "version")),
      document.value("quick", false) ? " --quick" : "");
  return report::HtmlPage("qwen-image prove", header + summary.Html() + sections);
}

}  // namespace qwen_image::prove
