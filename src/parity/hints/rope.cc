// Hypotheses about RoPE.
#include <fmt/format.h>

#include <algorithm>
#include <complex>

#include "parity/hints/joint_layout.h"

namespace qwen_image::hints {
namespace {

enum class Pairing { kInterleaved, kHalves };  // which two elements of a head are turned together

// The rotations of RoPE, found from what the reference had before and after it.
class Rope {
 public:
  // Both [1, tokens, heads, head_dim].
  Rope(const HintTensor& before, const HintTensor& after, Pairing pairing)
      : before_(&before),
        pairing_(pairing),
        heads_(before.shape[2]),
        dim_(before.shape[3]),
        turns_(static_cast<size_t>(before.shape[1] * dim_ / 2)) {
    for (int64_t token = 0; token < before.shape[1]; ++token) {
      for (int64_t pair = 0; pair < dim_ / 2; ++pair)
        turns_[TurnIndex(token, pair)] = Turn(after, token, pair);
    }
  }

  // Element i after turning the pairs of `pairing`; element e of a head uses the angle number `angle(e)`.
  double Apply(int64_t i, Pairing pairing, Pairing angles, bool backwards = false) const {
    const int64_t e = i % dim_, token = i / (heads_ * dim_), half = dim_ / 2;
    const int64_t angle = angles == Pairing::kInterleaved ? e / 2 : e % half;
    const bool second = pairing == Pairing::kInterleaved ? e % 2 == 1 : e >= half;
    const int64_t distance = pairing == Pairing::kInterleaved ? 1 : half;
    const std::complex<double> turn = turns_[TurnIndex(token, angle)];
    const double sin = (second ? 1 : -1) * (backwards ? -turn.imag() : turn.imag());
    return X(i) * turn.real() + X(second ? i - distance : i + distance) * sin;
  }

  Pairing pairing() const { return pairing_; }
  double X(int64_t i) const { return before_->values[static_cast<size_t>(i)]; }

 private:
  size_t TurnIndex(int64_t token, int64_t pair) const { return static_cast<size_t>(token * dim_ / 2 + pair); }

  std::complex<double> Turn(const HintTensor& after, int64_t token, int64_t pair) const {
    const int64_t distance = pairing_ == Pairing::kInterleaved ? 1 : dim_ / 2;
    const int64_t first = pairing_ == Pairing::kInterleaved ? 2 * pair : pair;
    std::complex<double> sum = 0;
    for (int64_t head = 0; head < heads_; ++head) {
      const auto at = static_cast<size_t>((token * heads_ + head) * dim_ + first);
      const auto next = at + static_cast<size_t>(distance);
      sum += std::complex<double>(after.values[at], after.values[next]) *
             std::conj(std::complex<double>(before_->values[at], before_->values[next]));
    }
    return std::abs(sum) > 0 ? sum / std::abs(sum) : 1;
  }

  const HintTensor* before_;
  Pairing pairing_;
  int64_t heads_, dim_;
  std::vector<std::complex<double>> turns_;  // [tokens, head_dim / 2]
};

// The angles by which the run turns further than the reference: one for each pair, the same for all tokens of
// a range.
class FurtherTurns {
 public:
  // `range_of`: for each token, the number of its range.
  FurtherTurns(const HintSearch& s, Pairing pairing, std::vector<size_t> range_of)
      : s_(&s),
        pairing_(pairing),
        dim_(s.ref().shape[3]),
        width_(s.ref().shape[2] * dim_),
        range_of_(std::move(range_of)),
        turns_((range_of_.back() + 1) * static_cast<size_t>(dim_)) {
    for (int64_t i = 0; i < s.count(); ++i) {
      if (IsFirst(i % dim_)) TurnOf(i) += ComplexAt(s.run(), i) * std::conj(ComplexAt(s.ref(), i));
    }
    for (auto& turn : turns_) turn = std::abs(turn) > 0 ? turn / std::abs(turn) : 1;
  }

