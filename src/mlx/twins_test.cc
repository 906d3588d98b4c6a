// The text encoder, the vision encoder and the VAE on MLX against the host's.
#include <gmock/gmock.h>

#include "families/qwen_image/vision_testing.h"
#include "mlx/text_encoder.h"
#include "mlx/twins_testing.h"
#include "mlx/vae.h"
#include "mlx/vision_encoder.h"

namespace qwen_image {
namespace {

using on_mlx::Placement;

template <typename Component, typename OnMlx, Component (*load)(const fs::path&)>
struct TwinsOf {
  template <typename Placed>
  TwinsOf(const fs::path& path, const Placed& placed) : host(load(path)), twin(load(path)) {
    twin.UseTwin(std::make_unique<OnMlx>(twin, placed));
  }
  Component host, twin;
};

Vae LoadVae(const fs::path& path) { return Vae(WeightStore(path, Component::kVae)); }

using TextTwins = TwinsOf<TextEncoder, on_mlx::TextEncoder, LoadTextEncoder>;
using VisionTwins = TwinsOf<VisionEncoder, on_mlx::VisionEncoder, LoadVisionEncoder>;
using VaeTwins = TwinsOf<Vae, on_mlx::Vae, LoadVae>;

const on_mlx::mx::Device kMlxCpu = on_mlx::mx::Device::cpu;

// Text.

Tensor EncodeText(const TextEncoder& text, const Compute& compute, CheckpointSink* sink) {
  return text.Encode({1, 5, 7, 20, 3, 60, 2}, compute, Tap(sink));
}

TEST(TextEncoderTwins, EveryOperation) {
  for (const fs::path& path :
       {kSource / "models/tiny/text_encoder", kGoldens / "models/micro/text_encoder"}) {
    const TextTwins twins(path, kExactOnCpu);
    EXPECT_GT(ExpectTwins<TextEncoder>(twins.host, twins.twin, EncodeText).size(), 13u);
  }
}

TEST(TextEncoderTwins, Quantized) {
  const ForeignModel model("text_encoder_q8_0.gguf", "wide32/text_encoder");
  const TextTwins twins(model.path(), kExactOnCpu);
  ExpectTwins<TextEncoder>(twins.host, twins.twin, EncodeText);
}

TEST(TextEncoderTwins, WithPictures) {
  for (const std::string model : {"nested", "flat"}) {
    const TextTwins twins(kVisionGoldens / model, kExactOnCpu);
    const ExpectedTensors expected(model);
    for (const VisionCase& c : ReadVisionCases(model)) {
      SCOPED_TRACE(model + " " + c.name);
      const Tensor embeds = expected.Get(c.name + "/model.visual");
      const PromptImages images{.embeds = embeds, .grids = c.grids, .image_token = kGoldenImageToken};
      ExpectTwins<TextEncoder>(twins.host, twins.twin,
                               [&](const TextEncoder& text, const Compute& compute, CheckpointSink* sink) {
                                 return text.Encode(c.input_ids, images, compute, Tap(sink));
                               });
    }
  }
}

TEST(TextEncoderTwins, WhoeverChangesATensorChangesBoth) {
  const TextTwins twins(kGoldens / "models/micro/text_encoder", kExactOnCpu);
  const auto names = ExpectTwins<TextEncoder>(twins.host, twins.twin, EncodeText);
  ExpectMeddlingTwins<TextEncoder>(twins.host, twins.twin, EncodeText, names);
}

TEST(TextEncoderTwins, ProgressCancelAndSameBitsAgain) {
  const TextTwins twins(kSource / "models/tiny/text_encoder", kExactOnCpu),
      fast(kSource / "models/tiny/text_encoder", kFastOnCpu);
  ExpectProgressAndCancel<TextEncoder>(twins.host, twins.twin, EncodeText);
  ExpectSameBitsAgain<TextEncoder>(twins.twin, EncodeText);
  ExpectSameBitsAgain<TextEncoder>(fast.twin, EncodeText);
}

TEST(TextEncoderTwins, HalfAsWideActivations) {
  const TextTwins fast(kSource / "models/tiny/text_encoder", kFastOnCpu);
  const Tensor got = RunPass<TextEncoder>(EncodeText, fast.twin),
               want = RunPass<TextEncoder>(EncodeText, fast.host);
  // About 12 roundings a layer.
  EXPECT_TRUE(Near(got, want, 12 * 0x1p-18 * static_cast<double>(fast.host.config().num_hidden_layers)));
  EXPECT_FALSE(Near(got, want, 1e-9)) << "nothing was computed in bfloat16";
}

TEST(TextEncoderTwins, AHugeStreamIsNeverRounded) {
  const TextTwins fast(kSource / "models/tiny/text_encoder", kFastOnCpu);
  HugeStream stream("model.language_model.layers.0", "model.language_model.layers.1");
  RunPass<TextEncoder>(EncodeText, fast.twin, &stream);
}

// Pictures.

TEST(VisionEncoderTwins, EveryOperationOfEveryCase) {
  for (const std::string model : {"nested", "flat"}) {
    const VisionTwins twins(kVisionGoldens / model, kExactOnCpu);
    for (const VisionCase& c : ReadVisionCases(model)) {
      SCOPED_TRACE(model + " " + c.name);
      const Tensor pixels = GoldenPixels(c.grids, twins.host.config().patch_values(), c.pixel_seed);
      const auto names = ExpectTwins<VisionEncoder>(
          twins.host, twins.twin,
          [&](const VisionEncoder& vision, const Compute& compute, CheckpointSink* sink) {
            return vision.Encode(pixels, c.grids, compute, Tap(sink));
          });
      EXPECT_GT(names.size(), 20u);
    }
  }
}

TEST(VisionEncoderTwins, WhoeverListensStopsAndComesAgain) {
  const VisionTwins twins(kVisionGoldens / "nested", kExactOnCpu),
      fast(kVisionGoldens / "nested", kFastOnCpu);
  const VisionCase c = FindVisionCase("nested", "three");
  const Tensor pixels = GoldenPixels(c.grids, twins.host.config().patch_values(), c.pixel_seed);
  const Pass<VisionEncoder> pass = [&](const VisionEncoder& vision, const Compute& compute,
                                       CheckpointSink* sink) {
    return vision.Encode(pixels, c.grids, compute, Tap(sink));
  };
  ExpectMeddlingTwins(twins.host, twins.twin, pass, ExpectTwins(twins.host, twins.twin, pass));
  ExpectProgressAndCancel(twins.host, twins.twin, pass);
  ExpectSameBitsAgain(twins.twin, pass);
  ExpectSameBitsAgain(fast.twin, pass);
  const Tensor got = RunPass(pass, fast.twin), want = RunPass(pass, fast.host);
  EXPECT_TRUE(Near(got, want, 12 * 0x1p-18 * static_cast<double>(fast.host.config().depth + 1)));
  EXPECT_FALSE(Near(got, want, 1e-9)) << "nothing was computed in bfloat16";
  HugeStream stream("model.visual.blocks.0", "model.visual.blocks.1");
  RunPass(pass, fast.twin, &stream);
}

// The VAE.

Pass<Vae> Decode(int64_t height, int64_t width) {
  return [=](const Vae& vae, const Compute& compute, CheckpointSink* sink) {
    return vae.Decode(RandomTensor({1, vae.config().z_dim, 1, height, width}, 1), compute, Tap(sink));
  };
}
Pass<Vae> Encode(int64_t height, int64_t width) {
  return [=](const Vae& vae, const Compute& compute, CheckpointSink* sink) {
    return vae.Encode(RandomTensor({1, 3, height, width}, 2, 0.5f), compute, Tap(sink));
  };
}

const fs::path kMicroVae = kGoldens / "models/micro/vae";  // its dead temporal slices are no zeros

TEST(VaeTwins, EveryOperation) {
  for (const fs::path& path : {kMicroVae, kSource / "models/tiny/vae"}) {
    const VaeTwins twins(path, kMlxCpu);
    EXPECT_GT(ExpectTwins(twins.host, twins.twin, Decode(3, 5)).size(), 30u);
    EXPECT_GT(ExpectTwins(twins.host, twins.twin, Encode(40, 24)).size(), 30u);
  }
}

TEST(VaeTwins, FilesOfOtherTools) {
  for (const char* file : {"comfy_vae.safetensors", "mflux_q4/vae"}) {
    SCOPED_TRACE(file);
    const ForeignModel model(file, "wide32/vae");
    const VaeTwins twins(model.path(), kMlxCpu);
    ExpectTwins(twins.host, twins.twin, Decode(2, 3));
    ExpectTwins(twins.host, twins.twin, Encode(16, 24));
  }
}

TEST(VaeTwins, Tiled) {
  const VaeTwins twins(kMicroVae, kMlxCpu);
  const VaeTiling tiling{.min_size = 32, .stride = 24};
  const Pass<Vae> decode = [&](const Vae& vae, const Compute& compute, CheckpointSink*) {
    return vae.DecodeTiled(RandomTensor({1, vae.config().z_dim, 1, 7, 9}, 1), tiling, compute);
  };
  const Pass<Vae> encode = [&](const Vae& vae, const Compute& compute, CheckpointSink*) {
    return vae.EncodeTiled(RandomTensor({1, 3, 56, 72}, 2, 0.5f), tiling, compute);
  };
  for (const Pass<Vae>& pass : {decode, encode})
    EXPECT_TRUE(Near(RunPass(pass, twins.twin), RunPass(pass, twins.host), kWhole));
}

// A picture read in another order than it lies in is made of nine small ones: other ports had that.
TEST(VaeTwins, APictureIsNotMadeOfTiles) {
  const VaeTwins twins(kSource / "models/tiny/vae", kMlxCpu);
  const Tensor picture = RunPass(Decode(6, 6), twins.twin);
  ASSERT_EQ(picture.shape(), (Shape{1, 3, 48, 48}));
  EXPECT_TRUE(Near(picture, RunPass(Decode(6, 6), twins.host), kWhole));
  constexpr int64_t kTile = 16;
  for (int64_t tile = 1; tile < 9; ++tile) {
    double difference = 0, power = 0;
    for (int64_t channel = 0; channel < 3; ++channel) {
      for (int64_t y = 0; y < kTile; ++y) {
        for (int64_t x = 0; x < kTile; ++x) {
          const float first = picture.row(channel * 48 + y)[x];
          const float other = picture.row(channel * 48 + y + tile / 3 * kTile)[x + tile % 3 * kTile];
          difference += std::pow(first - other, 2);
          power += std::pow(first, 2);
        }
      }
    }
    EXPECT_GT(difference, 0.01 * power) << "tile " << tile << " repeats the first";
  }
}

TEST(VaeTwins, WhoeverListensStopsAndComesAgain) {
  const VaeTwins twins(kMicroVae, kMlxCpu);
  for (const Pass<Vae>& pass : {Decode(2, 3), Encode(16, 24)}) {
    ExpectMeddlingTwins(twins.host, twins.twin, pass, ExpectTwins(twins.host, twins.twin, pass));
    ExpectProgressAndCancel(twins.host, twins.twin, pass);
    ExpectSameBitsAgain(twins.twin, pass);
  }
}

// The norm divides by no less than 1e-12.
TEST(VaeTwins, NormsOfNothingAndOfNextToNothing) {
  class Fading : public CheckpointSink {
   public:
    explicit Fading(float scale) : scale_(scale) {}
    bool Wants(std::string_view name) const override {
      return name == "encoder.conv_in" || name == "encoder.down_blocks.0.norm1";
    }
    void OnCheckpoint(const std::string& name, const CheckpointView& view) override {
      float* const data = std::get<float*>(view.data);
      if (name != "encoder.conv_in") {
        normed = Tensor(view.shape);
        std::copy_n(data, normed.size(), normed.data());
      } else {
        for (int64_t i = 0; i < ElementCount(view.shape); ++i) data[i] *= scale_;
      }
    }
    Tensor normed;

   private:
    const float scale_;
  };
  const VaeTwins twins(kMicroVae, kMlxCpu);
  for (const float scale : {0.0f, 1e-14f, 1e-18f, 1e-9f}) {
    SCOPED_TRACE(scale);
    Fading on_host(scale), on_device(scale);
    RunPass(Encode(16, 16), twins.host, &on_host);
    RunPass(Encode(16, 16), twins.twin, &on_device);
    // Around 1e-12 the twin goes smoothly from one to the other; 1e-14 is far enough.
    EXPECT_TRUE(Near(on_device.normed, on_host.normed, 1e-6));
  }
}

}  // namespace
}  // namespace qwen_image
