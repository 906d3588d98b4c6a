// A loaded model as the pipeline sees it: what turns prompts into conditions, noise into latents and latents
// into pixels, and what has to be known of it beforehand. Each family implements these interfaces in its own
// folder; nothing else names its parts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/checkpoint.h"
#include "core/rng.h"
#include "core/tensor.h"
#include "families/component.h"
#include "families/vocabulary.h"
#include "files/json.h"
#include "lora/set.h"
#include "model/encoded_prompt.h"
#include "model/image_grid.h"
#include "model/image_processor.h"
#include "model/scheduler.h"
#include "model/token_grid.h"
#include "ops/interface.h"
#include "qwen_image/qwen_image.h"
#include "weights/store.h"

namespace qwen_image {

struct MlxWeightUse;   // mlx/weight_forms.h
struct ModelDefaults;  // weights/model_defaults.h

// How pixels, latents and tokens lie over each other.
struct Geometry {
  int64_t pixel_channels = 3;
  int64_t latent_channels = 0;
  int64_t pixels_per_latent = 8;     // along a side
  int64_t latents_per_token = 2;     // along a side
  int64_t side_multiple = 16;        // pixels: sides of a picture are multiples of this
  int64_t max_side = 8192;           // pixels
  int64_t untiled_pixels = 0;        // larger pictures pass the autoencoder in tiles unless told otherwise
  int64_t untiled_input_pixels = 0;  // the same on the way in; 0: not another number

  int64_t pixels_per_token() const { return pixels_per_latent * latents_per_token; }
  int64_t token_channels() const { return latent_channels * latents_per_token * latents_per_token; }
  TokenGrid GridOf(ImageSize size) const {
    return {size.height / pixels_per_token(), size.width / pixels_per_token()};
  }
  Shape PackedShape(TokenGrid grid) const { return {1, grid.tokens(), token_channels()}; }
  // As noise is drawn, and as users may give it.
  Shape PlainShape(TokenGrid grid) const {
    return {1, 1, latent_channels, latents_per_token * grid.height, latents_per_token * grid.width};
  }
  bool Tiles(GenerateRequest::Tiling asked, ImageSize size) const {
    if (asked != GenerateRequest::Tiling::kAuto) return asked == GenerateRequest::Tiling::kOn;
    return size.width * size.height > untiled_pixels;
  }
  bool TilesInput(GenerateRequest::Tiling asked, ImageSize size) const {
    if (asked != GenerateRequest::Tiling::kAuto || untiled_input_pixels == 0) return Tiles(asked, size);
    return size.width * size.height > untiled_input_pixels;
  }
};

// The sizes that a picture of an edit is brought to.
struct EditInputSizes {
  ImageSize input;      // as it was read
  ImageSize condition;  // for the conditioner
  ImageSize vae;        // for the autoencoder
};

// The defaults of a family with what the model's own folder says (qwen_image.json) in their place.
Defaults WithOwn(Defaults official, const ModelDefaults& own);

// What a request is checked against and filled in with.
struct ModelTraits {
  Defaults defaults;
  SchedulerConfig scheduler;
  // The noise levels that the model was made for, before the scheduler shifts them; empty: any number of
  // them.
  std::vector<double> sigmas;
  Geometry geometry;
  int64_t max_prompt_tokens = 0;  // the most that max_sequence_length may be
  bool cuts_prompts = true;       // at max_sequence_length; else all of a prompt is used
  // The sizes of an edit's pictures. `repairs`: a part of the only one is redrawn, or it gets margins.
  // Throws Error kUsage if this model does not edit, or not so many pictures.
  std::function<std::vector<EditInputSizes>(std::span<const ImageSize> inputs, bool repairs)> plan_edit;
  std::string note;  // what users should know about every picture; empty: nothing
  // What users should know about a picture of this size; empty: nothing. The function may be empty, too.
  std::function<std::string(ImageSize drawn, bool edits)> note_on_size;
};

// The pictures of an edit as the vision encoder reads them.
struct VisionImages {
  Tensor pixel_values;           // [patches, values of a patch]
  std::vector<ImageGrid> grids;  // in patches
  std::vector<Tensor>
      features;  // what the vision encoder makes of them, from Conditioner::Embed; empty before

  bool any() const { return !grids.empty(); }
};

struct PromptOptions {
  int64_t max_sequence_length = 512;
  bool parse_special_tokens = false;  // see GenerateRequest::reference_special_tokens
  bool repairs = false;               // see ModelTraits::plan_edit
};

// Prompts, and the pictures that they speak of → embeddings.
class Conditioner {
 public:
  virtual ~Conditioner() = default;
  virtual int64_t width() const = 0;  // of an embedding

  // Throws Error kUsage if the text is not valid UTF-8, or does not suit the pictures.
  virtual EncodedPrompt Tokenize(const std::string& text, const VisionImages& pictures,
                                 const PromptOptions& options) const = 0;
  // The same for ids that another run had. Throws Error kBadInput if there are too few.
  virtual EncodedPrompt TakeIds(std::vector<int64_t> ids, const VisionImages& pictures,
                                const PromptOptions& options) const = 0;

  // Resizes the pictures and cuts them into patches.
  virtual VisionImages Look(std::span<const Image> images, std::span<const EditInputSizes> sizes,
                            ThreadPool& pool) const = 0;
  // Throws Error kBadInput if the model cannot look at pictures.
  virtual void NeedVision() const = 0;
  virtual void Embed(VisionImages& pictures, const Compute& compute, const Tap& tap) const = 0;

