#include "files/colour.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <utility>

namespace qwen_image {
namespace {

constexpr std::pair<std::string_view, Colour> kNames[] = {
    {"white", {255, 255, 255}}, {"silver", {192, 192, 192}}, {"gray", {128, 128, 128}},
    {"grey", {128, 128, 128}},  {"black", {0, 0, 0}},        {"red", {255, 0, 0}},
    {"maroon", {128, 0, 0}},    {"orange", {255, 165, 0}},   {"yellow", {255, 255, 0}},
    {"olive", {128, 128, 0}},   {"lime", {0, 255, 0}},       {"green", {0, 128, 0}},
    {"aqua", {0, 255, 255}},    {"teal", {0, 128, 128}},     {"blue", {0, 0, 255}},
    {"navy", {0, 0, 128}},      {"fuchsia", {255, 0, 255}},  {"purple", {128, 0, 128}}};

}  // namespace

std::optional<Colour> ParseColour(std::string_view text) {
  std::string name(text);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const auto& [known, colour] : kNames) {
    if (name == known) return colour;
  }
  constexpr size_t kLength = 7;  // "#rrggbb"
  const bool digits = name.find_first_not_of("0123456789abcdef", 1) == name.npos;
  if (name.size() != kLength || name.front() != '#' || !digits) return std::nullopt;
  uint32_t value = 0;
  std::from_chars(name.data() + 1, name.data() + kLength, value, 16);
  return Colour{static_cast<uint8_t>(value >> 16), static_cast<uint8_t>(value >> 8),
                static_cast<uint8_t>(value)};
}

std::string ColourNames() {
  std::string names;
  for (const auto& [name, colour] : kNames) names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
  return names;
}

Image Flatten(Image image, Colour colour) {
  if (!image.has_alpha()) return image;
  const int under[] = {colour.red, colour.green, colour.blue};
  std::vector<uint8_t>& pixels = image.pixels;  // a pixel never overtakes the one it is made of
  const size_t count = pixels.size() / 4;
  for (size_t i = 0; i < count; ++i) {
    const int alpha = pixels[i * 4 + 3];
    for (size_t c = 0; c < 3; ++c) {
      const int value = pixels[i * 4 + c];
      pixels[i * 3 + c] = static_cast<uint8_t>((value * alpha + under[c] * (255 - alpha) + 127) / 255);
    }
  }
  pixels.resize(count * 3);
  image.channels = 3;
  return image;
}

Image WithChannels(Image image, int64_t channels) {
  if (channels == image.channels) return image;
  if (channels == 3) return Flatten(std::move(image));
  Image opaque{image.width, image.height, std::vector<uint8_t>(image.pixels.size() / 3 * 4, 255), 4};
  for (size_t i = 0; i < image.pixels.size(); ++i) opaque.pixels[i / 3 * 4 + i % 3] = image.pixels[i];
  return opaque;
}

}  // namespace qwen_image
