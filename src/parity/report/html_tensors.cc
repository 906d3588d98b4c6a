#include "parity/report/html_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "parity/report/html_text.h"

namespace qwen_image::report {
namespace {

constexpr int64_t kMostCells = 128;  // a side
constexpr int64_t kPiece = 65536;    // elements read at once

// The axes of a tensor that are the map's rows and columns. Other axes are reduced to their maximum.
struct MapLayout {
  int64_t rows = 1, columns = 1;
  std::string caption;

  explicit MapLayout(const compare::TensorComparison& t) {
    const Shape& shape = t.ref.shape;
    const size_t rank = shape.size();
    const bool is_picture = rank >= 4 && (t.name.starts_with("vae") || t.name == "image");
    size_t first = 0;
    while (first < rank && shape[first] == 1) ++first;
    if (is_picture) {
      rows = shape[rank - 2];
      columns = shape[rank - 1];
      caption = fmt::format("rows: axis {} ({}), columns: axis {} ({}), largest over the other axes",
                            rank - 2, rows, rank - 1, columns);
    } else if (first + 1 < rank) {
      rows = shape[first];
      for (size_t a = first + 1; a < rank; ++a) columns *= shape[a];
      caption = fmt::format("rows: axis {} ({}), columns: {} ({})", first, rows,
                            first + 2 == rank ? fmt::format("axis {}", first + 1)
                                              : fmt::format("axes {} to {}", first + 1, rank - 1),
                            columns);
    } else {
      columns = ElementCount(shape);
      caption = fmt::format("columns: axis {} ({})", first, columns);
    }
  }
  int64_t cell_rows() const { return std::min(rows, kMostCells); }
  int64_t cell_columns() const { return std::min(columns, kMostCells); }
  size_t CellOf(int64_t i) const {
    const int64_t row = i / columns % rows, column = i % columns;
    return static_cast<size_t>(row * cell_rows() / rows * cell_columns() + column * cell_columns() / columns);
  }
};

// Counts of |error| by quarters of a decade, 1e-20 to 1e20.
class ErrorHistogram {
 public:
  void Take(double error) {
    if (!(error > 0)) {
      ++equal_;
      return;
    }
    const double place = std::clamp(4 * (std::log10(error) + 20), 0.0, 159.0);
    ++counts_[static_cast<size_t>(place)];
  }
  const std::array<int64_t, 160>& counts() const { return counts_; }
  int64_t equal() const { return equal_; }

 private:
  std::array<int64_t, 160> counts_{};
  int64_t equal_ = 0;
};

constexpr size_t kValueBins = 60;

class ValueHistogram {
 public:
  ValueHistogram(double low, double high) : low_(low), high_(high) {}
  void Take(double value) {
    if (!std::isfinite(value)) return;
    const double place = high_ > low_ ? (value - low_) / (high_ - low_) * kValueBins : 0;
    ++counts_[static_cast<size_t>(std::clamp(place, 0.0, kValueBins - 1.0))];
  }
  const std::array<int64_t, kValueBins>& counts() const { return counts_; }

 private:
  double low_, high_;
  std::array<int64_t, kValueBins> counts_{};
};

struct Findings {
  explicit Findings(const compare::TensorComparison& t)
      : layout(t),
        low(std::min(t.ref.min, t.run.min)),
        high(std::max(t.ref.max, t.run.max)),
        ref(low, high),
        run(low, high),
        cells(static_cast<size_t>(layout.cell_rows() * layout.cell_columns())) {}

  void Take(int64_t i, double want, double got) {
    ref.Take(want);
    run.Take(got);
    const double difference = want == got || (std::isnan(want) && std::isnan(got)) ? 0 : std::abs(got - want);
    double& cell = cells[layout.CellOf(i)];
    if (!std::isfinite(difference)) {
      cell = difference;
      return;
    }
    error.Take(difference);
    largest = std::max(largest, difference);
    if (std::isfinite(cell)) cell = std::max(cell, difference);
  }

