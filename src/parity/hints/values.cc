// Hypotheses about the values alone: zero, sign, factors and offsets, whole or per channel; rounding and
// clamping.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "core/dtype.h"
#include "parity/hints/search.h"

namespace qwen_image::hints {
namespace {

// Sums for fitting run = factor · ref + offset.
struct LineFit {
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;

  void Take(double ref, double run) {
    if (!std::isfinite(ref) || !std::isfinite(run)) return;
    n += 1;
    x += ref;
    y += run;
    xx += ref * ref;
    xy += ref * run;
  }
  double Factor() const { return xx > 0 ? xy / xx : 0; }     // without an offset
  double Offset() const { return n > 0 ? (y - x) / n : 0; }  // without a factor
  double Mean() const { return n > 0 ? y / n : 0; }          // of the run
  std::pair<double, double> Line() const {
    const double spread = n * xx - x * x;
    const double factor = spread > 1e-12 * n * xx ? (n * xy - x * y) / spread : 0;
    return {factor, n > 0 ? (y - factor * x) / n : 0};
  }
};

// Explains a known factor.
std::string MeaningOf(double factor) {
  for (const int head_dim : {32, 64, 128, 256}) {
    const double root = std::sqrt(head_dim);
    if (std::abs(factor / root - 1) < 1e-3)
      return fmt::format(" That is √{}: a division by √head_dim is missing.", head_dim);
    if (std::abs(factor * root - 1) < 1e-3)
      return fmt::format(" That is 1/√{}: 1/√head_dim is applied once too often.", head_dim);
  }
  if (std::abs(factor / 1000 - 1) < 1e-3 || std::abs(factor * 1000 - 1) < 1e-3)
    return " Timesteps come in 0…1000 or as sigmas in 0…1: see which one the callee expects.";
  if (std::abs(factor / 127.5 - 1) < 1e-2 || std::abs(factor / 255 - 1) < 1e-2)
    return " The values look like pixels in 0…255.";
  return " Look for a scale applied twice or not at all.";
}

bool TestSigns(HintSearch& s) {
  if (const auto fit = s.Test([&](int64_t i) { return -s.RefAt(i); })) {
    s.Add("sign", *fit, "Every value has the opposite sign. Look for a subtraction the wrong way round.");
    return true;
  }
  const int64_t width = s.ref().shape.empty() ? 0 : s.ref().shape.back();
  if (width < 2 || width % 2 != 0) return false;
  for (const int64_t half : {0, 1}) {
    const auto value = [&, half](int64_t i) {
      return (i % width >= width / 2) == (half == 1) ? -s.RefAt(i) : s.RefAt(i);
    };
    if (const auto fit = s.Test(value)) {
      s.Add("sign_of_half", *fit,
            fmt::format("The {} half of the last axis has the opposite sign. Look at how the halves are "
                        "computed or joined (sine and cosine, scale and shift).",
                        half == 0 ? "first" : "second"));
      return true;
    }
  }
  return false;
}

// A line through all values leaves rounding. SiLU left out before a matrix leaves a thousandth of a large
// error.
bool LeavesLittle(const HintSearch& s, const HintSearch::Fit& fit) {
  constexpr double kLeft = 1e-4;  // of the run's energy
  double ref = 0, run = 0;
  for (int64_t i = 0; i < s.count(); ++i) {
    if (!std::isfinite(s.RefAt(i)) || !std::isfinite(s.RunAt(i))) continue;
    ref += s.RefAt(i) * s.RefAt(i), run += s.RunAt(i) * s.RunAt(i);
  }
  return fit.after * ref <= kLeft * run;
}

bool TestFactorAndOffset(HintSearch& s) {
  LineFit sums;
  for (int64_t i = 0; i < s.count(); ++i) sums.Take(s.RefAt(i), s.RunAt(i));
  const double factor = sums.Factor(), offset = sums.Offset();
  if (const auto fit = s.Test([&](int64_t i) { return factor * s.RefAt(i); }, {.fitted = 1});
      fit && LeavesLittle(s, *fit)) {
    s.Add("constant_factor", *fit,
          fmt::format("Every value is {:.6g} times the reference's.{}", factor, MeaningOf(factor)));
    return true;
  }
  if (const auto fit = s.Test([&](int64_t i) { return s.RefAt(i) + offset; }, {.fitted = 1})) {
    s.Add("constant_offset", *fit,
          fmt::format("Every value is the reference's {:+.6g}. Look for a constant that is added on one side "
                      "only (the 1 of 1 + scale, an epsilon).",
                      offset));
    return true;
  }
  const auto [slope, start] = sums.Line();
  // Older compilers cannot capture a structured binding, so it gets a name of its own.
  const auto line = [&, slope = slope, start = start](int64_t i) { return slope * s.RefAt(i) + start; };
  if (const auto fit = s.Test(line, {.fitted = 2}); fit && LeavesLittle(s, *fit)) {
    s.Add("factor_and_offset", *fit,
          fmt::format("Every value is {:.6g} times the reference's {:+.6g}. Look at value ranges: a picture "
                      "in 0…1 or 0…255 instead of −1…1, or a normalisation that is missing.",
                      slope, start));
    return true;
  }
  return false;
}

// Whether what the hypothesis leaves is little beside the spread inside the channels: where all tokens are
// nearly alike, as behind an attention that looks at everything, a number per channel fits any two tensors.
template <typename ChannelOf, typename Value>
bool ExplainsSpread(const HintSearch& s, int64_t channels, const ChannelOf& channel_of, const Value& value) {
  constexpr double kShare = 0.05;
  const auto n = static_cast<size_t>(channels);
  std::vector<double> sum(n), squares(n), counts(n);
  double left = 0;
  for (int64_t i = 0; i < s.count(); ++i) {
    const double got = s.RunAt(i), expected = value(i);
    if (!std::isfinite(got) || !std::isfinite(expected)) continue;
    const size_t c = channel_of(i);
    sum[c] += got, squares[c] += got * got, counts[c] += 1;
    left += (got - expected) * (got - expected);
  }
  double spread = 0;
  for (size_t c = 0; c < n; ++c) spread += counts[c] > 0 ? squares[c] - sum[c] * sum[c] / counts[c] : 0;
  return left <= kShare * spread;
}

// What is left of a channel that holds one number; tokens behind an attention are alike, but not so much.
constexpr double kConstant = 1e-10;

// The error is the same for all elements of a channel.
bool TestChannels(HintSearch& s, size_t axis) {
  const Shape& shape = s.ref().shape;
  int64_t inner = 1;
  for (size_t a = axis + 1; a < shape.size(); ++a) inner *= shape[a];
  const int64_t channels = shape[axis];
  const auto channel_of = [inner, channels](int64_t i) { return static_cast<size_t>(i / inner % channels); };
  std::vector<LineFit> sums(static_cast<size_t>(channels));
  for (int64_t i = 0; i < s.count(); ++i) sums[channel_of(i)].Take(s.RefAt(i), s.RunAt(i));
  const std::string where = fmt::format("along axis {} ({} channels)", axis, channels);
  const auto test = [&](const auto& value, int64_t fitted) {
    const auto fit = s.Test(value, {.fitted = fitted});
    return fit && ExplainsSpread(s, channels, channel_of, value) ? fit : std::nullopt;
  };

  if (const auto fit = s.Test([&](int64_t i) { return sums[channel_of(i)].Mean(); }, {.fitted = channels});
      fit && fit->after <= kConstant && s.count() >= 4 * channels) {
    s.Add("only_bias", *fit,
          fmt::format(
              "Each channel {} holds one number: the product is zero, and only the bias is left. Look for "
              "an input that is zero, and at the taps that a kernel uses: of a convolution that is causal "
              "in time one frame meets the last.",
              where));
    return true;
  }
  if (const auto fit = test([&](int64_t i) { return s.RefAt(i) + sums[channel_of(i)].Offset(); }, channels)) {
    s.Add("missing_bias", *fit,
          fmt::format("Looks like a missing bias: the error is one number per channel {}, the same for all "
                      "tokens or pixels. Look whether the layer's bias was loaded and added.",
                      where));
    return true;
  }
  if (const auto fit = test([&](int64_t i) { return sums[channel_of(i)].Factor() * s.RefAt(i); }, channels)) {
    s.Add("channel_factor", *fit,
          fmt::format("Each channel {} is off by its own factor. Look for a norm's weight or a "
                      "quantization scale that is missing or belongs to another layer.",
                      where));
    return true;
  }
  const auto line = [&](int64_t i) {
    const auto [factor, offset] = sums[channel_of(i)].Line();
    return factor * s.RefAt(i) + offset;
  };
  if (const auto fit = test(line, 2 * channels)) {
    s.Add("channel_factor_and_offset", *fit,
          fmt::format("Each channel {} is off by its own factor and offset. Look for a normalisation per "
                      "channel: latents_mean and latents_std of the VAE, or a norm's weight and bias.",
                      where));
    return true;
  }
  return false;
}

// The last axis holds a linear layer's channels, axis 1 a convolution's.
bool TestAllChannels(HintSearch& s) {
  const Shape& shape = s.ref().shape;
  if (shape.size() < 2) return false;
  std::vector<size_t> axes = {shape.size() - 1};
  if (shape.size() >= 4) axes.insert(axes.begin(), 1);
  return std::any_of(axes.begin(), axes.end(),
                     [&](size_t axis) { return shape[axis] > 1 && TestChannels(s, axis); });
}

double RoundToBf16(double value) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  return FloatFromBf16(static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16));
}

