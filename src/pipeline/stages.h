// The stages of a run: prompt → embeddings, latents + embeddings → velocity, latents → picture. (For pictures
// that go in see pictures.h.) Shared by the whole pipeline (generate.cc) and by runs of one component
// (component_run.cc).
#pragma once

#include "core/rng.h"
#include "pipeline/pictures.h"
#include "pipeline/run.h"

namespace qwen_image {

struct EncodedText {
  Tensor embeds;             // [1, tokens, width]
  std::vector<int64_t> ids;  // of the embeddings; empty: unknown
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
Tensor DrawNoise(const Pipeline::Impl& model, const Run& run, TorchGenerator& generator);
Schedule MakeTappedSchedule(const Pipeline::Impl& model, const Run& run);

// The guided velocities of a run's steps.
class Denoising {
 public:
  // All must outlive this object. `negative`: null without guidance; `references`: see PictureLatents; `note`
  // may be empty.
  Denoising(const Pipeline::Impl& model, const Run& run, const EncodedText& text, const EncodedText* negative,
            const Tensor& references, const std::function<void(const std::string&)>& note = {});
  Tensor Velocity(const Tensor& latents, float timestep, int64_t step);

 private:
  const Pipeline::Impl& model_;
  const Run& run_;
  bool guided_;
  std::unique_ptr<DenoiserPass> pass_;
};

// What the autoencoder unpacked → picture [1, channels, h, w] in [−1, 1].
Tensor DecodePicture(const Pipeline::Impl& model, const Run& run, Tensor latents);

// [1, 3 or 4, h, w] in [−1, 1] → 0…255, rounding halves to even as NumPy does. Throws Error kBadInput for NaN
// and infinity, with the tensor of the model that they come from if it can be found.
Image ToImage(const Pipeline::Impl& model, const Tensor& image);

}  // namespace qwen_image
