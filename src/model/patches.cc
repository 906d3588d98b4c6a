#include "model/patches.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/fail.h"

namespace qwen_image {

void CheckPatches(const Tensor& pixel_values, std::span<const ImageGrid> grids, int64_t spatial_merge_size,
                  int64_t patch_values) {
  constexpr int64_t kMaxSide = 1 << 15;
  int64_t patches = 0;
  for (const ImageGrid& grid : grids) {
    const auto fits = [&](int64_t side) {
      return side > 0 && side <= kMaxSide && side % spatial_merge_size == 0;
    };
    if (grid.t < 1 || grid.t > kMaxSide || !fits(grid.h) || !fits(grid.w)) {
      Fail(ErrorKind::kUsage,
           "a picture of {} x {} x {} patches: sides of a multiple of {} patches are expected", grid.t,
           grid.h, grid.w, spatial_merge_size);
    }
    patches += grid.patches();
  }
  const Shape expected = {patches, patch_values};
  if (grids.empty() || pixel_values.shape() != expected) {
    Fail(ErrorKind::kUsage, "the vision encoder was given pixels {} for {} pictures, which need {}",
         ToString(pixel_values.shape()), grids.size(), ToString(expected));
  }
}

std::vector<float> BindPatchEmbed(const std::string& name, int64_t out, const PatchShape& shape,
                                  const WeightStore& store, WeightBinder& binder) {
  const auto& [channels, frames, side] = shape;
  if (!store.Find(name + ".0.weight")) {
    const WeightTensor* whole = store.Find(name + ".weight");
    if (whole && whole->shape().size() == 2) return binder.Floats(name + ".weight", {out, shape.values()});
    return binder.Floats(name + ".weight", {out, channels, frames, side, side});
  }
  std::vector<std::vector<float>> slices;
  for (int64_t t = 0; t < frames; ++t)
    slices.push_back(binder.Floats(fmt::format("{}.{}.weight", name, t), {out, channels, side, side}));
  const auto is_there = [](const std::vector<float>& slice) { return !slice.empty(); };
  if (!std::all_of(slices.begin(), slices.end(), is_there)) return {};
  std::vector<float> joined;
  joined.reserve(static_cast<size_t>(out * shape.values()));
  const int64_t area = side * side;
  for (int64_t row = 0; row < out * channels; ++row) {
    for (const std::vector<float>& slice : slices)
      joined.insert(joined.end(), slice.begin() + row * area, slice.begin() + (row + 1) * area);
  }
  return joined;
}

}  // namespace qwen_image
