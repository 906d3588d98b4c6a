// The stages of a run: prompt → embeddings, latents + embeddings → velocity, latents → picture. (For pictures
// that go in see input_pictures.h.) Shared by whole drawings (drawing.cc) and by runs of one component
// (component_run.cc).
#pragma once

#include "core/rng.h"
#include "draw/input_pictures.h"
#include "draw/run.h"
#include "keep/identity.h"
#include "keep/prompt_cache.h"

namespace qwen_image::draw {

struct EncodedText {
  Tensor embeds;             // [1, tokens, width]
  std::vector<int64_t> ids;  // of the embeddings; empty: unknown
  int64_t prompt_tokens = 0;
  bool truncated = false;
  bool from_cache = false;
};

// Embeddings that were computed before, and what tells whether they are those of these weights.
struct PromptMemory {
  keep::PromptCache& prompts;
  keep::Identities& identities;
};

EncodedText EncodeText(const Run& run, PromptMemory memory, const std::string& prompt, PromptRole role,
                       VisionImages& pictures);

// The second half of EncodeText: embeddings of the ids without the template's first ones.
Tensor EncodeIds(const Run& run, const EncodedPrompt& prompt, PromptRole role, VisionImages& pictures);

// The noise of the seed, or the one that was given.
Tensor DrawNoise(const Run& run, TorchGenerator& generator);
Schedule MakeTappedSchedule(const Run& run);

// The guided velocities of a run's steps.
class Denoising {
 public:
  // All must outlive this object. `negative`: null without guidance; `references`: see PictureLatents; `note`
  // may be empty.
  Denoising(const Run& run, const EncodedText& text, const EncodedText* negative, const Tensor& references,
            const std::function<void(const std::string&)>& note = {});
  Tensor Velocity(const Tensor& latents, float timestep, int64_t step);

 private:
  const Run& run_;
  bool guided_;
  std::unique_ptr<DenoiserPass> pass_;
};

// What the autoencoder unpacked → picture [1, channels, h, w] in [−1, 1].
Tensor DecodeLatents(const Run& run, Tensor latents);

// [1, 3 or 4, h, w] in [−1, 1] → 0…255, rounding halves to even as NumPy does. Throws Error kBadInput for NaN
// and infinity, with the tensor of the model that they come from if it can be found.
Image ToImage(const Model& model, const Tensor& image);

}  // namespace qwen_image::draw
