// Hints about latents and pixels, on synthetic inputs.
#include <gtest/gtest.h>

#include <algorithm>

#include "parity/hints/testing.h"

namespace qwen_image::hints {
namespace {

constexpr int64_t kChannels = 16, kHeight = 6, kWidth = 8, kArea = kHeight * kWidth;

double At(const HintTensor& t, int64_t i) { return t.values[static_cast<size_t>(i)]; }

// [1, C, 1, H, W] from tokens; `place` is the place of row y and column x of channel c in its token.
template <typename Place>
HintTensor Unpacked(const HintTensor& packed, const Place& place, bool by_columns = false) {
  HintTensor latents{{1, kChannels, 1, kHeight, kWidth}, packed.values};
  return Changed(std::move(latents), [&](int64_t i) {
    const int64_t x = i % kWidth, y = i / kWidth % kHeight, c = i / kArea;
    const int64_t token = by_columns ? x / 2 * (kHeight / 2) + y / 2 : y / 2 * (kWidth / 2) + x / 2;
    const double deviation = 0.5 + static_cast<double>(c), mean = 0.1 * static_cast<double>(c) - 1;
    return At(packed, token * 4 * kChannels + place(c, y % 2, x % 2)) * deviation + mean;
  });
}

TEST(PictureHints, KnowLatentsThatAreUnpackedOtherwise) {
  const HintTensor packed = RandomTensor({1, kArea / 4, 4 * kChannels}, 1);
  const auto right = [](int64_t c, int64_t y, int64_t x) { return 4 * c + 2 * y + x; };
  const std::string name = "vae/pre_decode_latents";
  const NamedTensors reference = {{"final_latents_packed", packed}, {name, Unpacked(packed, right)}};
  const auto kind_of = [&](const HintTensor& run) { return FirstKind(HintsFor(name, reference, run)); };
  EXPECT_EQ(
      kind_of(Unpacked(packed, [](int64_t c, int64_t y, int64_t x) { return (2 * y + x) * kChannels + c; })),
      "unpacked_otherwise");
  EXPECT_EQ(kind_of(Unpacked(packed, [](int64_t c, int64_t y, int64_t x) { return 4 * c + 2 * x + y; })),
            "unpacked_otherwise");
  EXPECT_EQ(kind_of(Unpacked(packed, right, true)), "unpacked_otherwise");
  EXPECT_NE(kind_of(RandomTensor({1, kChannels, 1, kHeight, kWidth}, 5)), "unpacked_otherwise");
}

TEST(PictureHints, KnowAnotherPadding) {
  const std::string name = "vae/decoder.conv_in";
  const HintTensor ref = RandomTensor({1, kChannels, 1, kHeight, kWidth}, 1);
  const auto with_noise_where = [&](const auto& where) {
    return Changed(ref, [&](int64_t i) {
      const int64_t x = i % kWidth, y = i / kWidth % kHeight;
      return At(ref, i) + (where(x, y) ? std::sin(7.0 * static_cast<double>(i)) : 0);
    });
  };
  const auto kind_of = [&](const auto& where) {
    return FirstKind(HintsFor(name, {{name, ref}}, with_noise_where(where)));
  };
  const auto border = [](int64_t x, int64_t y) {
    return x == 0 || y == 0 || x == kWidth - 1 || y == kHeight - 1;
  };
  EXPECT_EQ(kind_of(border), "wrong_padding");
  EXPECT_EQ(kind_of([](int64_t x, int64_t y) { return x == kWidth - 1 || y == kHeight - 1; }),
            "wrong_padding");
  EXPECT_EQ(kind_of([](int64_t x, int64_t) { return x == 0; }), "");
  EXPECT_EQ(kind_of([](int64_t x, int64_t y) { return x < 2 || y == 0; }), "");
}

TEST(PictureHints, KnowAPictureThatIsNotClamped) {
  const HintTensor run = RandomTensor({1, 3, kHeight, kWidth}, 3);
  const HintTensor ref = Changed(run, [&](int64_t i) { return std::clamp(At(run, i), -1.0, 1.0); });
  EXPECT_EQ(FirstKind(HintsFor("image", {{"image", ref}}, run)), "not_clamped");
  const HintTensor other = Changed(run, [&](int64_t i) { return 1.1 * At(run, i); });
  EXPECT_NE(FirstKind(HintsFor("image", {{"image", ref}}, other)), "not_clamped");
}

}  // namespace
}  // namespace qwen_image::hints
