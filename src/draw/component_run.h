// One component alone, on tensors that another run computed: to see whether it is this component that errs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "families/component.h"
#include "qwen_image/qwen_image.h"

namespace qwen_image::draw {

// The tensors of another run by checkpoint name; nothing where it has none.
class ComponentInputs {
 public:
  virtual ~ComponentInputs() = default;
  virtual std::optional<Tensor> Floats(const std::string& checkpoint) const = 0;
  virtual std::optional<std::vector<int64_t>> Ids(const std::string& checkpoint) const = 0;
};

// text_encoder reads input_ids (and negative_input_ids, if there), and of an edit pixel_values and
// image_grid_thw; transformer reads prompt_embeds, packed_latents_stepN for every N that is there,
// negative_prompt_embeds with guidance, and of an edit image_latents; vae reads vae/pre_decode_latents, or
// final_latents_packed, and every vae_imageN that is there. The outputs go to hooks.checkpoints. Throws Error
// kBadInput if an input is missing or has a shape that does not fit the model. Returns the picture if the
// component makes any.
std::optional<Image> RunComponent(const Pipeline& pipeline, Component component,
                                  const GenerateRequest& request, const ComponentInputs& inputs,
                                  const GenerateHooks& hooks);

}  // namespace qwen_image::draw
