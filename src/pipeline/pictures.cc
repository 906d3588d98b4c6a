#include "pipeline/pictures.h"

#include <fmt/format.h>

#include <algorithm>

#include "families/qwen_image/latents.h"
#include "files/digest.h"
#include "kernels/resize.h"
#include "model/image_processor.h"
#include "pipeline/memory_check.h"

namespace qwen_image {

SeenPictures LookAtPictures(const Pipeline::Impl& model, const Run& run, std::span<const RgbImage> images) {
  if (images.empty()) return {};
  std::vector<VisionPatches> pictures;
  for (size_t i = 0; i < images.size(); ++i) {
    const EditInputSizes& sizes = run.settings.references[i];
    pictures.push_back(PreprocessForVision(
        Resize(images[i], sizes.condition.width, sizes.condition.height, ResizeFilter::kLanczos, model.pool),
        model.vision_processor, model.pool));
  }
  int64_t patches = 0;
  std::vector<ImageGrid> grids;
  std::vector<int64_t> grid_values;
  for (const VisionPatches& picture : pictures) {
    const auto& [t, h, w] = picture.image_grid_thw;
    patches += picture.pixel_values.dim(0);
    grids.push_back({t, h, w});
    grid_values.insert(grid_values.end(), {t, h, w});
  }
  Tensor pixel_values({patches, pictures.front().pixel_values.dim(1)});
  float* to = pixel_values.data();
  for (const VisionPatches& picture : pictures)
    to = std::copy_n(picture.pixel_values.data(), picture.pixel_values.size(), to);
  run.tap("pixel_values", pixel_values);
  run.tap("image_grid_thw", grid_values.data(), {static_cast<int64_t>(grids.size()), 3});
  return {std::move(pixel_values), std::move(grids)};
}

std::string SeenPictures::Digest() const {
  if (!any()) return "";
  qwen_image::Digest digest(qwen_image::Digest::Kind::kSha256, 0);
  for (const ImageGrid& grid : grids_) digest.Add(fmt::format("{} {} {} ", grid.t, grid.h, grid.w));
  digest.Add({reinterpret_cast<const char*>(pixel_values_.data()),
              static_cast<size_t>(pixel_values_.size()) * sizeof(float)});
  return digest.Finish();
}

const Tensor& SeenPictures::Embeds(const Pipeline::Impl& model, const Run& run) {
  if (!embeds_) {
    embeds_ = model.vision_encoder().Encode(pixel_values_, grids_, run.VisionPass(),
                                            run.tap.Under("text_encoder/"));
    model.vision_encoder().store().ThrowIfDamaged();
  }
  return *embeds_;
}

Tensor EncodePixels(const Pipeline::Impl& model, const Run& run, const Tensor& pixels, size_t index) {
  const auto pictures = static_cast<int64_t>(std::max<size_t>(1, run.settings.references.size()));
  const Compute compute = run.compute.ForPass(static_cast<int64_t>(index), pictures);
  if (UseTiling(run.request, pixels.dim(3), pixels.dim(2)))
    return model.vae.EncodeTiled(pixels, kLargePictureTiling, compute);
  return model.vae.Encode(pixels, compute, run.tap.Under(fmt::format("vae.image{}/", index)));
}

namespace {

// The posterior's moments of picture `index`.
Tensor EncodeImage(const Pipeline::Impl& model, const Run& run, const RgbImage& image, ImageSize size,
                   size_t index) {
  Tensor pixels = PreprocessForVae(image, size.width, size.height, model.pool);
  run.tap(fmt::format("vae_image{}", index), pixels);
  return EncodePixels(model, run, pixels, index);
}

}  // namespace

PictureLatents EncodePictures(const Pipeline::Impl& model, const Run& run, std::span<const RgbImage> images,
                              const std::optional<Source>& source, TorchGenerator& generator) {
  const VaeConfig& vae = model.vae.config();
  const Settings& s = run.settings;
  PictureLatents latents;
  if (source) {
    Tensor drawn = PosteriorSample(EncodeImage(model, run, source->image, {s.width, s.height}, 0), generator);
    NormalizeLatents(vae, Normalization::kMultiplyByInverse, drawn);
    latents.source = PackLatents(drawn, vae.z_dim, s.grid);
    if (!images.empty()) latents.references = latents.source.Clone();
    if (source->mask) {
      latents.mask =
          PackMask(PreprocessMask(*source->mask, s.width, s.height, model.pool), vae.z_dim, s.grid);
      run.tap("mask_packed", latents.mask);
    }
  } else if (!images.empty()) {
    for (size_t i = 0; i < images.size(); ++i) {
      const ImageSize size = s.references[i].vae;
      Tensor mean = PosteriorMode(EncodeImage(model, run, images[i], size, i));
      NormalizeLatents(vae, Normalization::kDivide, mean);
      Tensor packed = PackLatents(mean, vae.z_dim, GridOf(size));
      latents.references = i == 0 ? std::move(packed) : JoinPacked(latents.references, packed);
    }
  }
  if (source || !images.empty()) {
    run.tap("image_latents", source ? latents.source : latents.references);
    model.vae.store().ThrowIfDamaged();
  }
  return latents;
}

}  // namespace qwen_image
