// The stages of a run: prompt → embeddings, latents + embeddings → velocity, latents → picture. Shared by the
// whole pipeline (generate.cc) and by runs of one component (component_run.cc).
#pragma once

#include <optional>

#include "core/checkpoint.h"
#include "pipeline/pipeline_impl.h"

namespace qwen_image {

enum class Which { kPositive, kNegative };  // prompt

// What the stages of one run share.
struct Run {
  const GenerateRequest& request;
  const Settings& settings;
  const Compute& compute;
  Tap tap;

  // With guidance every prompt and every step takes two passes, one for each prompt.
  Compute PassFor(Which which) const {
    return compute.ForPass(which == Which::kNegative, settings.guided() ? 2 : 1);
  }
};

struct EncodedText {
  Tensor embeds;  // [1, tokens, width]
  int64_t prompt_tokens = 0;
  bool truncated = false;
  bool from_cache = false;
};

EncodedText EncodeText(const Pipeline::Impl& model, const Run& run, const std::string& prompt, Which which);

// The second half of EncodeText: embeddings of the ids without the template's first ones.
Tensor EncodeIds(const Pipeline::Impl& model, const Run& run, const std::vector<int64_t>& ids, Which which);

Tensor MakeInitialLatents(const Run& run, int64_t channels);
Schedule MakeTappedSchedule(const Pipeline::Impl& model, const Run& run);

// The guided velocity of a step; `negative_embeds` is null without guidance.
Tensor PredictNoise(const Pipeline::Impl& model, const Run& run, const Tensor& latents,
                    const Tensor& prompt_embeds, const Tensor* negative_embeds, float timestep, int64_t step);

// VAE latents [1, z, 1, h / 8, w / 8], denormalised → picture [1, 3, h, w] in [−1, 1].
Tensor DecodePicture(const Pipeline::Impl& model, const Run& run, Tensor latents);

// [1, 3, h, w] in [−1, 1] → [h, w, 3] in 0…255, rounding halves to even as NumPy does. Throws Error kBadInput
// for NaN and infinity, with the tensor of the model that they come from if it can be found.
std::vector<uint8_t> ToRgb(const Pipeline::Impl& model, const Tensor& image);

}  // namespace qwen_image
