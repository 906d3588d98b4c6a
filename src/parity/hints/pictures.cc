// Hypotheses about the latents that become a picture, and about the pixels at its border.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "parity/hints/search.h"

namespace qwen_image::hints {
namespace {

// Tokens of 2×2 latents: the place of a latent in [token, channel · 4].
struct Packing {
  int64_t channels = 0, height = 0, width = 0;
  enum class Order {
    kChannelFirst,
    kChannelLast,
    kColumnsFirst,
    kTokensByColumns
  } order = Order::kChannelFirst;

  int64_t operator()(int64_t i) const {
    const int64_t x = i % width, y = i / width % height, c = i / width / height % channels;
    const int64_t in_row = 2 * (y % 2) + x % 2, in_column = 2 * (x % 2) + y % 2;
    const int64_t token =
        order == Order::kTokensByColumns ? x / 2 * (height / 2) + y / 2 : y / 2 * (width / 2) + x / 2;
    const int64_t inside = order == Order::kChannelLast    ? in_row * channels + c
                           : order == Order::kColumnsFirst ? 4 * c + in_column
                                                           : 4 * c + in_row;
    return token * 4 * channels + inside;
  }
};

struct PackingMistake {
  Packing::Order order;
  const char* text;
};
constexpr std::array<PackingMistake, 3> kPackingMistakes = {{
    {Packing::Order::kChannelLast,
     "A token holds 4 latents of each channel; it was read as the channels of 4 latents, one after the "
     "other."},
    {Packing::Order::kColumnsFirst, "The 2×2 latents of a token were read by columns; they lie by rows."},
    {Packing::Order::kTokensByColumns, "The tokens were laid out by columns; they lie by rows."},
}};

// What the channels' deviation and mean make of the latents. They are fitted to the reference.
bool TestUnpacking(HintSearch& s) {
  const Shape& shape = s.ref().shape;
  if (shape.size() < 4 || shape[0] != 1) return false;
  const auto packed = s.OtherRef("final_latents_packed", s.count());
  Packing packing{.channels = shape[1], .height = shape[shape.size() - 2], .width = shape.back()};
  if (!packed || packing.height % 2 || packing.width % 2) return false;
  const int64_t area = packing.height * packing.width;
  if (packing.channels * area != s.count()) return false;
  const auto latent = [&](int64_t i) {
    return static_cast<double>(packed->values[static_cast<size_t>(packing(i))]);
  };
  struct Line {
    double n = 0, x = 0, y = 0, xx = 0, xy = 0;
    double factor() const { return (n * xy - x * y) / (n * xx - x * x); }
    double At(double value) const { return y / n + factor() * (value - x / n); }
  };
  std::vector<Line> lines(static_cast<size_t>(packing.channels));
  const auto line_of = [&](int64_t i) -> Line& { return lines[static_cast<size_t>(i / area)]; };
  for (int64_t i = 0; i < s.count(); ++i) {
    Line& l = line_of(i);
    const double x = latent(i), y = s.RefAt(i);
    l.n += 1, l.x += x, l.y += y, l.xx += x * x, l.xy += x * y;
  }
  const auto value = [&](int64_t i) { return line_of(i).At(latent(i)); };
  if (!s.ExplainsReference(value)) return false;
  for (const PackingMistake& mistake : kPackingMistakes) {
    packing.order = mistake.order;
    const auto fit = s.Test(value);
    if (!fit) continue;
    s.Add("unpacked_otherwise", *fit, mistake.text);
    return true;
  }
  return false;
}

// A convolution's pixels are right but for a border of one pixel.
bool TestPadding(HintSearch& s) {
  constexpr int64_t kLeastSide = 4;
  const Shape& shape = s.ref().shape;
  if (shape.size() < 4) return false;
  const int64_t height = shape[shape.size() - 2], width = shape.back();
  if (height < kLeastSide || width < kLeastSide) return false;
  std::array<double, 4> sides = {};
  double border = 0, inside = 0, energy = 0;
  for (int64_t i = 0; i < s.count(); ++i) {
    const int64_t x = i % width, y = i / width % height;
    const double square = (s.RunAt(i) - s.RefAt(i)) * (s.RunAt(i) - s.RefAt(i));
    const std::array<bool, 4> at = {x == 0, x == width - 1, y == 0, y == height - 1};
    const auto touching = std::count(at.begin(), at.end(), true);
    // A corner is of two sides.
    for (size_t side = 0; side < at.size(); ++side) sides[side] += at[side] && touching == 1 ? square : 0;
    (touching == 0 ? inside : border) += square;
    energy += s.RefAt(i) * s.RefAt(i);
  }
  // Where one side alone differs, something else happened there.
  const int touched = static_cast<int>(
      std::count_if(sides.begin(), sides.end(), [&](double v) { return v > kCollapse * border; }));
  if (!(energy > 0) || touched < 2 || !(inside <= kCollapse * kCollapse * border)) return false;
  s.Add("wrong_padding", {.before = (border + inside) / energy, .after = inside / energy},
        "Only the pixels at the border differ: the padding is another one (zeros, repeated, mirrored), or on "
        "other sides.");
  return true;
}

// The reference keeps to −1…1, the run goes beyond where the reference stands at an end.
bool TestUnclamped(HintSearch& s) {
  constexpr int64_t kFewest = 3;
  int64_t beyond = 0;
  const auto value = [&](int64_t i) {
    const double want = s.RefAt(i), got = s.RunAt(i);
    return std::abs(want) == 1 && want * got > 1 ? got : want;
  };
  for (int64_t i = 0; i < s.count(); ++i) beyond += value(i) != s.RefAt(i);
  if (beyond < kFewest) return false;
  const auto fit = s.Test(value);
  if (!fit) return false;
  s.Add("not_clamped", *fit,
        fmt::format("{} values are beyond −1…1, where the reference stands at an end: the picture was not "
                    "clamped.",
                    beyond));
  return true;
}

}  // namespace

bool TestPictureHints(HintSearch& s) {
  if (s.name() == "image") return TestUnclamped(s);
  if (s.name() == "vae/pre_decode_latents") return TestUnpacking(s);
  return s.name().starts_with("vae") && TestPadding(s);
}

}  // namespace qwen_image::hints
