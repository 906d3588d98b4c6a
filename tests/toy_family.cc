#include "toy_family.h"

#include <algorithm>
#include <fstream>
#include <random>

#include "core/fail.h"
#include "device/available.h"
#include "families/weight_names.h"
#include "files/safetensors_writer.h"
#include "mlx/weight_forms.h"

namespace qwen_image {
namespace {

constexpr int64_t kWidth = 8, kLatentChannels = 4, kMixers = 2, kWords = 128, kPixelsPerLatent = 4;

// 1. The vocabulary: what weights and checkpoints are called, and what is known of them.
constexpr std::string_view kConditionerBlocks[] = {"words"};
constexpr std::string_view kDenoiserBlocks[] = {"in", "mixers.#", "out"};
constexpr std::string_view kAutoencoderBlocks[] = {"to_rgb"};
constexpr ComponentBlocks kBlocks[] = {
    {"text_encoder", kConditionerBlocks}, {"transformer", kDenoiserBlocks}, {"vae", kAutoencoderBlocks}};
constexpr std::string_view kBlockLists[] = {"mixers"};
constexpr MatrixRole kMatrices[] = {{"mix", "mixing"}, {"in", "in and out"}, {"out", "in and out"}};
constexpr StageNames kStages[] = {
    {"words", "text_encoder", {}}, {"mixers", "transformer", {}}, {"pixels", "vae", {}}};

std::optional<ValueRange> KnownRange(std::string_view checkpoint) {
  if (ModuleOf(checkpoint) != "out") return std::nullopt;
  return ValueRange{-20, 20};
}

// The names in its files, which are its own: no other tool writes toys.
constexpr ComponentSign kSigns[] = {{Component::kTextEncoder, "words", "a toy's words"},
                                    {Component::kTransformer, "mixers.0.mix.weight", "a toy's mixers"},
                                    {Component::kVae, "to_rgb", "a toy's colours"}};
Renamer KeepNames(Component, std::span<const std::string_view>, const Json&) {
  return [](std::string_view name) { return std::string(name); };
}
const WeightNames kWeightNames = {
    .model = "toy",
    .renamer = KeepNames,
    .signs = kSigns,
    .describes = [](Component, const Json&) { return false; },
    .unbound_shape =
        [](std::string_view, int64_t, const std::function<int64_t(const std::string&)>&) {
          return std::vector<int64_t>();
        }};
const CheckpointNames kCheckpointNames = {.blocks = kBlocks,
                                          .block_lists = kBlockLists,
                                          .matrices = kMatrices,
                                          .stages = kStages,
                                          .denoiser_blocks = "mixers",
                                          .velocity = "out",
                                          .known_range = KnownRange,
                                          .example = "transformer/step000/mixers.*.mix"};

// 2. The components: weights bound by name and shape, and a forward pass that taps what it computes.
struct ToyConditioner final : Conditioner {
  explicit ToyConditioner(WeightStore from) : store(std::move(from)) {
    WeightBinder binder(store);
    words = binder.Floats("words", {kWords, kWidth});
    binder.Finish();
  }

  int64_t width() const override { return kWidth; }
  EncodedPrompt Tokenize(const std::string& text, const VisionImages& pictures,
                         const PromptOptions& options) const override {
    return TakeIds({text.begin(), text.end()}, pictures, options);
  }
  EncodedPrompt TakeIds(std::vector<int64_t> ids, const VisionImages&,
                        const PromptOptions& o) const override {
    if (ids.empty()) ids.push_back(' ');
    const auto count = static_cast<int64_t>(ids.size());
    return {.ids = std::move(ids), .prompt_tokens = count, .most_embeds = o.max_sequence_length};
  }
  VisionImages Look(std::span<const Image>, std::span<const EditInputSizes>, ThreadPool&) const override {
    return {};
  }
  void NeedVision() const override {
    if (!edits) Fail(ErrorKind::kBadInput, "toys do not look at pictures");
  }
  void Embed(VisionImages&, const Compute&, const Tap&) const override { NeedVision(); }
  Tensor Encode(const EncodedPrompt& prompt, const VisionImages&, const Compute&, const Tap& tap,
                const OnPositions&) const override {
    Tensor embeds({1, static_cast<int64_t>(prompt.ids.size()), kWidth});
    for (size_t i = 0; i < prompt.ids.size(); ++i)
      std::copy_n(&words[static_cast<size_t>((prompt.ids[i] & (kWords - 1)) * kWidth)], kWidth,
                  embeds.row(static_cast<int64_t>(i)));
    tap("words", embeds);
    return embeds;
  }

