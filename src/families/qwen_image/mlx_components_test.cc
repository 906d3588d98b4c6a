// The text encoder, the vision encoder and the VAE on MLX against the CPU's.
#include <gmock/gmock.h>

#include "families/qwen_image/mlx_testing.h"
#include "families/qwen_image/vae.h"
#include "families/qwen_image/vision_testing.h"

namespace qwen_image {
namespace {

template <typename Component, Component (*load)(const fs::path&, Precision)>
struct OnBothOf {
  explicit OnBothOf(const fs::path& path, Precision precision = Precision::kExact)
      : host(load(path, precision)), mlx(load(path, precision)) {
    mlx.UseBackend(std::make_shared<on_mlx::MlxBackend>(kOnMlxCpu));
  }
  Component host, mlx;
};

Vae LoadVae(const fs::path& path, Precision) { return Vae(WeightStore(path, Component::kVae)); }

using TextEncoders = OnBothOf<TextEncoder, LoadTextEncoder>;
using VisionEncoders = OnBothOf<VisionEncoder, LoadVisionEncoder>;
using Vaes = OnBothOf<Vae, LoadVae>;

// Text.

Tensor EncodeText(const TextEncoder& text, const Compute& compute, CheckpointSink* sink) {
  return text.Encode({1, 5, 7, 20, 3, 60, 2}, compute, Tap(sink));
}

TEST(TextEncoderOnMlx, EveryOperation) {
  for (const fs::path& path :
       {kSource / "models/tiny/text_encoder", kGoldens / "models/micro/text_encoder"}) {
    const TextEncoders both(path);
    EXPECT_GT(ExpectAlike<TextEncoder>(both.host, both.mlx, EncodeText).size(), 13u);
  }
}

TEST(TextEncoderOnMlx, Quantized) {
  const ForeignModel model("text_encoder_q8_0.gguf", "wide32/text_encoder");
  const TextEncoders both(model.path());
  ExpectAlike<TextEncoder>(both.host, both.mlx, EncodeText);
}

TEST(TextEncoderOnMlx, WithPictures) {
  for (const std::string model : {"nested", "flat"}) {
    const TextEncoders both(kVisionGoldens / model);
    const ExpectedTensors expected(model);
    for (const VisionCase& c : ReadVisionCases(model)) {
      SCOPED_TRACE(model + " " + c.name);
      const Tensor embeds = expected.Get(c.name + "/model.visual");
      const PromptImages images{.embeds = embeds, .grids = c.grids, .image_token = kGoldenImageToken};
      ExpectAlike<TextEncoder>(both.host, both.mlx,
                               [&](const TextEncoder& text, const Compute& compute, CheckpointSink* sink) {
                                 return text.Encode(c.input_ids, images, compute, Tap(sink));
                               });
    }
  }
}

TEST(TextEncoderOnMlx, WhoeverChangesATensorChangesBoth) {
  const TextEncoders both(kGoldens / "models/micro/text_encoder");
  const auto names = ExpectAlike<TextEncoder>(both.host, both.mlx, EncodeText);
  ExpectMeddlingAlike<TextEncoder>(both.host, both.mlx, EncodeText, names);
}

TEST(TextEncoderOnMlx, ProgressCancelAndSameBitsAgain) {
  const TextEncoders both(kSource / "models/tiny/text_encoder"),
      fast(kSource / "models/tiny/text_encoder", Precision::kFast);
  ExpectProgressAndCancel<TextEncoder>(both.host, both.mlx, EncodeText);
  ExpectSameBitsAgain<TextEncoder>(both.mlx, EncodeText);
  ExpectSameBitsAgain<TextEncoder>(fast.mlx, EncodeText);
}

TEST(TextEncoderOnMlx, HalfAsWideActivations) {
  const TextEncoders fast(kSource / "models/tiny/text_encoder", Precision::kFast);
  const Tensor got = RunPass<TextEncoder>(EncodeText, fast.mlx),
               want = RunPass<TextEncoder>(EncodeText, fast.host);
  // About 12 roundings a layer.
  EXPECT_TRUE(Near(got, want, 12 * 0x1p-18 * static_cast<double>(fast.host.config().num_hidden_layers)));
  EXPECT_FALSE(Near(got, want, 1e-9)) << "nothing was computed in bfloat16";
}

TEST(TextEncoderOnMlx, AHugeStreamIsNeverRounded) {
  const TextEncoders fast(kSource / "models/tiny/text_encoder", Precision::kFast);
  HugeStream stream("model.language_model.layers.0", "model.language_model.layers.1");
  RunPass<TextEncoder>(EncodeText, fast.mlx, &stream);
}

// Pictures.

TEST(VisionEncoderOnMlx, EveryOperationOfEveryCase) {
  for (const std::string model : {"nested", "flat"}) {
    const VisionEncoders both(kVisionGoldens / model);
    for (const VisionCase& c : ReadVisionCases(model)) {
      SCOPED_TRACE(model + " " + c.name);
      const Tensor pixels = GoldenPixels(c.grids, both.host.config().patch_values(), c.pixel_seed);
      const auto names = ExpectAlike<VisionEncoder>(
          both.host, both.mlx,
          [&](const VisionEncoder& vision, const Compute& compute, CheckpointSink* sink) {
            return vision.Encode(pixels, c.grids, compute, Tap(sink));
          });
      EXPECT_GT(names.size(), 20u);
    }
  }
}

TEST(VisionEncoderOnMlx, WhoeverListensStopsAndComesAgain) {
  const VisionEncoders both(kVisionGoldens / "nested"), fast(kVisionGoldens / "nested", Precision::kFast);
  const VisionCase c = FindVisionCase("nested", "three");
  const Tensor pixels = GoldenPixels(c.grids, both.host.config().patch_values(), c.pixel_seed);
  const Pass<VisionEncoder> pass = [&](const VisionEncoder& vision, const Compute& compute,
                                       CheckpointSink* sink) {
    return vision.Encode(pixels, c.grids, compute, Tap(sink));
  };
  ExpectMeddlingAlike(both.host, both.mlx, pass, ExpectAlike(both.host, both.mlx, pass));
  ExpectProgressAndCancel(both.host, both.mlx, pass);
  ExpectSameBitsAgain(both.mlx, pass);
  ExpectSameBitsAgain(fast.mlx, pass);
  const Tensor got = RunPass(pass, fast.mlx), want = RunPass(pass, fast.host);
  EXPECT_TRUE(Near(got, want, 12 * 0x1p-18 * static_cast<double>(fast.host.config().depth + 1)));
  EXPECT_FALSE(Near(got, want, 1e-9)) << "nothing was computed in bfloat16";
  HugeStream stream("model.visual.blocks.0", "model.visual.blocks.1");
  RunPass(pass, fast.mlx, &stream);
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

TEST(VaeOnMlx, EveryOperation) {
  for (const fs::path& path : {kMicroVae, kSource / "models/tiny/vae"}) {
    const Vaes both(path);
    EXPECT_GT(ExpectAlike(both.host, both.mlx, Decode(3, 5)).size(), 30u);
    EXPECT_GT(ExpectAlike(both.host, both.mlx, Encode(40, 24)).size(), 30u);
  }
}

TEST(VaeOnMlx, FilesOfOtherTools) {
  for (const char* file : {"comfy_vae.safetensors", "mflux_q4/vae"}) {
    SCOPED_TRACE(file);
    const ForeignModel model(file, "wide32/vae");
    const Vaes both(model.path());
    ExpectAlike(both.host, both.mlx, Decode(2, 3));
    ExpectAlike(both.host, both.mlx, Encode(16, 24));
  }
}

TEST(VaeOnMlx, Tiled) {
  const Vaes both(kMicroVae);
  const VaeTiling tiling{.min_size = 32, .stride = 24};
  const Pass<Vae> decode = [&](const Vae& vae, const Compute& compute, CheckpointSink*) {
    return vae.DecodeTiled(RandomTensor({1, vae.config().z_dim, 1, 7, 9}, 1), tiling, compute);
  };
  const Pass<Vae> encode = [&](const Vae& vae, const Compute& compute, CheckpointSink*) {
    return vae.EncodeTiled(RandomTensor({1, 3, 56, 72}, 2, 0.5f), tiling, compute);
  };
  for (const Pass<Vae>& pass : {decode, encode})
    EXPECT_TRUE(Near(RunPass(pass, both.mlx), RunPass(pass, both.host), kWhole));
}

// A picture read in another order than it lies in is made of nine small ones: other ports had that.
TEST(VaeOnMlx, APictureIsNotMadeOfTiles) {
  const Vaes both(kSource / "models/tiny/vae");
  const Tensor picture = RunPass(Decode(6, 6), both.mlx);
  ASSERT_EQ(picture.shape(), (Shape{1, 3, 48, 48}));
  EXPECT_TRUE(Near(picture, RunPass(Decode(6, 6), both.host), kWhole));
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

TEST(VaeOnMlx, WhoeverListensStopsAndComesAgain) {
  const Vaes both(kMicroVae);
  for (const Pass<Vae>& pass : {Decode(2, 3), Encode(16, 24)}) {
    ExpectMeddlingAlike(both.host, both.mlx, pass, ExpectAlike(both.host, both.mlx, pass));
    ExpectProgressAndCancel(both.host, both.mlx, pass);
    ExpectSameBitsAgain(both.mlx, pass);
  }
}

// The norm divides by no less than 1e-12.
TEST(VaeOnMlx, NormsOfNothingAndOfNextToNothing) {
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
  const Vaes both(kMicroVae);
  for (const float scale : {0.0f, 1e-14f, 1e-18f, 1e-9f}) {
    SCOPED_TRACE(scale);
    Fading on_host(scale), on_device(scale);
    RunPass(Encode(16, 16), both.host, &on_host);
    RunPass(Encode(16, 16), both.mlx, &on_device);
    // Around 1e-12 MLX goes smoothly from one to the other; 1e-14 is far enough.
    EXPECT_TRUE(Near(on_device.normed, on_host.normed, 1e-6));
  }
}

}  // namespace
}  // namespace qwen_image
