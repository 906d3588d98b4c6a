#include "parity/report/html_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>

#include "parity/record/level.h"
#include "parity/report/html_text.h"

namespace qwen_image::report {
namespace {

constexpr double kWidth = 1000, kLeft = 62, kRight = 990, kTop = 22, kBottom = 270;
constexpr double kHeight = 300;
constexpr size_t kColors = 6;  // .c0 … .c5 of the style sheet

// NMSE on a logarithmic axis. Zero has a line of its own below, NaN one above.
class NmseAxis {
 public:
  explicit NmseAxis(const std::vector<double>& values) {
    for (const double v : values) {
      if (!(v > 0) || std::isinf(v)) continue;
      low_ = std::min(low_, std::floor(std::log10(v)));
      high_ = std::max(high_, std::ceil(std::log10(v)));
    }
    low_ = std::max(low_, -18.0);
    high_ = std::min(high_, 12.0);
    if (low_ > high_) low_ = high_;
  }

  double Y(double nmse) const {
    if (!std::isfinite(nmse)) return kTop + 4;
    if (nmse <= 0) return kBottom - 4;
    const double place = (std::clamp(std::log10(nmse), low_, high_) - low_) / std::max(1.0, high_ - low_);
    return kBottom - 22 - place * (kBottom - 22 - kTop - 22);
  }

  std::string Svg() const {
    std::string svg;
    const auto line = [&](double y, std::string_view label) {
      svg += fmt::format(
          "<line class=\"grid\" x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/>"
          "<text class=\"tick\" x=\"{3}\" y=\"{4:.1f}\">{5}</text>",
          kLeft, kRight, y, kLeft - 6, y + 4, label);
    };
    const double step = std::max(1.0, std::ceil((high_ - low_) / 8));
    for (double decade = low_; decade <= high_; decade += step)
      line(Y(std::pow(10, decade)), fmt::format("1e{:.0f}", decade));
    line(Y(0), "equal");
    line(Y(std::nan("")), "NaN");
    return svg;
  }

 private:
  double low_ = -2, high_ = 0;
};

double NmseOf(const compare::TensorComparison& t) { return t.error ? t.error->nmse : std::nan(""); }

std::string OpenSvg(std::string_view id, std::string_view label, size_t points) {
  return fmt::format(
      "<div class=\"chart\"><svg id=\"{}\" role=\"img\" aria-label=\"{}\" viewBox=\"0 0 {} {}\" "
      "data-left=\"{}\" "
      "data-right=\"{}\" data-points=\"{}\">",
      id, label, kWidth, kHeight, kLeft, kRight, points);
}

std::string LegendEntry(std::string_view css_class, std::string_view text) {
  return fmt::format("<span><i class=\"{}\"></i>{}</span>", css_class, text);
}

// The part of the run that a checkpoint lies in: "transformer/step000", "vae". Empty for boundaries.
std::string_view PassOf(std::string_view name) {
  const size_t slash = name.rfind('/');
  return slash == name.npos ? std::string_view() : name.substr(0, slash);
}

class NetworkChart {
 public:
  explicit NetworkChart(const compare::Comparison& comparison) : c_(comparison), axis_(ValuesOf(comparison)) {
    for (const compare::TensorComparison& t : c_.tensors) {
      const std::string component = record::ComponentOf(t.name);
      if (colors_.size() < kColors - 1) {
        colors_.try_emplace(component, colors_.size());
      } else {
        colors_.try_emplace(component, kColors - 1);  // all other components share the last colour
      }
    }
  }

  std::string Svg() const {
    return OpenSvg("network", "NMSE of every checkpoint in the order of the run", c_.tensors.size()) +
           axis_.Svg() + Passes() + Limits() + Curve() + Points() + "</svg></div>" + Legend();
  }

 private:
  static std::vector<double> ValuesOf(const compare::Comparison& c) {
    std::vector<double> values;
    for (const compare::TensorComparison& t : c.tensors) {
      values.push_back(NmseOf(t));
      if (const auto limit = LimitOf(t)) values.push_back(*limit);
    }
    return values;
  }