  WeightStore store;
  bool edits = false;
  std::vector<float> words;  // [kWords, kWidth]
};

struct ToyDenoiser final : Denoiser {
  explicit ToyDenoiser(WeightStore from) : store(std::move(from)) {
    WeightBinder binder(store);
    in = BindLinear(binder, "in", kWidth, kLatentChannels, Bias::kNo);
    for (int64_t i = 0; i < kMixers; ++i)
      mix.push_back(BindLinear(binder, fmt::format("mixers.{}.mix", i), kWidth, kWidth, Bias::kNo));
    out = BindLinear(binder, "out", kLatentChannels, kWidth, Bias::kNo);
    binder.Finish();
  }

  struct Pass final : DenoiserPass {
    Pass(const ToyDenoiser& d, Conditions c, const Compute& k)
        : model(d), conditions(std::move(c)), compute(k), ops(d.backend->Start(k)) {}

    std::vector<Tensor> Predict(const Tensor& latents, float, std::span<const Tap> taps) override {
      std::vector<Tensor> velocities;
      for (size_t i = 0; i < conditions.prompts.size(); ++i)
        ops->Run([&] { velocities.push_back(Forward(latents, *conditions.prompts[i].embeds, taps[i])); });
      return velocities;
    }

    Tensor Forward(const Tensor& latents, const Tensor& embeds, const Tap& tap) {
      const Shape wide = {1, latents.dim(1), kWidth};
      Array h = ops->New(wide), mixed = ops->New(wide), velocity = ops->New(latents.shape());
      ops->Multiply(model.in, ops->FromHost(latents), h);
      ops->Add(MeanWord(embeds, wide), h);
      ops->Show(tap, "in", h);
      for (size_t m = 0; m < model.mix.size(); ++m) {
        compute.Continue(m, model.mix.size());
        const Tap at = tap.Under("mixers.", static_cast<int64_t>(m), "");
        const Projection mix{
            .x = &h, .products = {{&model.mix[m], ".mix", &mixed}}, .activation = Activation::kGelu};
        ops->Project({&mix, 1}, at);
        ops->Add(mixed, h);
        ops->Show(at, "", h);
      }
      ops->Multiply(model.out, h, velocity);
      ops->Show(tap, "out", velocity);
      return ops->ToHost(velocity);
    }

    // The same for every token.
    Array MeanWord(const Tensor& embeds, const Shape& wide) {
      Tensor mean(wide);
      for (int64_t i = 0; i < mean.size(); ++i) {
        mean[i] = 0;
        for (int64_t word = 0; word < embeds.dim(1); ++word)
          mean[i] += embeds.row(word)[i % kWidth] / static_cast<float>(embeds.dim(1));
      }
      return ops->FromHost(mean);
    }

    const ToyDenoiser& model;
    Conditions conditions;
    const Compute& compute;
    std::unique_ptr<Ops> ops;
  };
  std::unique_ptr<DenoiserPass> Start(Conditions conditions, const Compute& compute) const override {
    return std::make_unique<Pass>(*this, std::move(conditions), compute);
  }

  void Guide(const Tensor& negative, float scale, Tensor& positive) const override {
    for (int64_t i = 0; i < positive.size(); ++i)
      positive[i] = negative[i] + scale * (positive[i] - negative[i]);
  }
  Linear TypicalLayer() const override { return mix.front(); }
  Work WorkOf(TokenGrid grid, int64_t) const override {
    return {.linear = 2.0 * static_cast<double>(grid.tokens() * kMixers * kWidth * kWidth)};
  }

