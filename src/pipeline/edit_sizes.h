// Which sizes an edit works at, as the official pipelines choose them, and what that does to the picture.
//
// The pipelines stretch every input to sides that are multiples of 32, so that circles become slightly oval,
// and return a picture of that size. An input whose sides are multiples of 32 already, and whose area is near
// the model's, stays as it is: exactly if max(width, height) · |√(area / (width · height)) - 1| is below 16
// pixels.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "model/image_processor.h"

namespace qwen_image {

// diffusers' calculate_dimensions: sides near `ratio` (width / height) with about `target_area` pixels.
// Throws Error kBadInput if a side would be empty.
ImageSize CalculateDimensions(int64_t target_area, double ratio);

struct EditAreas {
  int64_t vae_area = 1024 * 1024;
  // Of the vision encoder's pictures. Nothing for Qwen-Image-Edit, which shows it the VAE's picture.
  std::optional<int64_t> condition_area = 384 * 384;
};

struct EditInputSizes {
  ImageSize input;      // as it was read
  ImageSize condition;  // for the vision encoder, which resizes it once more (SmartResize)
  ImageSize vae;        // for the VAE
};

struct EditSizes {
  std::vector<EditInputSizes> inputs;  // in the request's order
  ImageSize working;                   // what the model draws
  ImageSize output;                    // what the user gets

  // From the edited (last) input to the picture the model draws, per axis: 1 is no change.
  double scale_x = 1;
  double scale_y = 1;
  // How much wider (positive) or narrower things become in the output than they are in the edited input, in
  // per cent.
  double stretch_percent = 0;
  // The model draws on the grid of the edited input's latents. It tends to zoom or to shift the picture
  // otherwise.
  bool same_grid = true;

  const EditInputSizes& edited() const { return inputs.back(); }
  bool resampled() const { return working != edited().input; }  // some pixels are not the input's own
};

struct EditSizeRequest {
  std::vector<ImageSize> inputs;
  EditAreas areas;
  std::optional<ImageSize> size;  // instead of the calculated one
  bool keep_size = false;  // resize what the model drew to the edited input's size, which undoes the stretch
};

// Throws Error kUsage if there is no input or `size` is too small.
EditSizes PlanEditSizes(const EditSizeRequest& request);

}  // namespace qwen_image