  // The limit as NMSE. Other criteria cannot be drawn on this scale.
  static std::optional<double> LimitOf(const compare::TensorComparison& t) {
    if (t.criterion.kind == compare::Criterion::Kind::kNmse) return t.criterion.limit;
    if (t.criterion.kind == compare::Criterion::Kind::kFloor)
      return t.criterion.factor * t.criterion.factor * t.criterion.floor;
    return {};
  }

  double X(double i) const {
    return kLeft + (kRight - kLeft) * (i + 0.5) / static_cast<double>(c_.tensors.size());
  }
  double X(size_t i) const { return X(static_cast<double>(i)); }

  std::string Curve() const {
    std::string path;
    for (size_t i = 0; i < c_.tensors.size(); ++i)
      path += fmt::format("{}{:.1f} {:.1f}", i == 0 ? 'M' : 'L', X(i), axis_.Y(NmseOf(c_.tensors[i])));
    return fmt::format("<path class=\"curve\" d=\"{}\"/>", path);
  }

  std::string Points() const {
    std::map<size_t, std::string> paths;
    std::string failed;
    for (size_t i = 0; i < c_.tensors.size(); ++i) {
      const compare::TensorComparison& t = c_.tensors[i];
      const std::string point = fmt::format("M{:.1f} {:.1f}h0", X(i), axis_.Y(NmseOf(t)));
      paths[colors_.at(record::ComponentOf(t.name))] += point;
      if (!t.passed) failed += point;
    }
    std::string svg;
    if (!failed.empty()) svg += fmt::format("<path class=\"dots failed\" d=\"{}\"/>", failed);
    for (const auto& [color, path] : paths)
      svg += fmt::format("<path class=\"dots c{}\" d=\"{}\"/>", color, path);
    return svg;
  }

  std::string Limits() const {
    std::string path;
    for (size_t i = 0; i < c_.tensors.size(); ++i) {
      const auto limit = LimitOf(c_.tensors[i]);
      if (!limit) continue;
      path += fmt::format("M{:.1f} {:.1f}H{:.1f}", X(static_cast<double>(i) - 0.5), axis_.Y(*limit),
                          X(static_cast<double>(i) + 0.5));
    }
    return path.empty() ? "" : fmt::format("<path class=\"limit\" d=\"{}\"/>", path);
  }

  std::string Passes() const {
    std::string svg;
    for (size_t begin = 0; begin < c_.tensors.size();) {
      const std::string_view pass = PassOf(c_.tensors[begin].name);
      size_t end = begin + 1;
      while (end < c_.tensors.size() && PassOf(c_.tensors[end].name) == pass) ++end;
      const double width = X(end) - X(begin);
      if (!pass.empty() && width > 40) {
        svg += fmt::format("<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/>",
                           X(static_cast<double>(begin) - 0.5), kTop - 12, kBottom);
        const auto letters = static_cast<size_t>(width / 6.5);
        svg += fmt::format("<text class=\"pass\" x=\"{:.1f}\" y=\"{}\">{}</text>", X(begin) + 2, kTop - 8,
                           HtmlText(pass.substr(0, std::max<size_t>(letters, 4)), 60));
      }
      begin = end;
    }
    return svg;
  }

  std::string Legend() const {
    std::map<size_t, std::string> names;
    for (const auto& [component, color] : colors_) {
      std::string& text = names[color];
      text = text.empty() ? HtmlText(component, 40) : "others";
    }
    std::string html;
    for (const auto& [color, text] : names) html += LegendEntry(fmt::format("c{}", color), text);
    html += LegendEntry("failed", "failed");
    if (!Limits().empty()) html += LegendEntry("limit", "limit, where it is one of NMSE");
    return "<p class=\"legend\">" + html + "</p>";
  }

