// Pictures in a prompt: their places, and their positions on the three axes of M-RoPE.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/fail.h"
#include "families/qwen_image/text_encoder.h"

namespace qwen_image {
namespace {

[[noreturn]] void FailCounts(int64_t found, int64_t pictures, int64_t expected) {
  Fail(ErrorKind::kBadInput,
       "the prompt holds {} image tokens, but its {} pictures need {}; tokenizer, image processor and vision "
       "encoder do not belong together",
       found, pictures, expected);
}

// The three axes of position_ids [3, tokens] as they are written.
class PositionWriter {
 public:
  explicit PositionWriter(size_t tokens) : tokens_(tokens), ids_(3 * tokens) {}

  void Add(int64_t t, int64_t h, int64_t w) {
    ids_[written_] = t;
    ids_[tokens_ + written_] = h;
    ids_[2 * tokens_ + written_++] = w;
  }
  std::vector<int64_t> Take() { return std::move(ids_); }

 private:
  size_t tokens_, written_ = 0;
  std::vector<int64_t> ids_;
};

}  // namespace

std::vector<int64_t> GetRopeIndex(std::span<const int64_t> input_ids, const PromptImages* images) {
  PositionWriter positions(input_ids.size());
  int64_t next = 0;  // position of the next token of text
  size_t picture = 0;
  for (size_t i = 0; i < input_ids.size();) {
    if (!images || input_ids[i] != images->image_token) {
      positions.Add(next, next, next);
      ++next;
      ++i;
      continue;
    }
    const size_t run_end =
        static_cast<size_t>(std::find_if(input_ids.begin() + static_cast<ptrdiff_t>(i), input_ids.end(),
                                         [&](int64_t id) { return id != images->image_token; }) -
                            input_ids.begin());
    if (picture == images->grids.size()) break;  // counted below
    const ImageGrid& grid = images->grids[picture++];
    const int64_t merge = images->spatial_merge_size;
    if (grid.tokens(merge) != static_cast<int64_t>(run_end - i)) {
      Fail(ErrorKind::kBadInput,
           "picture {} has {} image tokens in the prompt, but its grid of {} x {} patches needs {}", picture,
           run_end - i, grid.h, grid.w, grid.tokens(merge));
    }
    for (int64_t t = 0; t < grid.t; ++t) {
      for (int64_t h = 0; h < grid.h / merge; ++h) {
        for (int64_t w = 0; w < grid.w / merge; ++w) positions.Add(next + t, next + h, next + w);
      }
    }
    next += std::max(grid.h, grid.w) / merge;
    i = run_end;
  }
  if (images) {
    const int64_t found = std::count(input_ids.begin(), input_ids.end(), images->image_token);
    int64_t expected = 0;
    for (const ImageGrid& grid : images->grids) expected += grid.tokens(images->spatial_merge_size);
    if (found != expected) FailCounts(found, static_cast<int64_t>(images->grids.size()), expected);
  }
  return positions.Take();
}

TextEncoder::RopeTables TextEncoder::MakeRope(const std::vector<int64_t>& position_ids) const {
  const auto tokens = static_cast<int64_t>(position_ids.size()) / 3;
  const int64_t half = config_.head_dim() / 2;
  RopeTables rope{Tensor({tokens, half}), Tensor({tokens, half})};
  size_t section = 0;
  int64_t section_end = config_.mrope_section[0];
  for (int64_t i = 0; i < half; ++i) {
    while (i >= section_end && section + 1 < config_.mrope_section.size())
      section_end += config_.mrope_section[++section];
    const int64_t* const positions = position_ids.data() + static_cast<int64_t>(section % 3) * tokens;
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(config_.head_dim());
    const float inv_freq = 1.0f / std::pow(static_cast<float>(config_.rope_theta), exponent);
    for (int64_t t = 0; t < tokens; ++t) {
      const float angle = static_cast<float>(positions[t]) * inv_freq;
      rope.cos.row(t)[i] = std::cos(angle);
      rope.sin.row(t)[i] = std::sin(angle);
    }
  }
  return rope;
}

void TextEncoder::SpliceImages(const std::vector<int64_t>& input_ids, const PromptImages& images,
                               Tensor& inputs_embeds) const {
  const auto& section = config_.mrope_section;
  if (std::accumulate(section.begin(), section.end(), int64_t{0}) != config_.head_dim() / 2) {
    Fail(ErrorKind::kBadInput, "{}: mrope_section {} does not share the {} frequencies of a head",
         store_.config_path(), ToString(section), config_.head_dim() / 2);
  }
  const int64_t hidden = config_.hidden_size;
  if (images.embeds.shape().size() != 2 || images.embeds.dim(1) != hidden) {
    Fail(ErrorKind::kBadInput,
         "{}: the vision encoder gives embeddings {}, but the text encoder is {} wide; they do not belong "
         "together",
         store_.path().string(), ToString(images.embeds.shape()), hidden);
  }
  const int64_t found = std::count(input_ids.begin(), input_ids.end(), images.image_token);
  if (images.embeds.dim(0) != found)
    FailCounts(found, static_cast<int64_t>(images.grids.size()), images.embeds.dim(0));
  int64_t next = 0;
  for (size_t i = 0; i < input_ids.size(); ++i) {
    if (input_ids[i] != images.image_token) continue;
    std::copy_n(images.embeds.row(next++), hidden, inputs_embeds.row(static_cast<int64_t>(i)));
  }
}

}  // namespace qwen_image
