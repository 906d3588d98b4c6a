#include "pipeline/memory_check.h"

#include <algorithm>
#include <filesystem>

#include "core/fail.h"
#include "weights/files.h"
#include "weights/memory.h"

namespace qwen_image {
namespace {

constexpr int64_t kFloat = sizeof(float);

int64_t Area(ImageSize size) { return size.width * size.height; }

std::string HumanBytes(int64_t bytes) {
  const auto amount = static_cast<double>(bytes);
  return amount < 1e9 ? fmt::format("{:.0f} MB", amount / 1e6) : fmt::format("{:.1f} GB", amount / 1e9);
}

// Of a file or of all files with weights in a folder. What cannot be read gets its error where it is opened.
int64_t WeightBytes(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) {
    return static_cast<int64_t>(std::filesystem::file_size(path, error));
  }
  int64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    const bool weights =
        entry.path().extension() == kWeightsEnding || entry.path().extension() == kGgufEnding;
    if (weights && entry.is_regular_file(error)) bytes += static_cast<int64_t>(entry.file_size(error));
  }
  return bytes;
}

// In rows of inner_dim for a token: residual streams of both prompts (2), the input and output of a layer
// (2), q, k, v and the attention's output (4), its packed keys and values (2), the MLP's fourfold hidden
// layer (4), and that in 8 bits (1).
int64_t TransformerWorkspace(const TransformerConfig& config, const GenerateRequest& request,
                             const Settings& settings) {
  int64_t tokens = settings.grid.tokens() + request.max_sequence_length;
  for (const EditInputSizes& sizes : settings.references) {
    // Its latents, and its share of the prompt: a token for 28 × 28 pixels.
    tokens += Area(sizes.vae) / (kPixelsPerToken * kPixelsPerToken) + Area(sizes.condition) / (28 * 28);
  }
  return tokens * config.inner_dim() * 15 * kFloat;
}

// The decoder's last upsampling holds its input (half as many numbers) and its output, of base_dim channels a
// pixel. Beside them: a band of a residual block, the filters of its two convolutions in the form they are
// multiplied in (36 numbers for 9), and the picture in two layouts. The encoder needs no more for a picture
// of the same size.
int64_t VaeWorkspace(const VaeConfig& config, const GenerateRequest& request, const Settings& settings) {
  constexpr int64_t kBand = 36 * 1000 * 1000;
  int64_t picture = 0, pixels = 0;  // of the largest, and of what is in work at once
  const auto consider = [&](ImageSize size) {
    const bool tiled = UseTiling(request, size.width, size.height);
    constexpr int64_t kTile = kLargePictureTiling.min_size * kLargePictureTiling.min_size;
    picture = std::max(picture, Area(size));
    pixels = std::max(pixels, tiled ? std::min(Area(size), kTile) : Area(size));
  };
  consider({settings.width, settings.height});
  for (const EditInputSizes& sizes : settings.references) consider(sizes.vae);
  const int64_t widest = config.base_dim * *std::max_element(config.dim_mult.begin(), config.dim_mult.end());
  return pixels * config.base_dim * 3 / 2 * kFloat + kBand + 2 * 36 * widest * widest * kFloat +
         2 * picture * config.input_channels * kFloat;
}

}  // namespace

bool UseTiling(const GenerateRequest& request, int64_t width, int64_t height) {
  switch (request.vae_tiling) {
    case GenerateRequest::Tiling::kOn:
      return true;
    case GenerateRequest::Tiling::kOff:
      return false;
    case GenerateRequest::Tiling::kAuto:
      break;
  }
  return width * height > kUntiledPixels;
}

void CheckWeightsFit(const ModelParts& parts) {
  const int64_t available = AvailableMemory();
  const int64_t largest =
      std::max({WeightBytes(parts.text_encoder), WeightBytes(parts.transformer), WeightBytes(parts.vae)});
  if (largest > available) {
    Fail(ErrorKind::kOutOfMemory,
         "{}: the largest part of the model needs {} of memory, but only {} are "
         "available; use a machine with more memory, or switch this check off (check_memory; in the program "
         "--ignore-memory) to read from disk at every step, which is very slow",
         parts.root.string(), HumanBytes(largest), HumanBytes(available));
  }
}

MemoryNeed EstimateMemory(const TextEncoder& text_encoder, const Transformer& transformer, const Vae& vae,
                          const GenerateRequest& request, const Settings& settings) {
  return {
      .encode = text_encoder.store().total_bytes(),
      .denoise = transformer.total_bytes() + TransformerWorkspace(transformer.config(), request, settings),
      .decode = vae.store().total_bytes() + VaeWorkspace(vae.config(), request, settings)};
}

void CheckWorkspaceFits(const Pipeline::Impl& model, const GenerateRequest& request,
                        const Settings& settings) {
  const int64_t available = AvailableMemory();
  const int64_t needed =
      EstimateMemory(model.text_encoder, model.transformer, model.vae, request, settings).largest();
  if (needed > available) {
    Fail(ErrorKind::kOutOfMemory,
         "a picture of {}x{} needs about {} of memory with this model, but only {} are "
         "available; choose a smaller size",
         settings.width, settings.height, HumanBytes(needed), HumanBytes(available));
  }
}

}  // namespace qwen_image