  const compare::Comparison& c_;
  NmseAxis axis_;
  std::map<std::string, size_t> colors_;
};

}  // namespace

std::string NetworkCurve(const compare::Comparison& comparison) {
  return comparison.tensors.empty() ? "" : NetworkChart(comparison).Svg();
}

std::string StepCurve(const compare::Comparison& comparison) {
  std::map<int64_t, const compare::TensorComparison*> velocities, latents;
  const compare::TensorComparison* last = nullptr;
  for (const compare::TensorComparison& t : comparison.tensors) {
    if (const auto step = record::NumberAfter(t.name, "noise_pred_step")) velocities[*step] = &t;
    if (const auto step = record::NumberAfter(t.name, "packed_latents_step")) latents[*step] = &t;
    if (t.name == "final_latents_packed") last = &t;
  }
  if (last) latents[latents.empty() ? 0 : latents.rbegin()->first + 1] = last;
  if (velocities.size() + latents.size() < 3) return "";

  std::vector<double> values;
  int64_t steps = 1;
  for (const auto* series : {&velocities, &latents}) {
    for (const auto& [step, t] : *series) values.push_back(NmseOf(*t));
    if (!series->empty()) steps = std::max(steps, series->rbegin()->first);
  }
  const NmseAxis axis(values);
  const auto x_of = [&](int64_t step) {
    return kLeft + 20 + (kRight - kLeft - 40) * static_cast<double>(step) / static_cast<double>(steps);
  };
  std::string svg = OpenSvg("steps", "NMSE along the steps", 0) + axis.Svg();
  size_t color = 0;
  for (const auto* series : {&velocities, &latents}) {
    std::string path, dots, failed;
    for (const auto& [step, t] : *series) {
      const double x = x_of(step), y = axis.Y(NmseOf(*t));
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? 'M' : 'L', x, y);
      if (!t->passed) failed += fmt::format("M{:.1f} {:.1f}h0", x, y);
      dots += fmt::format(
          "<circle class=\"point c{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"><title>{}: NMSE "
          "{}</title></circle>",
          color, x, y, HtmlText(t->name), HtmlNumber(NmseOf(*t)));
    }
    svg += fmt::format("<path class=\"curve c{}\" d=\"{}\"/><path class=\"dots failed wide\" d=\"{}\"/>{}",
                       color, path, failed, dots);
    ++color;
  }
  for (int64_t step = 0; step <= steps; step += std::max<int64_t>(1, steps / 10)) {
    const bool is_final = last && step == latents.rbegin()->first;
    svg += fmt::format("<text class=\"pass middle\" x=\"{:.1f}\" y=\"{}\">{}</text>", x_of(step),
                       kBottom + 16, is_final ? "final" : std::to_string(step));
  }
  return svg + "</svg></div><p class=\"legend\">" + LegendEntry("c0", "noise_pred_stepN") +
         LegendEntry("c1", "packed_latents_stepN, then final_latents_packed") +
         LegendEntry("failed", "failed") + "</p>";
}

std::string SeriesCurve(std::string_view id, std::string_view label, const std::vector<ErrorSeries>& all) {
  std::vector<double> values;
  int64_t last = 1;
  for (const ErrorSeries& series : all) {
    for (const auto& [number, nmse] : series.points) {
      values.push_back(nmse);
      last = std::max(last, number);
    }
  }
  if (values.empty()) return "";
  const NmseAxis axis(values);
  const auto x_of = [&](int64_t number) {
    return kLeft + 20 + (kRight - kLeft - 40) * static_cast<double>(number) / static_cast<double>(last);
  };
  std::string svg = OpenSvg(id, label, values.size()) + axis.Svg(), legend;
  for (size_t i = 0; i < all.size(); ++i) {
    const size_t color = i % kColors;
    std::string path, dots;
    for (const auto& [number, nmse] : all[i].points) {
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? 'M' : 'L', x_of(number), axis.Y(nmse));
      dots += fmt::format(
          "<circle class=\"point c{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"><title>{} {}: NMSE "
          "{}</title></circle>",
          color, x_of(number), axis.Y(nmse), HtmlText(all[i].name), number, HtmlNumber(nmse));
    }
    svg += fmt::format("<path class=\"curve c{}\" d=\"{}\"/>{}", color, path, dots);
    legend += LegendEntry(fmt::format("c{}", color), HtmlText(all[i].name));
  }
  for (int64_t number = 0; number <= last; number += std::max<int64_t>(1, last / 10))
    svg += fmt::format("<text class=\"pass middle\" x=\"{:.1f}\" y=\"{}\">{}</text>", x_of(number),
                       kBottom + 16, number);
  return svg + "</svg></div><p class=\"legend\">" + legend + "</p>";
}

}  // namespace qwen_image::report
