// The stages of a run: prompt → embeddings, latents + embeddings → velocity, latents → picture. (For pictures
// that go in see pictures.h.) Shared by the whole pipeline (generate.cc) and by runs of one component
// (component_run.cc).
#pragma once

#include "core/rng.h"
#include "families/qwen_image/prompt.h"
#include "families/qwen_image/transformer_pass.h"
#include "pipeline/pictures.h"
#include "pipeline/run.h"

namespace qwen_image {

struct EncodedText {
  Tensor embeds;  // [1, tokens, width]
  int64_t prompt_tokens = 0;
  bool truncated = false;
  bool from_cache = false;
};

EncodedText EncodeText(const Pipeline::Impl& model, const Run& run, const std::string& prompt, Which which,
                       SeenPictures& pictures);

// The second half of EncodeText: embeddings of the ids without the template's first ones.
Tensor EncodeIds(const Pipeline::Impl& model, const Run& run, const EncodedPrompt& prompt, Which which,
                 SeenPictures& pictures);

// The noise of the seed, or the one that was given.
Tensor DrawNoise(const Run& run, int64_t channels, TorchGenerator& generator);
Schedule MakeTappedSchedule(const Pipeline::Impl& model, const Run& run);

// What the transformer is told beside the latents.
struct Conditions {
  const Tensor& prompt_embeds;
  const Tensor* negative_embeds;  // null without guidance
  const Tensor& references;       // see PictureLatents
};

// The guided velocity of a step.
Tensor PredictNoise(const Run& run, TransformerPass& transformer, const Tensor& latents,
                    const Conditions& conditions, float timestep, int64_t step);

// VAE latents [1, z, 1, h / 8, w / 8], denormalised → picture [1, 3, h, w] in [−1, 1].
Tensor DecodePicture(const Pipeline::Impl& model, const Run& run, Tensor latents);

// [1, 3, h, w] in [−1, 1] → 0…255, rounding halves to even as NumPy does. Throws Error kBadInput for NaN and
// infinity, with the tensor of the model that they come from if it can be found.
RgbImage ToRgb(const Pipeline::Impl& model, const Tensor& image);

}  // namespace qwen_image