  // Element i of the reference, turned further.
  double Apply(int64_t i) const {
    const bool is_first = IsFirst(i % dim_);
    const int64_t first = is_first ? i : i - Distance();
    const auto turned = ComplexAt(s_->ref(), first) * turns_[Index(first)];
    return is_first ? turned.real() : turned.imag();
  }
  int64_t fitted() const { return static_cast<int64_t>(turns_.size()) / 2; }
  bool IsTurned(size_t range) const {
    constexpr double kVisible = 1e-3;
    const auto begin = turns_.begin() + static_cast<int64_t>(range) * dim_;
    return std::any_of(begin, begin + dim_,
                       [](const std::complex<double>& turn) { return std::abs(turn - 1.0) > kVisible; });
  }

 private:
  int64_t Distance() const { return pairing_ == Pairing::kInterleaved ? 1 : dim_ / 2; }
  bool IsFirst(int64_t e) const { return pairing_ == Pairing::kInterleaved ? e % 2 == 0 : e < dim_ / 2; }
  std::complex<double> ComplexAt(const HintTensor& t, int64_t i) const {
    return {t.values[static_cast<size_t>(i)], t.values[static_cast<size_t>(i + Distance())]};
  }
  size_t Index(int64_t i) const {
    return range_of_[static_cast<size_t>(i / width_)] * static_cast<size_t>(dim_) +
           static_cast<size_t>(i % dim_);
  }
  std::complex<double>& TurnOf(int64_t i) { return turns_[Index(i)]; }

