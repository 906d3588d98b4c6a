#include "model/image_processor.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "core/fail.h"
#include "files/colour.h"
#include "files/json.h"
#include "kernels/resize.h"
#include "kernels/tasks.h"
#include "weights/config_reader.h"

namespace qwen_image {
namespace {

int64_t CutToScaleFactor(int64_t side) {
  if (side < kVaeScaleFactor) {
    Fail(ErrorKind::kUsage, "a side of {} pixels is too short: the models need at least {}", side,
         kVaeScaleFactor);
  }
  return side - side % kVaeScaleFactor;
}

Tensor BinaryMask(const GreyImage& grey) {
  Tensor mask({1, 1, grey.height, grey.width});
  // 127 / 255 is below a half, 128 / 255 above it.
  for (size_t i = 0; i < grey.pixels.size(); ++i) {
    mask[static_cast<int64_t>(i)] = grey.pixels[i] >= 128 ? 1.0f : 0.0f;
  }
  return mask;
}

// Python's round(a / b): halves go to the even neighbour.
int64_t RoundedQuotient(int64_t a, int64_t b) {
  return static_cast<int64_t>(std::nearbyint(static_cast<double>(a) / static_cast<double>(b)));
}

std::array<double, 3> ReadTriple(const ConfigReader& config, const char* key,
                                 std::array<double, 3> fallback) {
  if (!config.Has(key)) return fallback;
  const std::vector<double> values = config.Numbers(key);
  if (values.size() != 3) {
    Fail(ErrorKind::kBadInput, "{}: {} holds {} values, expected one for each of 3 colours", config.where(),
         key, values.size());
  }
  return {values[0], values[1], values[2]};
}

void RefuseOtherProcessors(const ConfigReader& config) {
  for (const char* key : {"do_resize", "do_rescale", "do_normalize"}) {
    if (!config.Bool(key, true)) {
      Fail(ErrorKind::kBadInput, "{}: {} is false, which Qwen2-VL's image processor is never run with",
           config.where(), key);
    }
  }
  constexpr int64_t kBicubic = 3;  // PIL.Image.Resampling.BICUBIC
  if (const int64_t resample = config.Int("resample", 0, 100, kBicubic); resample != kBicubic) {
    Fail(ErrorKind::kBadInput, "{}: resample is {}, expected {} (bicubic)", config.where(), resample,
         kBicubic);
  }
}

VisionProcessorConfig ParseConfig(const ConfigReader& config, VisionProcessorConfig c) {
  RefuseOtherProcessors(config);
  // A picture becomes 24 bytes a pixel, so this bounds what a config can make us allocate.
  constexpr int64_t kMaxPixels = 1 << 24;
  if (config.Has("size")) {
    const ConfigReader size = config.Object("size");
    c.min_pixels = size.Int("shortest_edge", 1, kMaxPixels, c.min_pixels);
    c.max_pixels = size.Int("longest_edge", 1, kMaxPixels, c.max_pixels);
  }
  c.min_pixels = config.Int("min_pixels", 1, kMaxPixels, c.min_pixels);
  c.max_pixels = config.Int("max_pixels", 1, kMaxPixels, c.max_pixels);
  c.patch_size = config.Int("patch_size", 1, 32, c.patch_size);
  c.temporal_patch_size = config.Int("temporal_patch_size", 1, 4, c.temporal_patch_size);
  c.merge_size = config.Int("merge_size", 1, 4, c.merge_size);
  c.rescale_factor = config.Number("rescale_factor", c.rescale_factor);
  c.image_mean = ReadTriple(config, "image_mean", c.image_mean);
  c.image_std = ReadTriple(config, "image_std", c.image_std);
  if (c.min_pixels > c.max_pixels) {
    Fail(ErrorKind::kBadInput, "{}: at least {} and at most {} pixels cannot both be", config.where(),
         c.min_pixels, c.max_pixels);
  }
  if (std::any_of(c.image_std.begin(), c.image_std.end(), [](double std) { return !(std > 0); })) {
    Fail(ErrorKind::kBadInput, "{}: image_std holds a value that is not positive", config.where());
  }
  return c;
}

// What each of 256 levels becomes, per colour, in the reference's precision: the product in double, the rest
// in float.
std::array<std::array<float, 256>, 3> NormalizedLevels(const VisionProcessorConfig& config) {
  std::array<std::array<float, 256>, 3> levels;
  for (size_t c = 0; c < 3; ++c) {
    const auto mean = static_cast<float>(config.image_mean[c]), std = static_cast<float>(config.image_std[c]);
    for (size_t level = 0; level < 256; ++level) {
      const auto rescaled = static_cast<float>(static_cast<double>(level) * config.rescale_factor);
      levels[c][level] = (rescaled - mean) / std;
    }
  }
  return levels;
}

}  // namespace

Tensor PreprocessForVae(const Image& image, int64_t width, int64_t height, ThreadPool& pool) {
  width = CutToScaleFactor(width);
  height = CutToScaleFactor(height);
  const Image resized = Resize(image, width, height, ResizeFilter::kLanczos, pool);
  std::array<float, 256> levels;
  for (size_t i = 0; i < levels.size(); ++i) levels[i] = 2.0f * (static_cast<float>(i) / 255.0f) - 1.0f;
  const int64_t area = width * height, channels = image.channels;
  Tensor out({1, channels, height, width});
  ForPieces(area, channels * static_cast<int64_t>(sizeof(float)), pool, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const uint8_t* pixel = resized.pixels.data() + channels * i;
      for (int64_t c = 0; c < channels; ++c) out[c * area + i] = levels[pixel[c]];
    }
  });
  return out;
}