  WeightStore store;
  std::shared_ptr<Backend> backend = CpuBackend();
  Linear in, out;
  std::vector<Linear> mix;
};

struct ToyAutoencoder final : Autoencoder {
  explicit ToyAutoencoder(WeightStore from) : store(std::move(from)) {
    channels = store.Rows("to_rgb") == 4 ? 4 : 3;
    WeightBinder binder(store);
    to_rgb = binder.Floats("to_rgb", {channels, kLatentChannels});
    binder.Finish();
  }

  // The nearest pixels.
  Tensor Preprocess(const Image& image, ImageSize size, ThreadPool& pool) const override {
    if (channels == 3) return PreprocessForVae(image, size.width, size.height, pool);
    Tensor pixels({1, channels, size.height, size.width});
    for (int64_t i = 0; i < pixels.size(); ++i) {
      const int64_t y = i / size.width % size.height * image.height / size.height;
      const int64_t x = i % size.width * image.width / size.width, c = i / (size.width * size.height);
      const uint8_t level = image.pixels[static_cast<size_t>((y * image.width + x) * channels + c)];
      pixels[i] = 2 * static_cast<float>(level) / 255 - 1;
    }
    return pixels;
  }
  // The colours of each latent's pixels; the last channel stays empty.
  Tensor Encode(const Tensor& pixels, bool, const Compute&, const Tap&) const override {
    const int64_t height = pixels.dim(2), width = pixels.dim(3);
    Tensor latents({1, kLatentChannels, height / kPixelsPerLatent, width / kPixelsPerLatent});
    std::fill_n(latents.data(), latents.size(), 0.0f);
    for (int64_t i = 0; i < pixels.size(); ++i) {
      const int64_t y = i / width % height / kPixelsPerLatent, x = i % width / kPixelsPerLatent;
      latents[(i / (height * width) * latents.dim(2) + y) * latents.dim(3) + x] +=
          pixels[i] / (kPixelsPerLatent * kPixelsPerLatent);
    }
    return latents;
  }
  Tensor Latents(const Tensor& encoded, TokenGrid grid, TorchGenerator*) const override {
    return Pack(encoded, grid);
  }
  Tensor Pack(const Tensor& plain, TokenGrid grid) const override {
    Tensor packed({1, grid.tokens(), kLatentChannels});
    for (int64_t i = 0; i < packed.size(); ++i)
      packed[i] = plain[i % kLatentChannels * grid.tokens() + i / kLatentChannels];
    return packed;
  }
  Tensor PackMask(const Tensor& mask, TokenGrid grid) const override {
    Tensor packed({1, grid.tokens(), kLatentChannels});
    for (int64_t i = 0; i < packed.size(); ++i) {
      const int64_t token = i / kLatentChannels;
      packed[i] =
          mask[token / grid.width * kPixelsPerLatent * mask.dim(3) + token % grid.width * kPixelsPerLatent];
    }
    return packed;
  }
  Shape DecodedShape(TokenGrid grid) const override { return {1, kLatentChannels, grid.height, grid.width}; }
  Tensor Unpack(const Tensor& packed, TokenGrid grid) const override {
    Tensor latents(DecodedShape(grid));
    for (int64_t i = 0; i < packed.size(); ++i)
      latents[i % kLatentChannels * grid.tokens() + i / kLatentChannels] = packed[i];
    return latents;
  }
  Tensor Decode(const Tensor& latents, bool, const Compute&, const Tap& tap) const override {
    const int64_t height = latents.dim(2) * kPixelsPerLatent, width = latents.dim(3) * kPixelsPerLatent;
    Tensor pixels({1, channels, height, width});
    for (int64_t i = 0; i < pixels.size(); ++i) {
      const int64_t at =
          i / width % height / kPixelsPerLatent * latents.dim(3) + i % width / kPixelsPerLatent;
      pixels[i] = 0;
      for (int64_t c = 0; c < kLatentChannels; ++c)
        pixels[i] += to_rgb[static_cast<size_t>(i / (height * width) * kLatentChannels + c)] *
                     latents[c * latents.dim(2) * latents.dim(3) + at];
    }
    tap("to_rgb", pixels);
    return pixels;
  }

