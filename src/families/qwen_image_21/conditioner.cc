#include "families/qwen_image_21/conditioner.h"

#include <algorithm>
#include <utility>

#include "core/fail.h"
#include "families/qwen_image_21/joint_sequence.h"
#include "families/qwen_image_21/prompt.h"
#include "kernels/resize.h"

namespace qwen_image::qwen_image_21 {
namespace {

// The published model's processor/preprocessor_config.json.
constexpr VisionProcessorConfig kPublishedProcessor = {.min_pixels = 65536,
                                                       .max_pixels = 16777216,
                                                       .patch_size = 16,
                                                       .image_mean = {0.5, 0.5, 0.5},
                                                       .image_std = {0.5, 0.5, 0.5}};

// A picture's copy for the vision encoder: resized with its alpha, then laid over white. The transformer puts
// latents in the place of its tokens, so the image processor must not change its size once more.
VisionPatches PatchesOf(const Image& image, ImageSize size, const VisionProcessorConfig& config,
                        ThreadPool& pool) {
  if (const ImageSize again = SmartResize(size, config); again != size) {
    Fail(ErrorKind::kBadInput,
         "a picture is edited at {}x{}, but the vision encoder would see it at {}x{}: it takes {} to {} "
         "pixels, and sides that are multiples of {}; another vae_area is needed",
         size.width, size.height, again.width, again.height, config.min_pixels, config.max_pixels,
         config.patch_size * config.merge_size);
  }
  return PreprocessForVision(OverWhite(Resize(image, size.width, size.height, ResizeFilter::kLanczos, pool)),
                             config, pool);
}

// Before anything is computed: text that is longer than the transformer's positions reach. A picture takes as
// many of them as its longer side has latents, which are as large as patches.
void CheckPositions(const EncodedPrompt& prompt, std::span<const ImageGrid> grids,
                    std::span<const int64_t> image_tokens) {
  int64_t positions = prompt.own_ids();
  for (const int64_t tokens : image_tokens) positions -= tokens;
  for (const ImageGrid& grid : grids) positions += std::max(grid.h, grid.w);
  CheckPosition(positions);
}

}  // namespace

QwenImage21Conditioner::QwenImage21Conditioner(const ModelParts& parts, Precision precision)
    : tokenizer_(parts.tokenizer),
      encoders_(parts, precision),
      vision_processor_(ReadVisionProcessorConfig(parts.root / "processor", kPublishedProcessor)) {}

int64_t QwenImage21Conditioner::image_token() const { return tokenizer_.TokenId(kImageToken); }

EncodedPrompt QwenImage21Conditioner::Tokenize(const std::string& text, const VisionImages& pictures,
                                               const PromptOptions& options) const {
  const auto special =
      options.parse_special_tokens ? Tokenizer::SpecialTokens::kParse : Tokenizer::SpecialTokens::kLiteral;
  std::vector<int64_t> tokens;
  for (const ImageGrid& grid : pictures.grids) tokens.push_back(grid.tokens(vision_processor_.merge_size));
  EncodedPrompt prompt = EncodePrompt(tokenizer_, text, tokens, special);
  CheckPositions(prompt, pictures.grids, tokens);
  return prompt;
}

EncodedPrompt QwenImage21Conditioner::TakeIds(std::vector<int64_t> ids, const VisionImages& pictures,
                                              const PromptOptions&) const {
  EncodedPrompt prompt{.ids = std::move(ids), .dropped = DroppedTokens(tokenizer_)};
  if (pictures.any()) prompt.image_token = image_token();
  if (prompt.own_ids() <= 0)
    Fail(ErrorKind::kBadInput, "{} tokens, no more than the {} of the template", prompt.ids.size(),
         prompt.dropped);
  return prompt;
}

VisionImages QwenImage21Conditioner::Look(std::span<const Image> images,
                                          std::span<const EditInputSizes> sizes, ThreadPool& pool) const {
  if (images.empty()) return {};
  std::vector<VisionPatches> pictures;
  for (size_t i = 0; i < images.size(); ++i)
    pictures.push_back(PatchesOf(images[i], sizes[i].condition, vision_processor_, pool));
  VisionImages seen{.pixel_values = JoinPatches(pictures), .grids = {}, .features = {}};
  for (const auto& [patches, grid] : pictures) seen.grids.push_back({grid[0], grid[1], grid[2]});
  return seen;
}

void QwenImage21Conditioner::Embed(VisionImages& pictures, const Compute& compute, const Tap& tap) const {
  const VisionEncoder& vision = encoders_.vision();
  pictures.features = vision.Encode(pictures.pixel_values, pictures.grids, compute, tap);
  vision.store().ThrowIfDamaged();
}

Tensor QwenImage21Conditioner::Encode(const EncodedPrompt& prompt, const VisionImages& pictures,
                                      const Compute& compute, const Tap& tap,
                                      const OnPositions& on_positions) const {
  Tensor hidden_states;
  if (pictures.any()) {
    const PromptImages images{pictures.features.front(), pictures.grids, prompt.image_token,
                              encoders_.vision().config().spatial_merge_size};
    if (on_positions) on_positions(GetRopeIndex(prompt.ids, &images));
    hidden_states =
        encoders_.text().Encode(prompt.ids, images, std::span(pictures.features).subspan(1), compute, tap);
  } else {
    hidden_states = encoders_.text().Encode(prompt.ids, compute, tap);
  }
  encoders_.text().store().ThrowIfDamaged();
  return hidden_states;
}

}  // namespace qwen_image::qwen_image_21
