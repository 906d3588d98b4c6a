// Shortcuts between pictures of different sizes, which have no weights.
#include <vector>

#include "core/fail.h"
#include "ops/cpu.h"

namespace qwen_image {
namespace {

// Which large values belong to which channel of a small pixel.
class Shares {
 public:
  Shares(const Folding& folding, int64_t large_channels, int64_t small_channels)
      : side_(folding.side), frames_(folding.frames), channels_(large_channels) {
    const int64_t values = large_channels * frames_ * side_ * side_;
    if (small_channels < 1 || values % small_channels != 0) {
      Fail(ErrorKind::kInternal, "{} values of a pixel cannot be shared out evenly among {} channels", values,
           small_channels);
    }
    share_ = values / small_channels;
  }

  int64_t share() const { return share_; }  // values of a channel, the zeros of earlier frames among them
  // Calls visit(y, x, channel, small channel) for every value of the last frame.
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    for (int64_t c = 0; c < channels_; ++c) {
      const int64_t first = ((c + 1) * frames_ - 1) * side_ * side_;
      for (int64_t i = 0; i < side_ * side_; ++i) visit(i / side_, i % side_, c, (first + i) / share_);
    }
  }

 private:
  int64_t side_, frames_, channels_, share_;
};

struct LargeValue {
  int64_t offset;         // from the first value of the small pixel
  int64_t small_channel;  // does not decrease
};

}  // namespace

Array CpuOps::FoldedMeans(const Folding& folding, const Array& x, int64_t channels) {
  const Profile::Scope timed = Timed("shortcuts");
  const int64_t side = folding.side, width = x.dim(1) / side, large = x.dim(2);
  const Shares shares(folding, large, channels);
  std::vector<LargeValue> values;
  shares.ForEach([&](int64_t row, int64_t col, int64_t c, int64_t small) {
    values.push_back({(row * x.dim(1) + col) * large + c, small});
  });
  Array y = New({x.dim(0) / side, width, channels});
  const auto share = static_cast<float>(shares.share());
  compute_.pool.ParallelFor(y.dim(0), [&](int64_t row) {
    for (int64_t col = 0; col < width; ++col) {
      const float* const from = x.view.data + (row * x.dim(1) + col) * side * large;
      float* const to = y.view.data + (row * width + col) * channels;
      std::fill_n(to, channels, 0.0f);
      for (const LargeValue& value : values) to[value.small_channel] += from[value.offset];
      for (int64_t c = 0; c < channels; ++c) to[c] /= share;
    }
  });
  return y;
}

void CpuOps::AddUnfolded(const Folding& folding, const Array& x, Array& sum, const char* name,
                         const Tap& tap) {
  const Profile::Scope timed = Timed("shortcuts");
  const int64_t side = folding.side, width = sum.dim(1), large = sum.dim(2), small = x.dim(2);
  std::vector<int32_t> from(static_cast<size_t>(side * side * large));  // [row, column, large channel]
  Shares(folding, large, small).ForEach([&](int64_t row, int64_t col, int64_t c, int64_t channel) {
    from[static_cast<size_t>((row * side + col) * large + c)] = static_cast<int32_t>(channel);
  });
  const auto for_each_pixel = [&](const auto& visit) {
    compute_.pool.ParallelFor(sum.dim(0), [&](int64_t row) {
      for (int64_t col = 0; col < width; ++col) {
        visit((row * width + col) * large, x.view.data + (row / side * (width / side) + col / side) * small,
              from.data() + (row % side * side + col % side) * large);
      }
    });
  };
  if (tap.Wants(name)) {
    Array added = New(sum.shape);
    for_each_pixel([&](int64_t at, const float* pixel, const int32_t* channel) {
      for (int64_t c = 0; c < large; ++c) added.view.data[at + c] = pixel[channel[c]];
    });
    ShowPicture(tap, name, added, Frames::kOne);
    return Add(added, sum);
  }
  for_each_pixel([&](int64_t at, const float* pixel, const int32_t* channel) {
    float* const to = sum.view.data + at;
    for (int64_t c = 0; c < large; ++c) to[c] += pixel[channel[c]];
  });
}

}  // namespace qwen_image
