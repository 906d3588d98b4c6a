// A toy family: the smallest model that draws. It shows what a family has to bring (docs/add_a_model.md), and
// tests register it to prove that nothing outside of a family's folder has to change.
//
//   prompt → bytes → words (a table)                                        the conditioner
//   h = in(latents) + mean of words; h += mix(h) for each mixer; out(h)     the denoiser
//   pixels = latents · to_rgb, 4 × 4 pixels alike                           the autoencoder
//
// A toy whose to_rgb has a fourth row draws with alpha. Such a toy takes pictures to edit, too, though they
// change nothing: they pass the autoencoder.
#pragma once

#include <filesystem>

#include "families/checkpoint_names.h"
#include "families/family.h"

namespace qwen_image {

extern const Vocabulary kToyVocabulary;
const Family& ToyFamily();

struct ToyFiles {
  float mixer_1 = 0;     // added to the first weight of the second mixer
  int64_t channels = 3;  // of its pictures
};
// Writes a model with weights of a fixed seed.
void WriteToyModel(const std::filesystem::path& folder, const ToyFiles& files = {});

}  // namespace qwen_image