  WeightStore store;
  int64_t channels = 3;
  std::vector<float> to_rgb;  // [channels, kLatentChannels]
};

// 3. The model: its components, and what the pipeline has to know of it beforehand.
struct ToyModel final : Model {
  ToyModel(const ModelParts& parts, const ModelOptions& options)
      : the_conditioner(WeightStore(parts.text_encoder, Component::kTextEncoder)),
        the_denoiser(WeightStore(parts.transformer, Component::kTransformer)),
        the_autoencoder(WeightStore(parts.vae, Component::kVae)) {
    the_denoiser.backend = device::MakeBackend({.device = options.device, .precision = options.precision});
    the_traits.defaults = {.width = 32, .height = 16, .steps = 3, .cfg = 1};
    the_traits.scheduler = {.shift = 1};
    the_traits.geometry = {.pixel_channels = the_autoencoder.channels,
                           .latent_channels = kLatentChannels,
                           .pixels_per_latent = kPixelsPerLatent,
                           .latents_per_token = 1,
                           .side_multiple = kPixelsPerLatent,
                           .max_side = 256,
                           .untiled_pixels = 256 * 256};
    the_traits.max_prompt_tokens = 1024;
    the_conditioner.edits = edits();
    the_traits.plan_edit = [this](std::span<const ImageSize> inputs, bool) {
      if (!edits()) Fail(ErrorKind::kUsage, "toys do not edit");
      std::vector<EditInputSizes> sizes;
      for (const ImageSize& input : inputs) {
        const ImageSize whole = {input.width / kPixelsPerLatent * kPixelsPerLatent,
                                 input.height / kPixelsPerLatent * kPixelsPerLatent};
        sizes.push_back({.input = input, .condition = whole, .vae = whole});
      }
      return sizes;
    };
  }

  const Vocabulary& vocabulary() const override { return kToyVocabulary; }
  const ModelTraits& traits() const override { return the_traits; }
  const Conditioner& conditioner() const override { return the_conditioner; }
  const Denoiser& denoiser() const override { return the_denoiser; }
  const Autoencoder& autoencoder() const override { return the_autoencoder; }
  const std::string& variant() const override { return the_variant; }
  std::string id() const override { return "toy"; }
  bool edits() const override { return the_autoencoder.channels == 4; }
  Json EditIdentity() const override { return Json::object(); }
  std::string PipelineClass(const GenerateRequest&) const override { return "ToyPipeline"; }
  bool published_size() const override { return true; }
  const WeightStore* StoreOf(Component component) const override {
    switch (component) {
      case Component::kTextEncoder:
        return &the_conditioner.store;
      case Component::kTransformer:
        return &the_denoiser.store;
      case Component::kVae:
        return &the_autoencoder.store;
      case Component::kVisionEncoder:
        break;
    }
    return edits() ? &the_conditioner.store : nullptr;
  }
  const lora::Set& loras() const override { return no_loras; }
  MemoryNeed EstimateMemory(const Workload& work) const override {
    return {.denoise = the_traits.geometry.GridOf(work.picture).tokens() * kWidth * 4};
  }
  MlxWeightUse WeightsOnDevice() const override { return {}; }
  void ReleasePages(std::optional<Component>) const override {}

