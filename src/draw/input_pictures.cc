#include "draw/input_pictures.h"

#include <fmt/format.h>

#include <algorithm>

#include "files/digest.h"
#include "model/image_processor.h"
#include "model/token_latents.h"

namespace qwen_image::draw {

VisionImages LookAtImages(const Run& run, std::span<const Image> images) {
  if (images.empty()) return {};
  VisionImages seen = run.model.conditioner().Look(images, run.settings.references, run.compute.pool);
  std::vector<int64_t> grid_values;
  for (const ImageGrid& grid : seen.grids) grid_values.insert(grid_values.end(), {grid.t, grid.h, grid.w});
  run.tap("pixel_values", seen.pixel_values);
  run.tap("image_grid_thw", grid_values.data(), {static_cast<int64_t>(seen.grids.size()), 3});
  return seen;
}

std::string DigestOf(const VisionImages& pictures) {
  if (!pictures.any()) return "";
  Digest digest(Digest::Kind::kSha256, 0);
  for (const ImageGrid& grid : pictures.grids) digest.Add(fmt::format("{} {} {} ", grid.t, grid.h, grid.w));
  digest.Add({reinterpret_cast<const char*>(pictures.pixel_values.data()),
              static_cast<size_t>(pictures.pixel_values.size()) * sizeof(float)});
  return digest.Finish();
}

Tensor EncodePixels(const Run& run, const Tensor& pixels, size_t index) {
  const auto pictures = static_cast<int64_t>(std::max<size_t>(1, run.settings.references.size()));
  const Compute compute = run.compute.ForPass(static_cast<int64_t>(index), pictures);
  const auto profiled = Profile::Scope::Component(run.compute.profile, "vae");
  const bool tiled = run.geometry().TilesInput(run.request.vae_tiling, {pixels.dim(3), pixels.dim(2)});
  return run.model.autoencoder().Encode(pixels, tiled, compute,
                                        run.tap.Under(fmt::format("vae.image{}/", index)));
}

namespace {

Tensor EncodeImage(const Run& run, const Image& image, ImageSize size, size_t index) {
  Tensor pixels = run.model.autoencoder().Preprocess(image, size, run.compute.pool);
  run.tap(fmt::format("vae_image{}", index), pixels);
  return EncodePixels(run, pixels, index);
}

}  // namespace

PictureLatents EncodePictures(const Run& run, std::span<const Image> images,
                              const std::optional<Source>& source, TorchGenerator& generator) {
  const Autoencoder& autoencoder = run.model.autoencoder();
  const Settings& s = run.settings;
  PictureLatents latents;
  if (source) {
    latents.source =
        autoencoder.Latents(EncodeImage(run, source->image, {s.width, s.height}, 0), s.grid, &generator);
    if (!images.empty()) latents.references = latents.source.Clone();
    if (source->mask) {
      latents.mask =
          autoencoder.PackMask(PreprocessMask(*source->mask, s.width, s.height, run.compute.pool), s.grid);
      run.tap("mask_packed", latents.mask);
    }
  } else {
    for (size_t i = 0; i < images.size(); ++i) {
      const ImageSize size = s.references[i].vae;
      Tensor packed =
          autoencoder.Latents(EncodeImage(run, images[i], size, i), run.geometry().GridOf(size), nullptr);
      latents.references = i == 0 ? std::move(packed) : JoinPacked(latents.references, packed);
    }
  }
  if (source || !images.empty()) run.tap("image_latents", source ? latents.source : latents.references);
  return latents;
}

}  // namespace qwen_image::draw
