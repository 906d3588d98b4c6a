#include "model/prompt_images.h"

#include <algorithm>

#include "core/fail.h"

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

Tensor EmbedTokens(const WeightMatrix& embed_tokens, std::span<const int64_t> input_ids,
                   const std::filesystem::path& file) {
  Tensor x({1, static_cast<int64_t>(input_ids.size()), embed_tokens.cols});
  for (size_t t = 0; t < input_ids.size(); ++t) {
    const int64_t id = input_ids[t];
    if (id < 0 || id >= embed_tokens.rows) {
      Fail(ErrorKind::kBadInput,
           "{}: the tokenizer gave token {}, but the text encoder knows only {} tokens; tokenizer and "
           "text encoder do not belong together",
           file.string(), id, embed_tokens.rows);
    }
    DecodeRow(embed_tokens, id, 0, embed_tokens.cols, x.row(static_cast<int64_t>(t)));
  }
  return x;
}

void SpliceImages(std::span<const int64_t> input_ids, const PromptImages& images,
                  const std::filesystem::path& file, Tensor& inputs_embeds) {
  const int64_t hidden = inputs_embeds.dim(2);
  if (images.embeds.shape().size() != 2 || images.embeds.dim(1) != hidden) {
    Fail(ErrorKind::kBadInput,
         "{}: the vision encoder gives embeddings {}, but the text encoder is {} wide; they do not belong "
         "together",
         file.string(), ToString(images.embeds.shape()), hidden);
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