  const HintSearch* s_;
  Pairing pairing_;
  int64_t dim_, width_;
  std::vector<size_t> range_of_;
  std::vector<std::complex<double>> turns_;  // [ranges, head_dim], at the first element of each pair
};

// The whole sequence has other positions, e.g. they are not centred.
bool TestPositions(HintSearch& s, const Rope& rope) {
  const FurtherTurns turns(s, rope.pairing(), std::vector<size_t>(static_cast<size_t>(s.ref().shape[1]), 0));
  const auto fit = s.Test([&](int64_t i) { return turns.Apply(i); }, {.fitted = turns.fitted()});
  if (!fit) return false;
  s.Add("rope_positions", *fit,
        "RoPE starts at other positions: every pair is turned by one further angle, the same for all tokens. "
        "A picture's rows and columns are centred around 0; the text goes on after the larger of the two "
        "halves.");
  return true;
}

// Every pair is turned by some angle, which all heads share.
bool TestAngles(HintSearch& s, const HintTensor& before, Pairing pairing) {
  if (before.shape[2] < 2) return false;  // one head can be turned into any other of its length
  const Rope own(before, s.run(), pairing);
  const int64_t fitted = before.shape[1] * before.shape[3] / 2;
  const auto fit = s.Test([&](int64_t i) { return own.Apply(i, pairing, pairing); }, {.fitted = fitted});
  if (!fit) return false;
  s.Add("rope_angles", *fit,
        "RoPE turns the right pairs by other angles, the same for all heads. Look at theta, at rows and "
        "columns "
        "that changed places, at the order of the axes (frame, row, column) and how many pairs each has, "
        "at one table used for all axes, and at the positions of single rows or columns.");
  return true;
}

// Which segments have other positions tells what went wrong.
std::string MeaningOf(const std::vector<JointLayout::Segment>& segments, const std::vector<bool>& turned) {
  const auto first = static_cast<size_t>(std::find(turned.begin(), turned.end(), true) - turned.begin());
  constexpr const char* kText = "Text advances by one position a token, on all three axes.";
  if (first == turned.size()) return kText;
  if (first == 0)
    return "The first of the prompt's own tokens, behind the template's that are dropped, has position 0.";
  bool text_is_turned = false;
  for (size_t i = first; i < segments.size(); ++i)
    text_is_turned = text_is_turned || (segments[i].is_text && turned[i]);
  if (!segments[first].is_text && !text_is_turned)
    return "The text is right, a picture is not: its rows and columns are counted from its centre, and its "
           "frame is the position that the text before it has reached.";
  if (!segments[first - 1].is_text)
    return "What follows a picture is wrong: it goes on behind the picture's longer side, so the position "
           "grows by the larger of height and width.";
  return kText;
}

// Some segments of a joint sequence have other positions.
bool TestSegmentPositions(HintSearch& s, const Rope& rope, const JointLayout& layout) {
  const FurtherTurns turns(s, rope.pairing(), layout.SegmentOfTokens());
  const auto fit = s.Test([&](int64_t i) { return turns.Apply(i); }, {.fitted = turns.fitted()});
  if (!fit) return false;
  std::vector<bool> turned;
  std::string where;
  for (size_t i = 0; i < layout.segments.size(); ++i) {
    const JointLayout::Segment& segment = layout.segments[i];
    turned.push_back(turns.IsTurned(i));
    if (!turned.back()) continue;
    where += fmt::format("{}{} {}…{}", where.empty() ? "" : ", ", segment.is_text ? "text" : "picture",
                         segment.begin, segment.end - 1);
  }
  s.Add("rope_positions", *fit,
        fmt::format("Some tokens have other positions; each range of them is turned by one further angle a "
                    "pair: {}. {}",
                    where, MeaningOf(layout.segments, turned)));
  return true;
}

bool TestRope(HintSearch& s, const HintTensor& before) {
  Rope rope(before, s.ref(), Pairing::kInterleaved);
  const auto right = [&](int64_t i) { return rope.Apply(i, rope.pairing(), rope.pairing()); };
  if (!s.ExplainsReference(right)) {
    rope = Rope(before, s.ref(), Pairing::kHalves);
    if (!s.ExplainsReference(right)) return false;
  }
  if (const auto fit = s.Test([&](int64_t i) { return rope.X(i); })) {
    s.Add("rope_not_applied", *fit, "RoPE was not applied: this is the tensor before it.");
    return true;
  }
  const bool interleaved = rope.pairing() == Pairing::kInterleaved;
  for (const Pairing pairing : {Pairing::kInterleaved, Pairing::kHalves}) {
    for (const Pairing angles : {Pairing::kInterleaved, Pairing::kHalves}) {
      if (pairing == rope.pairing() && angles == rope.pairing()) continue;
      const auto fit = s.Test([&](int64_t i) { return rope.Apply(i, pairing, angles); });
      if (!fit) continue;
      s.Add("rope_pairing", *fit,
            fmt::format(
                "RoPE in the other pairing: the reference turns {}, the run {}{}. Look at rotate_half and "
                "at how the cosines are repeated.",
                interleaved ? "neighbours (2j, 2j + 1) together" : "element j with j + head_dim/2",
                pairing == Pairing::kInterleaved ? "neighbours" : "element j with j + head_dim/2",
                angles == pairing ? "" : ", with the angles laid out for the other pairing"));
      return true;
    }
  }
  if (const auto fit =
          s.Test([&](int64_t i) { return rope.Apply(i, rope.pairing(), rope.pairing(), true); })) {
    s.Add("rope_direction", *fit, "RoPE turns the wrong way: the sine has the opposite sign.");
    return true;
  }
  const auto layout = ReadJointLayout(s);
  return (layout ? TestSegmentPositions(s, rope, *layout) : TestPositions(s, rope)) ||
         TestAngles(s, before, rope.pairing());
}

}  // namespace

bool TestRopeHints(HintSearch& s, const BlockName& block) {
  for (const StreamNames& stream : s.family().streams) {
    const bool query = IsNamed(block.rest, stream.query_rope);
    if (!query && !IsNamed(block.rest, stream.key_rope)) continue;
    const auto before =
        s.OtherRef(block.prefix + std::string(query ? stream.query_norm : stream.key_norm), s.count());
    const Shape& shape = s.ref().shape;
    if (!before || before->shape != shape || shape.size() != 4 || shape[0] != 1 || shape[3] % 2 != 0)
      return false;
    return TestRope(s, *before);
  }
  return false;
}

}  // namespace qwen_image::hints
