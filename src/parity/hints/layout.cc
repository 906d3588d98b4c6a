// Hypotheses about the place of the values: run[i] = ref[f(i)].
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "parity/hints/search.h"

namespace qwen_image::hints {
namespace {

Shape WithoutOnes(const Shape& shape) {
  Shape squeezed;
  std::copy_if(shape.begin(), shape.end(), std::back_inserter(squeezed), [](int64_t d) { return d != 1; });
  return squeezed;
}

bool IsPermutation(const Shape& a, const Shape& b) {
  return a.size() == b.size() && std::is_permutation(a.begin(), a.end(), b.begin());
}

using Axes = std::vector<size_t>;

// A tensor of `shape` is transposed to the order `axes`. For each place in the new memory, from front to
// back: the index in the old tensor.
class PermutedIndex {
 public:
  PermutedIndex(const Shape& shape, const Axes& axes) : rank_(shape.size()) {
    std::array<int64_t, 4> strides{};
    int64_t stride = 1;
    for (size_t a = rank_; a-- > 0;) {
      strides[a] = stride;
      stride *= shape[a];
    }
    for (size_t k = 0; k < rank_; ++k) {
      dims_[k] = shape[axes[k]];
      strides_[k] = strides[axes[k]];
    }
  }
  int64_t operator()(int64_t i) const {
    int64_t index = 0;
    for (size_t k = rank_; k-- > 0;) {
      index += i % dims_[k] * strides_[k];
      i /= dims_[k];
    }
    return index;
  }

