#include "files/orientation.h"

#include <algorithm>
#include <optional>

#include "files/exif.h"

namespace qwen_image {
namespace {

std::optional<uint32_t> ExifOrientation(std::string_view bytes) {
  constexpr uint32_t kOrientation = 0x0112;
  const std::optional<Exif> exif = Exif::Open(bytes);
  if (!exif) return std::nullopt;
  for (const uint64_t field : exif->Fields(exif->first_directory(), kOrientation)) {
    if (const std::optional<uint32_t> value = exif->Value(field)) return value;
  }
  return std::nullopt;
}

std::optional<uint32_t> XmpOrientation(std::string_view xmp) {
  constexpr std::string_view kName = "tiff:Orientation";
  for (size_t at = 0; (at = xmp.find(kName, at)) != xmp.npos;) {
    at += kName.size();
    std::string_view value = xmp.substr(at);  // as an attribute or an element
    if (!value.starts_with("=\"") && !value.starts_with(">")) continue;
    value.remove_prefix(value[0] == '>' ? 1 : 2);
    if (!value.empty() && value[0] >= '0' && value[0] <= '9') return value[0] - '0';
  }
  return std::nullopt;
}

}  // namespace

Orientation OrientationOf(const DecodedImage& image) {
  Orientation orientation{.source = "EXIF"};
  std::optional<uint32_t> value = ExifOrientation(image.exif);
  if (!value) {
    value = XmpOrientation(image.xmp);
    orientation.source = "XMP";
  }
  if (value && *value >= 2 && *value <= 8) orientation.value = static_cast<int>(*value);
  return orientation;
}

std::string Orientation::Note() const {
  constexpr std::string_view kDone[] = {"mirrored",
                                        "turned by 180 degrees",
                                        "mirrored top to bottom",
                                        "mirrored and turned by 90 degrees counterclockwise",
                                        "turned by 90 degrees clockwise",
                                        "mirrored and turned by 90 degrees clockwise",
                                        "turned by 90 degrees counterclockwise"};
  if (value == 1) return "";
  return std::string(kDone[value - 2]) + " as its " + std::string(source) + " data says";
}

std::vector<uint8_t> Turned(std::vector<uint8_t> pixels, int64_t width, int64_t height, int64_t channels,
                            const Orientation& orientation) {
  if (orientation.value == 1) return pixels;
  // Where the result's first pixel comes from, and how far its neighbours to the right and below are from
  // there.
  const bool from_right = orientation.value == 2 || orientation.value == 3 || orientation.value >= 7;
  const bool from_below =
      orientation.value == 3 || orientation.value == 4 || orientation.value == 6 || orientation.value == 7;
  const int64_t along_row = (from_right ? -1 : 1) * channels;
  const int64_t along_column = (from_below ? -1 : 1) * width * channels;
  const int64_t first =
      (from_below ? (height - 1) * width * channels : 0) + (from_right ? (width - 1) * channels : 0);
  const int64_t right = orientation.swaps_sides() ? along_column : along_row;
  const int64_t below = orientation.swaps_sides() ? along_row : along_column;
  const int64_t new_width = orientation.swaps_sides() ? height : width;
  const int64_t new_height = orientation.swaps_sides() ? width : height;
  std::vector<uint8_t> turned(pixels.size());
  uint8_t* to = turned.data();
  for (int64_t y = 0; y < new_height; ++y) {
    for (int64_t x = 0; x < new_width; ++x, to += channels) {
      std::copy_n(pixels.data() + first + y * below + x * right, channels, to);
    }
  }
  return turned;
}

}  // namespace qwen_image
