#include "parity/html_pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "parity/hints.h"
#include "parity/html_text.h"
#include "qwen_image/error.h"

namespace qwen_image {
namespace {

constexpr int64_t kLargestSide = 640;  // on the page

// [1, 3, h, w] or [3, h, w] in −1…1
std::optional<Image> FromTensor(const TensorSet& set) {
  const TensorInfo* info = set.Find("image");
  if (!info || info->shape.size() < 3 || info->count > kMaxHintElements || info->count == 0) return {};
  const size_t rank = info->shape.size();
  const int64_t height = info->shape[rank - 2], width = info->shape[rank - 1], area = height * width;
  if (info->count != 3 * area || info->shape[rank - 3] != 3) return {};
  const std::vector<float> values = set.ReadAll(*info);
  Image image{width, height, std::vector<uint8_t>(values.size())};
  for (int64_t i = 0; i < 3 * area; ++i) {
    const float unit = values[static_cast<size_t>(i % 3 * area + i / 3)] * 0.5f + 0.5f;
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
    return ReadPng(file);
  } catch (const Error&) {  // the report is about the tensors; a broken picture beside them is left out
    return {};
  }
}

// Blocks of pixels become one: their mean, or (for differences) their maximum.
Image Shrunk(const Image& image, bool maximum) {
  const int64_t block = (std::max(image.width, image.height) + kLargestSide - 1) / kLargestSide;
  if (block <= 1) return image;
  Image small{(image.width + block - 1) / block, (image.height + block - 1) / block, {}};
  for (int64_t y = 0; y < small.height; ++y) {
    for (int64_t x = 0; x < small.width; ++x) {
      for (int64_t c = 0; c < 3; ++c) {
        int64_t sum = 0, count = 0, most = 0;
        for (int64_t v = y * block; v < std::min(image.height, (y + 1) * block); ++v) {
          for (int64_t u = x * block; u < std::min(image.width, (x + 1) * block); ++u) {
            const int64_t value = image.pixels[static_cast<size_t>((v * image.width + u) * 3 + c)];
            sum += value;
            most = std::max(most, value);
            ++count;
          }
        }
        small.pixels.push_back(static_cast<uint8_t>(maximum ? most : (sum + count / 2) / count));
      }
    }
  }
  return small;
}

std::string Figure(const Image& image, std::string_view caption) {
  return fmt::format("<figure>{}<figcaption>{}</figcaption></figure>", HtmlImage(image, caption, "picture"),
                     caption);
}

std::string DifferenceFigure(const Image& ref, const Image& run) {
  if (ref.width != run.width || ref.height != run.height) return "";
  Image difference = ref;
  int most = 0;
  for (size_t i = 0; i < ref.pixels.size(); ++i) {
    const int levels = std::abs(ref.pixels[i] - run.pixels[i]);
    difference.pixels[i] = static_cast<uint8_t>(levels);
    most = std::max(most, levels);
  }
  const int factor = most > 0 ? 255 / most : 1;
  for (uint8_t& value : difference.pixels) value = static_cast<uint8_t>(value * factor);
  const std::string caption =
      most == 0 ? std::string("no difference")
                : fmt::format("difference × {} (the largest is {} of 255 levels)", factor, most);
  return Figure(Shrunk(difference, true), caption);
}

std::string FiguresTable(const std::vector<PictureComparison>& pictures) {
  std::string rows;
  for (const PictureComparison& p : pictures) {
    if (!p.problem.empty()) {
      rows +=
          fmt::format("<tr><td>{}</td><td colspan=\"5\">{}</td></tr>", HtmlText(p.what), HtmlText(p.problem));
      continue;
    }
    std::string channels;
    for (size_t c = 0; c < std::min<size_t>(3, p.ref_mean.size()); ++c) {
      channels +=
          fmt::format("{}{}: {} ± {}, {} ± {}", c ? "<br>" : "", "RGB"[c], HtmlNumber(p.ref_mean[c], 4),
                      HtmlNumber(p.ref_std[c], 4), HtmlNumber(p.run_mean[c], 4), HtmlNumber(p.run_std[c], 4));
    }
    rows += fmt::format("<tr><td>{}</td><td>{} dB</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                        HtmlText(p.what), HtmlNumber(p.psnr, 4), HtmlNumber(p.ssim, 5), HtmlNumber(p.rmse),
                        HtmlNumber(p.max_levels), channels);
  }
  if (rows.empty()) return "";
  return "<div class=\"scroll\"><table><thead><tr><th>compared as</th><th>PSNR</th><th>SSIM</th><th>RMSE, "
         "levels</th>"
         "<th>largest, levels</th><th>mean ± std: reference, run</th></tr></thead><tbody>" +
         rows + "</tbody></table></div>";
}

}  // namespace

std::string PicturesHtml(const Comparison& comparison, const TensorSet* ref, const TensorSet* run) {
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
           Figure(Shrunk(*run_image, false), "run") + DifferenceFigure(*ref_image, *run_image) + "</div>";
  }
  return html + FiguresTable(comparison.pictures);
}

}  // namespace qwen_image
