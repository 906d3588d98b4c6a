#include "files/orientation.h"

#include <algorithm>
#include <optional>

namespace qwen_image {
namespace {

using namespace std::string_view_literals;  // for bytes with NULs in them

// A TIFF structure: numbers in either byte order, at offsets that may lead anywhere.
class Tiff {
 public:
  Tiff(std::string_view bytes, bool big_endian) : bytes_(bytes), big_endian_(big_endian) {}

  std::optional<uint32_t> Number(uint64_t at, uint64_t size) const {
    if (at > bytes_.size() || size > bytes_.size() - at) return std::nullopt;
    uint32_t value = 0;
    for (uint64_t i = 0; i < size; ++i) {
      const uint64_t byte = big_endian_ ? at + i : at + size - 1 - i;
      value = value << 8 | static_cast<uint8_t>(bytes_[byte]);
    }
    return value;
  }

  // The first number of the field that the 12 bytes at `at` describe.
  std::optional<uint32_t> Value(uint64_t at) const {
    const uint32_t type = Number(at + 2, 2).value_or(0);
    const uint64_t unit = type == kShort || type == kSignedShort ? 2
                          : type == kLong || type == kSignedLong ? 4
                                                                 : 0;
    const uint64_t count = Number(at + 4, 4).value_or(0);
    const std::optional<uint32_t> data = Number(at + 8, 4);  // or where it is
    const uint64_t size = unit * count;
    if (size == 0 || !data) return std::nullopt;
    if (size <= 4) return Number(at + 8, unit);
    if (size > bytes_.size() || *data > bytes_.size() - size) return std::nullopt;
    return Number(*data, unit);
  }

 private:
  static constexpr uint32_t kShort = 3, kLong = 4, kSignedShort = 8, kSignedLong = 9;
  std::string_view bytes_;
  bool big_endian_;
};

std::optional<uint32_t> ExifOrientation(std::string_view exif) {
  constexpr std::string_view kPrefix = "Exif\0\0"sv;
  constexpr uint32_t kOrientation = 0x0112;
  for (int i = 0; i < 2; ++i) {  // some programs write it twice
    if (exif.starts_with(kPrefix)) exif.remove_prefix(kPrefix.size());
  }
  const bool big_endian = exif.starts_with("MM");
  if (!big_endian && !exif.starts_with("II")) return std::nullopt;
  const Tiff tiff(exif, big_endian);
  const std::string_view version = exif.substr(2, 2);
  if (version != "*\0"sv && version != "\0*"sv) return std::nullopt;
  const uint64_t directory = tiff.Number(4, 4).value_or(0);
  const uint64_t count = tiff.Number(directory, 2).value_or(0);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t field = directory + 2 + i * 12;
    const std::optional<uint32_t> tag = tiff.Number(field, 2);
    if (!tag) break;
    if (*tag != kOrientation) continue;
    if (const std::optional<uint32_t> value = tiff.Value(field)) return value;
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