double TruncateToBf16(double value) {
  return FloatFromBf16(static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16));
}

double RoundToF16(double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  constexpr int kMantissa = 11, kLeastExponent = -24;  // subnormal numbers are multiples of 2^−24
  const int exponent = std::max(std::ilogb(value) - (kMantissa - 1), kLeastExponent);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, -exponent)), exponent);
  return std::abs(rounded) > kLargestF16 ? std::copysign(INFINITY, value) : rounded;
}

bool TestRounding(HintSearch& s) {
  struct Rounding {
    const char *kind, *text;
    double (*round)(double);
  };
  constexpr std::array<Rounding, 3> kRoundings = {{
      {"bf16_rounding",
       "The values are the reference's, rounded to bfloat16: the run keeps this tensor in "
       "bfloat16. That is no bug if it was meant; compare with a bf16 floor.",
       RoundToBf16},
      {"bf16_rounding",
       "The values are the reference's with the lower 16 bits cut off: a conversion to "
       "bfloat16 that truncates instead of rounding.",
       TruncateToBf16},
      {"fp16_rounding",
       "The values are the reference's, rounded to float16: the run keeps this tensor in "
       "float16, which overflows above 65504 and loses small values.",
       RoundToF16},
  }};
  for (const Rounding& r : kRoundings) {
    if (const auto fit = s.Test([&](int64_t i) { return r.round(s.RefAt(i)); })) {
      s.Add(r.kind, *fit, r.text);
      return true;
    }
  }
  return false;
}