 private:
  size_t rank_;
  std::array<int64_t, 4> dims_{}, strides_{};
};

bool MovesChannels(const Axes& axes) {  // first ↔ last, of one picture or of several
  static const std::array<Axes, 4> kMoves = {{{1, 2, 0}, {2, 0, 1}, {0, 2, 3, 1}, {0, 3, 1, 2}}};
  return std::find(kMoves.begin(), kMoves.end(), axes) != kMoves.end();
}

bool IsPictureOrLatents(std::string_view name) {
  return name.starts_with("vae") || name == "image" || name.find("latents") != name.npos;
}

void AddPermutation(HintSearch& s, const Axes& axes, HintSearch::Fit fit) {
  const Shape ref = WithoutOnes(s.ref().shape), run = WithoutOnes(s.run().shape);
  Shape permuted;
  for (const size_t a : axes) permuted.push_back(ref[a]);
  const std::string what =
      fmt::format("the reference's {} with its axes in the order ({})", ToString(ref), fmt::join(axes, ", "));
  if (permuted != run && IsPermutation(run, ref)) {
    s.Add("strided_view", fit,
          fmt::format("A strided view was read as if it were contiguous: the values lie in memory as {}, but "
                      "the tensor calls itself {}. In a picture this looks like a 3×3 tiling. Make the "
                      "transposed tensor contiguous before it is read or reshaped.",
                      what, ToString(s.run().shape)));
  } else if (IsPictureOrLatents(s.name()) && MovesChannels(axes)) {
    s.Add("nchw_nhwc", fit,
          fmt::format("Channels first and channels last are mixed up (NCHW and NHWC): the run holds {}. Look "
                      "at the transposes around convolutions, and at the layout of their weights.",
                      what));
  } else {
    s.Add("transposed_axes", fit,
          fmt::format("Axes are transposed: the run holds {}. Look at the reshape and transpose before this "
                      "tensor, or at a weight that is stored transposed.",
                      what));
  }
}

bool TestPermutations(HintSearch& s) {
  const Shape dims = WithoutOnes(s.ref().shape);
  if (dims.size() < 2 || dims.size() > 4) return false;
  Axes axes(dims.size());
  std::iota(axes.begin(), axes.end(), size_t{0});
  while (std::next_permutation(axes.begin(), axes.end())) {
    const PermutedIndex index(dims, axes);
    if (const auto fit = s.Test([&](int64_t i) { return s.RefAt(index(i)); })) {
      AddPermutation(s, axes, *fit);
      return true;
    }
  }
  return false;
}

// The shape differs; the values and their order are the same.
bool TestReshaped(HintSearch& s) {
  if (s.same_shape()) return false;
  const auto fit = s.Test([&](int64_t i) { return s.RefAt(i); });
  if (!fit) return false;
  const Shape ref = WithoutOnes(s.ref().shape), run = WithoutOnes(s.run().shape);
  const std::string shapes =
      fmt::format("{} instead of {}", ToString(s.run().shape), ToString(s.ref().shape));
  if (ref != run && IsPermutation(ref, run)) {
    s.Add(
        "strided_view", *fit,
        "The shape is transposed, but the values lie in memory as in the reference: " + shapes +
            ". A strided view was read as if it were contiguous; in a picture this looks like a 3×3 tiling. "
            "Make it contiguous before it is read.");
  } else {
    s.Add("other_shape", *fit,
          "The values agree and are in the same order; only the shape differs: " + shapes + ".");
  }
  return true;
}

// Parts of the last axis that changed places, e.g. shift and scale.
bool TestChunks(HintSearch& s, int64_t parts, const std::vector<std::string>& names) {
  const int64_t width = s.ref().shape.empty() ? 0 : s.ref().shape.back();
  if (width < 2 * parts || width % parts != 0) return false;
  const int64_t chunk = width / parts;
  const auto n = static_cast<size_t>(parts);
  std::vector<double> distance(n * n);  // [run's part, ref's part]
  for (int64_t i = 0; i < s.count(); ++i) {
    const int64_t part = i % width / chunk;
    for (int64_t from = 0; from < parts; ++from) {
      const double d = s.RunAt(i) - s.RefAt(i + (from - part) * chunk);
      distance[static_cast<size_t>(part * parts + from)] += d * d;
    }
  }
  std::vector<int64_t> source(n);
  for (size_t part = 0; part < n; ++part) {
    const auto row = distance.begin() + static_cast<int64_t>(part * n);
    source[part] = std::min_element(row, row + parts) - row;
  }
  if (std::is_sorted(source.begin(), source.end())) return false;  // nothing moved, or no clear order
  const auto moved = [&](int64_t i) {
    const int64_t part = i % width / chunk;
    return s.RefAt(i + (source[static_cast<size_t>(part)] - part) * chunk);
  };
  const auto fit = s.Test(moved);
  if (!fit) return false;

  std::string changes;
  bool scale_and_shift_only = !names.empty();
  for (size_t part = 0; part < n; ++part) {
    const auto from = static_cast<size_t>(source[part]);
    if (from == part) continue;
    const auto label = [&](size_t p) { return names.empty() ? fmt::format("part {}", p) : names[p]; };
    changes += fmt::format("{}{} holds {}", changes.empty() ? "" : ", ", label(part), label(from));
    if (!names.empty())
      scale_and_shift_only &= !names[part].starts_with("gate") && !names[from].starts_with("gate");
  }
  if (scale_and_shift_only) {
    s.Add("swapped_scale_shift", *fit,
          fmt::format("Scale and shift are swapped: {}. The modulation of a block is [shift, scale, gate] "
                      "twice; {} is [scale, shift].",
                      changes, s.family().head_norm));
  } else {
    s.Add(parts == 2 ? "swapped_halves" : "swapped_parts", *fit,
          fmt::format("{} of the last axis changed places: {}. Look at the order in which they are joined or "
                      "split (cosine and sine, gate and up, q, k and v).",
                      parts == 2 ? "The halves" : "Parts", changes));
  }
  return true;
}

// Patches are [colour, time, row, column].
bool TestPatchColours(HintSearch& s) {
  const int64_t width = s.ref().shape.empty() ? 0 : s.ref().shape.back();
  if (width == 0 || width % 3 != 0) return false;
  const int64_t third = width / 3;
  const auto fit = s.Test([&](int64_t i) { return s.RefAt(i + (2 - 2 * (i % width / third)) * third); });
  if (!fit) return false;
  s.Add("swapped_channels", *fit,
        "Red and blue changed places in the patches: look for BGR in place of RGB.");
  return true;
}

bool TestAllChunks(HintSearch& s) {
  const auto& streams = s.family().streams;
  if (std::any_of(streams.begin(), streams.end(), [&](const StreamNames& stream) {
        return !stream.modulation.empty() && s.name().ends_with(stream.modulation);
      }))
    return TestChunks(s, 6, {"shift 1", "scale 1", "gate 1", "shift 2", "scale 2", "gate 2"}) ||
           TestChunks(s, 2, {});
  if (s.family().one_stream && IsNamed(ModuleOf(s.name()), s.family().one_stream->modulation))
    return TestChunks(s, 4, {"scale 1", "gate 1", "scale 2", "gate 2"});
  if (s.name() == "pixel_values") return TestPatchColours(s) || TestChunks(s, 2, {});
  const std::string_view head = s.family().head_norm;
  if (!head.empty() && s.name().ends_with(fmt::format("{}.linear", head)))
    return TestChunks(s, 2, {"scale", "shift"});
  return TestChunks(s, 2, {}) || TestChunks(s, 3, {});
}

// The last axis seen as a matrix [a, b], transposed: halves instead of pairs, [channel, 2, 2] instead of
// [2, 2, channel].
bool TestRegrouped(HintSearch& s) {
  const int64_t width = s.ref().shape.empty() ? 0 : s.ref().shape.back();
  for (int64_t a = 2; a <= width / 2; ++a) {
    if (width % a != 0) continue;
    const int64_t b = width / a;
    const auto value = [&](int64_t i) {
      const int64_t channel = i % width;
      return s.RefAt(i - channel + channel % a * b + channel / a);
    };
    if (const auto fit = s.Test(value)) {
      s.Add("regrouped_channels", *fit,
            fmt::format("The last axis is grouped the other way: as [{}, {}] instead of [{}, {}]. Look at "
                        "interleaved against split halves, heads × head_dim, and the order in which 2×2 "
                        "latents are packed (channel, row, column).",
                        b, a, a, b));
      return true;
    }
  }
  return false;
}

// The axis of a picture's or a feature map's channels, first or last.
bool IsChannelAxis(const HintSearch& s, size_t axis) {
  const size_t rank = s.ref().shape.size();
  if (rank >= 4) return axis == 1 || axis + 1 == rank;
  return rank == 3 && IsPictureOrLatents(s.name()) && axis != 1;
}

// What comes out of a run, or goes into its VAE.
bool IsWholePicture(const HintSearch& s) { return s.name() == "image" || s.name().starts_with("vae_image"); }

bool TestAlongAxes(HintSearch& s) {
  const Shape& shape = s.ref().shape;
  int64_t inner = 1;
  for (size_t axis = shape.size(); axis-- > 0; inner *= shape[axis]) {
    const int64_t size = shape[axis];
    if (size < 2) continue;
    const auto moved_to = [&](int64_t i, int64_t to) { return s.RefAt(i + (to - i / inner % size) * inner); };
    if (size == 3 || (size == 4 && IsWholePicture(s))) {
      std::vector<int64_t> order(static_cast<size_t>(size));
      std::iota(order.begin(), order.end(), 0);
      while (std::next_permutation(order.begin(), order.end())) {
        const auto fit =
            s.Test([&](int64_t i) { return moved_to(i, order[static_cast<size_t>(i / inner % size)]); });
        if (!fit) continue;
        const bool channels = IsChannelAxis(s, axis);
        s.Add(channels ? "swapped_channels" : "swapped_parts", *fit,
              fmt::format("The {} of axis {} are in the order ({}). {}", channels ? "channels" : "parts",
                          axis, fmt::join(order, ", "),
                          channels ? "Look for BGR in place of RGB, or alpha in front."
                          : s.name().ends_with("position_ids")
                              ? "They are time, height and width: look where the positions are made."
                              : "Look at the order in which they are joined or split."));
        return true;
      }
    }
    if (const auto fit = s.Test([&](int64_t i) { return moved_to(i, size - 1 - i / inner % size); })) {
      s.Add("flipped_axis", *fit,
            fmt::format("Axis {} of {} runs backwards. Look for a mirrored picture or reversed positions.",
                        axis, ToString(shape)));
      return true;
    }
  }
  return false;
}

}  // namespace

void TestLayoutHints(HintSearch& s) {
  if (s.ref().values.size() != s.run().values.size()) return;
  if (TestReshaped(s)) return;
  if (s.same_shape() && TestAllChunks(s)) return;
  TestPermutations(s) || (s.same_shape() && (TestRegrouped(s) || TestAlongAxes(s)));
}

}  // namespace qwen_image::hints