  ModelTraits the_traits;
  ToyConditioner the_conditioner;
  ToyDenoiser the_denoiser;
  ToyAutoencoder the_autoencoder;
  std::string the_variant = "toy";
  lora::Set no_loras;
};

template <typename Of>
struct ToyPart final : ModelPart {
  explicit ToyPart(WeightStore from) : part(std::move(from)) {}
  const WeightStore& store() const override { return part.store; }
  std::string Summary() const override { return "a toy's"; }
  Json Config() const override { return Json::object(); }
  Of part;
};

// 4. The family: how files are recognised and opened.
struct Toy final : Family {
  const Vocabulary& vocabulary() const override { return kToyVocabulary; }
  std::string title() const override { return "Toy"; }
  bool Recognises(const ModelParts& parts) const override {
    return std::filesystem::exists(parts.transformer / "toy.safetensors");
  }
  SchedulerConfig OfficialScheduler(const VariantInfo&) const override { return {.shift = 1}; }
  std::unique_ptr<Model> Open(const ModelParts& parts, const ModelFiles&,
                              const ModelOptions& options) const override {
    return std::make_unique<ToyModel>(parts, options);
  }
  std::unique_ptr<ModelPart> OpenPart(const ModelParts& parts, Component component) const override {
    if (component == Component::kTransformer)
      return std::make_unique<ToyPart<ToyDenoiser>>(WeightStore(parts.transformer, component));
    if (component == Component::kTextEncoder)
      return std::make_unique<ToyPart<ToyConditioner>>(WeightStore(parts.text_encoder, component));
    return std::make_unique<ToyPart<ToyAutoencoder>>(WeightStore(parts.vae, component));
  }
  std::string ExamineTokenizer(const ModelParts&) const override { return "bytes"; }
  void CheckFit(const OpenedParts&, const std::filesystem::path&) const override {}
  VariantInfo ExamineVariant(const ModelParts&, const OpenedParts&, const std::string&,
                             const std::vector<std::string>&, std::vector<HealthFinding>*) const override {
    return {.name = "toy", .how = "its file", .pipeline_class = "ToyPipeline"};
  }
  void ExamineVision(const ModelParts&, const OpenedParts&, bool,
                     std::vector<HealthFinding>&) const override {}
  Json ModelIndex(const VariantInfo& variant, bool) const override {
    return {{"_class_name", variant.pipeline_class}};
  }
};

struct NamedFloats {
  std::string name;
  Shape shape;
  std::vector<float> values = {};
};

void WriteFile(const std::filesystem::path& folder, const std::vector<NamedFloats>& tensors) {
  std::filesystem::create_directories(folder);
  std::vector<PlannedTensor> planned;
  for (const NamedFloats& t : tensors) planned.push_back({t.name, DType::kF32, t.shape});
  SafetensorsWriter writer(folder / "toy.safetensors", planned, {});
  for (const NamedFloats& t : tensors) writer.Append(std::as_bytes(std::span(t.values)));
  writer.Finish();
}

const std::vector<std::string>& ToyVariants() {
  static const std::vector<std::string> names = {"toy"};
  return names;
}

}  // namespace

const Vocabulary kToyVocabulary = {
    .name = "toy", .weights = &kWeightNames, .checkpoints = &kCheckpointNames, .variants = &ToyVariants};

const Family& ToyFamily() {
  static const Toy family;
  return family;
}

void WriteToyModel(const std::filesystem::path& folder, const ToyFiles& files) {
  std::mt19937 generator(7);
  std::uniform_real_distribution<float> uniform(-0.5f, 0.5f);
  const auto tensor = [&](std::string name, const Shape& shape) {
    NamedFloats t{std::move(name), shape, std::vector<float>(static_cast<size_t>(ElementCount(shape)))};
    for (float& value : t.values) value = uniform(generator);
    return t;
  };
  std::vector<NamedFloats> denoiser = {tensor("in.weight", {kWidth, kLatentChannels})};
  for (int64_t i = 0; i < kMixers; ++i)
    denoiser.push_back(tensor(fmt::format("mixers.{}.mix.weight", i), {kWidth, kWidth}));
  denoiser.push_back(tensor("out.weight", {kLatentChannels, kWidth}));
  denoiser[2].values[0] += files.mixer_1;
  WriteFile(folder / "transformer", denoiser);
  std::ofstream(folder / "transformer/config.json") << R"({"_class_name": "ToyMixers"})";
  WriteFile(folder / "text_encoder", {tensor("words", {kWords, kWidth})});
  WriteFile(folder / "vae", {tensor("to_rgb", {files.channels, kLatentChannels})});
  std::filesystem::create_directories(folder / "tokenizer");  // bytes need none
}

}  // namespace qwen_image
