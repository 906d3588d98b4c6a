#include "parity/hints/joint_layout.h"

#include <algorithm>

namespace qwen_image::hints {
namespace {

// The tokens of each given picture. A patch of the vision encoder is as large as a token of the denoiser.
std::vector<int64_t> GivenPictures(const HintSearch& s) {
  std::vector<int64_t> tokens;
  const auto grids = s.context().ref("image_grid_thw");
  if (!grids) return tokens;
  for (size_t i = 0; i + 2 < grids->values.size(); i += 3)
    tokens.push_back(static_cast<int64_t>(grids->values[i] * grids->values[i + 1] * grids->values[i + 2]));
  return tokens;
}

// Rows of two tensors that are as wide as each other.
bool SameRows(const HintTensor& a, int64_t row_a, const HintTensor& b, int64_t row_b, int64_t count) {
  const int64_t width = a.shape.back();
  if ((row_a + count) * width > static_cast<int64_t>(a.values.size()) ||
      (row_b + count) * width > static_cast<int64_t>(b.values.size()))
    return false;
  const auto begin = a.values.begin() + row_a * width;
  return std::equal(begin, begin + count * width, b.values.begin() + row_b * width);
}

// A picture begins where its embedded latents stand. All else is text. False if a picture is not found.
bool AddPrefix(const HintSearch& s, int64_t prefix, const std::vector<int64_t>& pictures,
               JointLayout& layout) {
  const std::string pass = s.name().substr(0, s.name().rfind('/') + 1);
  const auto joint = s.context().ref(pass + std::string(s.family().streams.front().input));
  const auto embedded = s.context().ref(pass + std::string(s.family().one_stream->pictures));
  if (!joint || !embedded || joint->shape.empty() || embedded->shape.empty() ||
      joint->shape.back() != embedded->shape.back())
    return false;
  size_t next = 0;
  int64_t row = 0;  // of the embedded pictures
  for (int64_t at = 0; at < prefix;) {
    if (next < pictures.size() && SameRows(*joint, at, *embedded, row, pictures[next])) {
      layout.segments.push_back({at, at + pictures[next], false});
      row += pictures[next++];
    } else if (layout.segments.empty() || !layout.segments.back().is_text) {
      layout.segments.push_back({at, at + 1, true});
    } else {
      ++layout.segments.back().end;
    }
    at = layout.segments.back().end;
  }
  return next == pictures.size();
}

}  // namespace

std::vector<size_t> JointLayout::SegmentOfTokens() const {
  std::vector<size_t> of;
  for (size_t i = 0; i < segments.size(); ++i)
    of.insert(of.end(), static_cast<size_t>(segments[i].end - segments[i].begin), i);
  return of;
}

std::optional<int64_t> PrefixOf(const HintSearch& s, int64_t tokens) {
  const auto drawn = s.context().ref("packed_latents_step0");
  if (!s.family().one_stream || !drawn || drawn->shape.size() != 3 || drawn->shape[1] > tokens) return {};
  return tokens - drawn->shape[1];
}

std::optional<JointLayout> ReadJointLayout(const HintSearch& s) {
  if (s.ref().shape.size() < 3 || s.ref().shape[0] != 1) return {};
  const int64_t tokens = s.ref().shape[1];
  const auto prefix = PrefixOf(s, tokens);
  if (!prefix) return {};
  JointLayout layout;
  const std::vector<int64_t> pictures = GivenPictures(s);
  if (!pictures.empty()) {
    if (!AddPrefix(s, *prefix, pictures, layout)) return {};
  } else if (*prefix > 0) {
    layout.segments.push_back({0, *prefix, true});
  }
  layout.segments.push_back({*prefix, tokens, false});
  return layout;
}

}  // namespace qwen_image::hints