Tensor PreprocessMask(const GreyImage& mask, int64_t width, int64_t height, ThreadPool& pool) {
  return BinaryMask(
      Resize(mask, CutToScaleFactor(width), CutToScaleFactor(height), ResizeFilter::kLanczos, pool));
}

Image OverWhite(Image image) { return Flatten(std::move(image)); }

VisionProcessorConfig ReadVisionProcessorConfig(const std::filesystem::path& folder,
                                                const VisionProcessorConfig& defaults) {
  const std::filesystem::path nested = folder / "processor_config.json";
  if (std::filesystem::exists(nested)) {
    const Json json = ReadJsonFile(nested);
    const ConfigReader config(json, nested.string());
    if (config.Has("image_processor")) return ParseConfig(config.Object("image_processor"), defaults);
  }
  const std::filesystem::path plain = folder / "preprocessor_config.json";
  if (!std::filesystem::exists(plain)) return defaults;
  const Json json = ReadJsonFile(plain);
  return ParseConfig(ConfigReader(json, plain.string()), defaults);
}

ImageSize SmartResize(ImageSize size, const VisionProcessorConfig& config) {
  constexpr double kMaxRatio = 200;
  const auto width = static_cast<double>(size.width), height = static_cast<double>(size.height);
  if (!(std::max(width, height) / std::max(std::min(width, height), 1.0) <= kMaxRatio) || size.width < 1 ||
      size.height < 1) {
    Fail(ErrorKind::kBadInput,
         "a picture of {}x{} is too long for the vision encoder: its sides may differ by a factor of {}",
         size.width, size.height, kMaxRatio);
  }
  const int64_t factor = config.patch_size * config.merge_size;
  const auto step = static_cast<double>(factor);
  const ImageSize rounded = {RoundedQuotient(size.width, factor) * factor,
                             RoundedQuotient(size.height, factor) * factor};
  const int64_t area = rounded.width * rounded.height;
  if (area > config.max_pixels) {
    const double shrink = std::sqrt(height * width / static_cast<double>(config.max_pixels));
    const auto side = [&](double length) {
      return std::max(factor, static_cast<int64_t>(std::floor(length / shrink / step)) * factor);
    };
    return {side(width), side(height)};
  }
  if (area < config.min_pixels) {
    const double grow = std::sqrt(static_cast<double>(config.min_pixels) / (height * width));
    const auto side = [&](double length) {
      return static_cast<int64_t>(std::ceil(length * grow / step)) * factor;
    };
    return {side(width), side(height)};
  }
  return rounded;
}

VisionPatches PreprocessForVision(const Image& image, const VisionProcessorConfig& config, ThreadPool& pool) {
  const ImageSize size = SmartResize({image.width, image.height}, config);
  const Image resized = Resize(image, size.width, size.height, ResizeFilter::kBicubic, pool);
  const auto levels = NormalizedLevels(config);
  const int64_t patch = config.patch_size, merge = config.merge_size, frames = config.temporal_patch_size;
  const int64_t grid_h = size.height / patch, grid_w = size.width / patch;
  VisionPatches out{Tensor({grid_h * grid_w, 3 * frames * patch * patch}), {1, grid_h, grid_w}};
  // A row of merged patches holds patches row by row of the picture within each group of merge × merge.
  const int64_t group = merge * merge, groups = grid_w / merge;
  pool.ParallelFor(grid_h / merge, [&](int64_t group_row) {
    for (int64_t i = 0; i < groups * group; ++i) {
      const int64_t row = group_row * merge + i % group / merge, column = i / group * merge + i % merge;
      float* to = out.pixel_values.row(group_row * groups * group + i);
      for (size_t c = 0; c < 3; ++c) {
        for (int64_t frame = 0; frame < frames; ++frame) {  // the one picture, repeated
          for (int64_t y = 0; y < patch; ++y) {
            const int64_t first = (row * patch + y) * size.width + column * patch;
            const uint8_t* from = resized.pixels.data() + 3 * first + c;
            for (int64_t x = 0; x < patch; ++x) *to++ = levels[c][from[3 * x]];
          }
        }
      }
    }
  });
  return out;
}

Tensor JoinPatches(std::span<const VisionPatches> pictures) {
  int64_t patches = 0;
  for (const VisionPatches& picture : pictures) patches += picture.pixel_values.dim(0);
  Tensor joined({patches, pictures.front().pixel_values.dim(1)});
  float* to = joined.data();
  for (const VisionPatches& picture : pictures)
    to = std::copy_n(picture.pixel_values.data(), picture.pixel_values.size(), to);
  return joined;
}

}  // namespace qwen_image