  // Hidden states of all ids, [1, ids, width]; the pictures are embedded already. `on_positions` may be
  // empty; it gets the tokens' positions [axes, ids] where they are not simply 0, 1, 2, ….
  using OnPositions = std::function<void(const std::vector<int64_t>&)>;
  virtual Tensor Encode(const EncodedPrompt& prompt, const VisionImages& pictures, const Compute& compute,
                        const Tap& tap, const OnPositions& on_positions) const = 0;
};

// What the denoiser gets beside the latents; the same for all steps.
struct Conditions {
  struct Prompt {
    const Tensor* embeds = nullptr;  // [1, tokens, width of the conditioner]
    std::span<const int64_t> ids =
        {};  // of these embeddings: where pictures stand in the text; empty: unknown
  };
  std::vector<Prompt> prompts;  // the prompt and, with guidance, the negative one
  TokenGrid drawn;
  const Tensor* references = nullptr;  // [1, tokens of all, token channels]; null: none
  std::vector<TokenGrid> reference_grids;
  // Bytes, of the machine that has least: several that compute together must not decide differently. Nothing:
  // this machine alone computes.
  std::optional<int64_t> available_memory;
  std::function<void(const std::string&)> on_note;  // what a user should know; may be empty
};

// The passes of one run: scratch memory, and what need not be computed again at every step, live in it.
class DenoiserPass {
 public:
  virtual ~DenoiserPass() = default;
  // For each prompt the velocity, of the latents' shape [1, tokens, token channels], at `timestep`, which
  // runs from 1 (noise) to 0. `taps`: one for each prompt.
  virtual std::vector<Tensor> Predict(const Tensor& latents, float timestep, std::span<const Tap> taps) = 0;
};

class Denoiser {
 public:
  virtual ~Denoiser() = default;
  // All that is referred to must outlive the pass.
  virtual std::unique_ptr<DenoiserPass> Start(Conditions conditions, const Compute& compute) const = 0;
  // positive ← the velocity to follow.
  virtual void Guide(const Tensor& negative /*[1, tokens, channels]*/, float scale,
                     Tensor& positive /*same*/) const = 0;

  // For estimates: the layer that most of a step's time goes to, as it is computed, and of one pass the
  // operations in such layers and in attention, the blocks, and the values that go from block to block.
  virtual Linear TypicalLayer() const = 0;
  struct Work {
    double linear = 0, attention = 0;
    double blocks = 0, state = 0;
  };
  virtual Work WorkOf(TokenGrid grid, int64_t prompt_tokens) const = 0;
};

// Pixels ⇄ latents.
class Autoencoder {
 public:
  virtual ~Autoencoder() = default;
  // [1, pixel channels, height, width] of this size, in [−1, 1].
  virtual Tensor Preprocess(const Image& image, ImageSize size, ThreadPool& pool) const = 0;
  // What Latents takes: the latents' distribution. Whoever asks for tiles gets no taps.
  virtual Tensor Encode(const Tensor& pixels, bool tiled, const Compute& compute, const Tap& tap) const = 0;
  // Normalised and packed: drawn from the distribution or, without a generator, its mode.
  virtual Tensor Latents(const Tensor& encoded, TokenGrid grid, TorchGenerator* generator) const = 0;
  virtual Tensor Pack(const Tensor& plain /*Geometry::PlainShape*/, TokenGrid grid) const = 0;
  virtual Tensor PackMask(const Tensor& mask /*[1, 1, height, width]*/, TokenGrid grid) const = 0;

  virtual Shape DecodedShape(TokenGrid grid) const = 0;  // of what Unpack returns; height and width come last
  virtual Tensor Unpack(const Tensor& packed, TokenGrid grid) const = 0;  // no longer normalised
  // [1, pixel channels, height, width], about −1 to 1.
  virtual Tensor Decode(const Tensor& latents, bool tiled, const Compute& compute, const Tap& tap) const = 0;
};

// What a picture asks of the memory.
struct Workload {
  ImageSize picture;
  std::span<const EditInputSizes> references;
  int64_t prompt_tokens = 0;
  GenerateRequest::Tiling tiling = GenerateRequest::Tiling::kAuto;
};

// What the stages of a picture need: their weights and the activations, in bytes.
struct MemoryNeed {
  int64_t encode = 0, denoise = 0, decode = 0;
  int64_t denoise_more = 0;  // that the steps use to be faster, where it is there
  int64_t largest() const { return std::max({encode, denoise, decode}); }
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const Vocabulary& vocabulary() const = 0;
  virtual const ModelTraits& traits() const = 0;
  virtual const Conditioner& conditioner() const = 0;
  virtual const Denoiser& denoiser() const = 0;
  virtual const Autoencoder& autoencoder() const = 0;

  virtual const std::string& variant() const = 0;  // the family's name for it; empty where nothing tells
  virtual std::string id() const = 0;              // family and variant, as a server lists models
  virtual bool edits() const = 0;
  virtual Json EditIdentity() const = 0;  // what else decides how an edit is drawn
  // diffusers' class for such a request.
  virtual std::string PipelineClass(const GenerateRequest& request) const = 0;
  // Whether it has the size of the published model: for that there are known ranges and figures.
  virtual bool published_size() const = 0;

  // Null for a vision encoder that was not needed yet.
  virtual const WeightStore* StoreOf(Component component) const = 0;
  virtual const lora::Set& loras() const = 0;
  virtual MemoryNeed EstimateMemory(const Workload& workload) const = 0;
  virtual MlxWeightUse WeightsOnDevice() const = 0;
  // Gives back the memory of weights until they are used again: of all components, or of one. The vision
  // encoder goes with the text encoder.
  virtual void ReleasePages(std::optional<Component> component = std::nullopt) const = 0;
};

}  // namespace qwen_image
