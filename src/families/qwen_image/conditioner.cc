#include "families/qwen_image/conditioner.h"

#include <algorithm>
#include <utility>

#include "core/fail.h"
#include "kernels/resize.h"

namespace qwen_image {

QwenImageConditioner::QwenImageConditioner(const ModelParts& parts, const EditModel& edit,
                                           Precision precision)
    : edit_(edit),
      tokenizer_(parts.tokenizer),
      encoders_(parts, precision),
      vision_processor_(ReadVisionProcessorConfig(parts.root / "processor")) {}

EncodedPrompt QwenImageConditioner::Tokenize(const std::string& text, const VisionImages& pictures,
                                             const PromptOptions& options) const {
  const auto special =
      options.parse_special_tokens ? Tokenizer::SpecialTokens::kParse : Tokenizer::SpecialTokens::kLiteral;
  if (!pictures.any()) {
    EncodedPrompt prompt = EncodePrompt(tokenizer_, text, special);
    prompt.most_embeds = options.max_sequence_length;
    return prompt;
  }
  // The edit pipelines use the whole text, whatever its length.
  std::vector<int64_t> tokens;
  for (const ImageGrid& grid : pictures.grids) tokens.push_back(grid.tokens(vision_processor_.merge_size));
  return EncodeEditPrompt(tokenizer_, text, edit_.TemplateFor(options.repairs), tokens, special);
}

EncodedPrompt QwenImageConditioner::TakeIds(std::vector<int64_t> ids, const VisionImages& pictures,
                                            const PromptOptions& options) const {
  EncodedPrompt prompt{.ids = std::move(ids), .dropped = kTextToImageTemplate.dropped_tokens};
  if (pictures.any()) {
    prompt.dropped = kEditTemplate.dropped_tokens;
    prompt.image_token = tokenizer_.TokenId(kImageToken);
  } else {
    prompt.most_embeds = options.max_sequence_length;
  }
  if (prompt.own_ids() <= 0)
    Fail(ErrorKind::kBadInput, "{} tokens, no more than the {} of the template", prompt.ids.size(),
         prompt.dropped);
  return prompt;
}

VisionImages QwenImageConditioner::Look(std::span<const Image> images, std::span<const EditInputSizes> sizes,
                                        ThreadPool& pool) const {
  if (images.empty()) return {};
  std::vector<VisionPatches> pictures;
  for (size_t i = 0; i < images.size(); ++i) {
    const ImageSize size = sizes[i].condition;
    pictures.push_back(PreprocessForVision(
        Resize(images[i], size.width, size.height, ResizeFilter::kLanczos, pool), vision_processor_, pool));
  }
  VisionImages seen{.pixel_values = JoinPatches(pictures), .grids = {}, .features = {}};
  for (const auto& [patches, grid] : pictures) seen.grids.push_back({grid[0], grid[1], grid[2]});
  return seen;
}

void QwenImageConditioner::Embed(VisionImages& pictures, const Compute& compute, const Tap& tap) const {
  const VisionEncoder& vision = encoders_.vision();
  pictures.features.push_back(vision.Encode(pictures.pixel_values, pictures.grids, compute, tap));
  vision.store().ThrowIfDamaged();
}

Tensor QwenImageConditioner::Encode(const EncodedPrompt& prompt, const VisionImages& pictures,
                                    const Compute& compute, const Tap& tap,
                                    const OnPositions& on_positions) const {
  Tensor hidden_states;
  if (pictures.any()) {
    const PromptImages images{pictures.features.front(), pictures.grids, prompt.image_token,
                              encoders_.vision().config().spatial_merge_size};
    if (on_positions) on_positions(GetRopeIndex(prompt.ids, &images));
    hidden_states = encoders_.text().Encode(prompt.ids, images, compute, tap);
  } else {
    hidden_states = encoders_.text().Encode(prompt.ids, compute, tap);
  }
  encoders_.text().store().ThrowIfDamaged();
  return hidden_states;
}

}  // namespace qwen_image