  MapLayout layout;
  double low, high;
  ErrorHistogram error;
  ValueHistogram ref, run;
  std::vector<double> cells;  // the largest |error|; not finite if that of an element is not
  double largest = 0;         // of the finite ones
};

Findings ReadFindings(const compare::TensorComparison& t, const record::TensorSet& ref,
                      const record::TensorInfo& want, const record::TensorSet& run,
                      const record::TensorInfo& got) {
  Findings findings(t);
  std::vector<double> a(kPiece), b(kPiece);
  for (int64_t begin = 0; begin < want.count; begin += kPiece) {
    const int64_t count = std::min(kPiece, want.count - begin);
    ref.Read(want, begin, count, a.data());
    run.Read(got, begin, count, b.data());
    for (int64_t i = 0; i < count; ++i)
      findings.Take(begin + i, a[static_cast<size_t>(i)], b[static_cast<size_t>(i)]);
  }
  return findings;
}

// From black over red to pale yellow; `place` in 0…1.
std::array<uint8_t, 3> Heat(double place) {
  constexpr std::array<std::array<double, 3>, 5> kStops = {
      {{8, 6, 30}, {90, 20, 110}, {190, 55, 80}, {248, 145, 20}, {253, 253, 170}}};
  const double at = std::clamp(place, 0.0, 1.0) * (kStops.size() - 1);
  const size_t stop = std::min<size_t>(static_cast<size_t>(at), kStops.size() - 2);
  std::array<uint8_t, 3> color{};
  for (size_t c = 0; c < 3; ++c) {
    const double mixed =
        kStops[stop][c] + (kStops[stop + 1][c] - kStops[stop][c]) * (at - static_cast<double>(stop));
    color[c] = static_cast<uint8_t>(mixed + 0.5);
  }
  return color;
}

constexpr double kDecades = 4;  // the range of the colours
constexpr std::array<uint8_t, 3> kNoNumber = {0, 200, 220};

std::string HeatMap(const Findings& f) {
  Image image{f.layout.cell_columns(), f.layout.cell_rows(), {}};
  for (const double cell : f.cells) {
    const double place = cell > 0 ? 1 + std::log10(cell / f.largest) / kDecades : 0;
    const std::array<uint8_t, 3> color = std::isfinite(cell) ? Heat(place) : kNoNumber;
    image.pixels.insert(image.pixels.end(), color.begin(), color.end());
  }
  const bool broken = std::any_of(f.cells.begin(), f.cells.end(), [](double c) { return !std::isfinite(c); });
  return fmt::format(
      "<figure>{}<figcaption>Largest |error| of each cell; {}.<br><span class=\"heat\"></span> {} … {}, "
      "logarithmic{}</figcaption></figure>",
      HtmlImage(image, "heat map of the error", "map"), f.layout.caption, HtmlNumber(f.largest * 1e-4, 2),
      HtmlNumber(f.largest, 2), broken ? "; turquoise: NaN or infinite" : "");
}

constexpr double kChartWidth = 360, kChartHeight = 150, kChartBottom = 126;

double BarHeight(int64_t count, int64_t most) {  // logarithmic: tails matter
  return count > 0 ? 6 + (kChartBottom - 16) * std::log1p(count) / std::log1p(most) : 0;
}

std::string ChartText(double x, std::string_view anchor, std::string_view text) {
  return fmt::format("<text class=\"pass {}\" x=\"{:.1f}\" y=\"{}\">{}</text>", anchor, x, kChartBottom + 16,
                     text);
}

std::string OpenHistogram(std::string_view label) {
  return fmt::format("<figure><svg class=\"histogram\" role=\"img\" aria-label=\"{}\" viewBox=\"0 0 {} {}\">",
                     label, kChartWidth, kChartHeight);
}

std::string ErrorHistogramHtml(const ErrorHistogram& histogram) {
  const auto& counts = histogram.counts();
  size_t first = 0, last = counts.size();
  while (first < last && counts[first] == 0) ++first;
  while (last > first && counts[last - 1] == 0) --last;
  if (first == last) return "";
  first = first / 4 * 4;
  last = std::min(counts.size(), (last + 3) / 4 * 4);
  const int64_t most = *std::max_element(counts.begin(), counts.end());
  const double width = kChartWidth / static_cast<double>(last - first);
  std::string svg = OpenHistogram("histogram of the error");
  for (size_t i = first; i < last; ++i) {
    const double height = BarHeight(counts[i], most);
    if (height > 0)
      svg += fmt::format(
          "<rect class=\"bar\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"><title>{} "
          "elements around {:.1e}</title></rect>",
          static_cast<double>(i - first) * width, kChartBottom - height, std::max(1.0, width - 1), height,
          counts[i], std::pow(10, (static_cast<double>(i) + 0.5) / 4 - 20));
  }
  const auto decade = [](size_t bin) { return fmt::format("1e{}", static_cast<int>(bin / 4) - 20); };
  svg += ChartText(0, "start", decade(first)) + ChartText(kChartWidth, "end", decade(last));
  const std::string equal =
      histogram.equal() > 0 ? fmt::format("; {} elements are equal", histogram.equal()) : "";
  return svg + "</svg><figcaption>|error| (logarithmic, counts too)" + equal + "</figcaption></figure>";
}

std::string ValueHistogramHtml(const Findings& f) {
  int64_t most = 1;
  for (const auto* h : {&f.ref, &f.run})
    most = std::max(most, *std::max_element(h->counts().begin(), h->counts().end()));
  std::string svg = OpenHistogram("histogram of the values");
  for (const auto* h : {&f.ref, &f.run}) {
    const double width = kChartWidth / kValueBins;
    std::string path = fmt::format("M0 {}", kChartBottom);
    for (size_t i = 0; i < kValueBins; ++i)
      path += fmt::format("V{:.1f}H{:.1f}", kChartBottom - BarHeight(h->counts()[i], most),
                          static_cast<double>(i + 1) * width);
    svg += fmt::format("<path class=\"values {}\" d=\"{}V{}\"/>", h == &f.ref ? "ref" : "run", path,
                       kChartBottom);
  }
  svg += ChartText(0, "start", HtmlNumber(f.low)) + ChartText(kChartWidth, "end", HtmlNumber(f.high));
  return svg +
         "</svg><figcaption>Values (counts logarithmic): <span class=\"legend\"><span><i "
         "class=\"c0\"></i>reference</span>"
         "<span><i class=\"c1\"></i>run</span></span></figcaption></figure>";
}

}  // namespace

std::string TensorHtml(const compare::TensorComparison& t, const record::TensorSet& ref,
                       const record::TensorSet& run) {
  const record::TensorInfo *want = ref.Find(t.name), *got = run.Find(t.name);
  if (!t.error || !want || !got || want->count == 0 || want->shape != got->shape ||
      want->shape != t.ref.shape)
    return "";
  const Findings findings = ReadFindings(t, ref, *want, run, *got);
  return fmt::format(
      "<article><h3>{} <small>{}</small></h3><p class=\"{}\">{}: NMSE {}, max |error| {}, cosine {}</p>"
      "<div class=\"figures\">{}{}{}</div></article>",
      HtmlText(t.name), ToString(t.ref.shape), t.passed ? "good" : "bad", t.passed ? "passed" : "failed",
      HtmlNumber(t.error->nmse), HtmlNumber(t.error->max_abs), HtmlNumber(t.error->cosine, 6),
      HeatMap(findings), ErrorHistogramHtml(findings.error), ValueHistogramHtml(findings));
}

}  // namespace qwen_image::report