bool TestClamp(HintSearch& s) {
  double low = INFINITY, high = -INFINITY;
  for (const float v : s.run().values) {
    if (!std::isfinite(v)) return false;
    low = std::min<double>(low, v);
    high = std::max<double>(high, v);
  }
  if (!(low < high)) return false;
  int64_t above = 0, below = 0;
  for (const float v : s.ref().values) {
    above += v > high;
    below += v < low;
  }
  if (above + below < 3) return false;  // a single wrong extreme is no clamp
  const auto fit = s.Test([&](int64_t i) { return std::clamp(s.RefAt(i), low, high); }, {.fitted = 2});
  if (!fit) return false;
  const bool is_f16 = std::max(std::abs(low), std::abs(high)) == kLargestF16;
  const std::string range = fmt::format("the reference's {} values outside {:.6g}…{:.6g} are cut off there",
                                        above + below, low, high);
  if (is_f16) {
    s.Add("fp16_overflow", *fit,
          "A float16 overflow that was clamped: " + range +
              ". Large values are normal in this model: keep the residual stream in fp32 or bf16.");
  } else {
    s.Add(
        "clamped", *fit,
        "The run clamps: " + range +
            ". Large values are normal in this model; the official pipeline clamps only the final picture.");
  }
  return true;
}

}  // namespace

void TestPrecisionHints(HintSearch& search) {
  if (!search.same_shape()) return;
  TestRounding(search) || TestClamp(search);
}

void TestValueHints(HintSearch& s) {
  if (!s.same_shape()) return;
  const auto is_zero = [](float v) { return v == 0; };
  if (std::all_of(s.run().values.begin(), s.run().values.end(), is_zero)) {
    if (const auto fit = s.Test([](int64_t) { return 0.0; })) {
      s.Add("all_zero", *fit,
            "Every value is zero. Look for a weight that was never loaded, a buffer that was never written, "
            "or a result that was not evaluated before it was read.");
    }
    return;
  }
  TestSigns(s) || TestFactorAndOffset(s) || TestAllChannels(s);
}

}  // namespace qwen_image::hints
