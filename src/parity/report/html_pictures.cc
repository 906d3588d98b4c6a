#include "parity/report/html_pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <optional>

#include "files/colour.h"
#include "parity/hints/causes.h"
#include "parity/report/html_text.h"
#include "qwen_image/error.h"

namespace qwen_image::report {
namespace {

constexpr int64_t kLargestSide = 640;  // on the page

// [1, 3 or 4, h, w] or [3 or 4, h, w] in −1…1
std::optional<Image> FromTensor(const record::TensorSet& set) {
  const record::TensorInfo* info = set.Find("image");
  if (!info || info->shape.size() < 3 || info->count > hints::kMaxHintElements || info->count == 0) return {};
  const size_t rank = info->shape.size();
  const int64_t height = info->shape[rank - 2], width = info->shape[rank - 1], area = height * width;
  const int64_t channels = info->shape[rank - 3];
  if (info->count != channels * area || (channels != 3 && channels != 4)) return {};
  const std::vector<float> values = set.ReadAll(*info);
  Image image{width, height, std::vector<uint8_t>(values.size()), channels};
  for (int64_t i = 0; i < channels * area; ++i) {
    const float unit = values[static_cast<size_t>(i % channels * area + i / channels)] * 0.5f + 0.5f;
    // NaN becomes black: it fails every comparison
    image.pixels[static_cast<size_t>(i)] =
        unit >= 0 ? static_cast<uint8_t>(std::nearbyint(std::min(unit, 1.0f) * 255)) : uint8_t{0};
  }
  return image;
}

std::optional<Image> FromFile(const std::filesystem::path& path) {
  const std::filesystem::path file = path.extension() == ".png" ? path : path / "image.png";
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) return {};
  try {
    return ReadPng(file, Transparency::kKept);
  } catch (const Error&) {  // the report is about the tensors, so a broken picture is left out
    return {};
  }
}

// Channel c of a block of pixels as one value. Differences take the maximum. Pictures take the mean, in which
// a colour counts by its alpha.
uint8_t OfBlock(const Image& image, int64_t x, int64_t y, int64_t block, int64_t c, bool maximum) {
  int64_t sum = 0, weights = 0, most = 0;
  for (int64_t v = y * block; v < std::min(image.height, (y + 1) * block); ++v) {
    for (int64_t u = x * block; u < std::min(image.width, (x + 1) * block); ++u) {
      const uint8_t* pixel = image.pixels.data() + (v * image.width + u) * image.channels;
      const int64_t weight = image.has_alpha() && c < 3 ? pixel[3] : 1;
      sum += weight * pixel[c];
      weights += weight;
      most = std::max<int64_t>(most, pixel[c]);
    }
  }
  if (maximum || weights == 0) return static_cast<uint8_t>(most);
  return static_cast<uint8_t>((sum + weights / 2) / weights);
}

// Shrinks a picture: a block of pixels becomes one pixel.
Image Shrunk(const Image& image, bool maximum) {
  const int64_t block = (std::max(image.width, image.height) + kLargestSide - 1) / kLargestSide;
  if (block <= 1) return image;
  Image small{(image.width + block - 1) / block, (image.height + block - 1) / block, {}, image.channels};
  for (int64_t y = 0; y < small.height; ++y) {
    for (int64_t x = 0; x < small.width; ++x) {
      for (int64_t c = 0; c < image.channels; ++c)
        small.pixels.push_back(OfBlock(image, x, y, block, c, maximum));
    }
  }
  return small;
}

std::string Figure(const Image& image, std::string_view caption) {
  const char* css_class = image.has_alpha() ? "picture clear" : "picture";
  return fmt::format("<figure>{}<figcaption>{}</figcaption></figure>", HtmlImage(image, caption, css_class),
                     caption);
}

// The difference of some channels, as a picture without alpha. `what` is "difference", or more.
std::string DifferenceFigure(const Image& ref, const Image& run, std::initializer_list<size_t> channels,
                             std::string_view what) {
  Image difference{ref.width, ref.height, {}};
  const auto stride = static_cast<size_t>(ref.channels);
  int most = 0;
  for (size_t i = 0; i < ref.pixels.size(); i += stride) {
    for (const size_t c : channels) {
      const int levels = std::abs(ref.pixels[i + c] - run.pixels[i + c]);
      difference.pixels.push_back(static_cast<uint8_t>(levels));
      most = std::max(most, levels);
    }
  }
  const int factor = most > 0 ? 255 / most : 1;
  for (uint8_t& value : difference.pixels) value = static_cast<uint8_t>(value * factor);
  const std::string caption =
      most == 0 ? fmt::format("no {}", what)
                : fmt::format("{} × {} (the largest is {} of 255 levels)", what, factor, most);
  return Figure(Shrunk(difference, true), caption);
}

std::string DifferenceFigures(const Image& ref, const Image& run) {
  if (ref.width != run.width || ref.height != run.height) return "";
  if (!ref.has_alpha() && !run.has_alpha()) return DifferenceFigure(ref, run, {0, 1, 2}, "difference");
  const Image a = WithChannels(ref, 4), b = WithChannels(run, 4);
  return DifferenceFigure(a, b, {0, 1, 2}, "difference of the colours") +
         DifferenceFigure(a, b, {3, 3, 3}, "difference of alpha");
}

std::string FiguresTable(const std::vector<compare::ImageComparison>& pictures) {
  std::string rows;
  for (const compare::ImageComparison& p : pictures) {
    if (!p.problem.empty()) {
      rows +=
          fmt::format("<tr><td>{}</td><td colspan=\"5\">{}</td></tr>", HtmlText(p.what), HtmlText(p.problem));
      continue;
    }
    std::string channels;
    for (size_t c = 0; c < std::min<size_t>(4, p.ref_mean.size()); ++c) {
      channels +=
          fmt::format("{}{}: {} ± {}, {} ± {}", c ? "<br>" : "", "RGBA"[c], HtmlNumber(p.ref_mean[c], 4),
                      HtmlNumber(p.ref_std[c], 4), HtmlNumber(p.run_mean[c], 4), HtmlNumber(p.run_std[c], 4));
    }
    rows += fmt::format("<tr><td>{}</td><td>{} dB</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                        HtmlText(p.note.empty() ? p.what : p.what + "; " + p.note), HtmlNumber(p.psnr, 4),
                        HtmlNumber(p.ssim, 5), HtmlNumber(p.rmse), HtmlNumber(p.max_levels), channels);
  }
  if (rows.empty()) return "";
  return "<div class=\"scroll\"><table><thead><tr><th>compared as</th><th>PSNR</th><th>SSIM</th><th>RMSE, "
         "levels</th>"
         "<th>largest, levels</th><th>mean ± std: reference, run</th></tr></thead><tbody>" +
         rows + "</tbody></table></div>";
}

}  // namespace

std::string PicturesHtml(const compare::Comparison& comparison, const record::TensorSet* ref,
                         const record::TensorSet* run) {
  std::optional<Image> ref_image, run_image;
  if (ref && run) {
    ref_image = FromTensor(*ref);
    run_image = FromTensor(*run);
  }
  if (!ref_image || !run_image) {
    ref_image = FromFile(comparison.ref_path);
    run_image = FromFile(comparison.run_path);
  }
  std::string html;
  if (ref_image && run_image) {
    html = "<div class=\"pictures\">" + Figure(Shrunk(*ref_image, false), "reference") +
           Figure(Shrunk(*run_image, false), "run") + DifferenceFigures(*ref_image, *run_image) + "</div>";
  }
  return html + FiguresTable(comparison.pictures);
}

}  // namespace qwen_image::report
