// The transformer on MLX against the host's.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "files/json.h"
#include "mlx/transformer.h"
#include "mlx/twins_testing.h"

namespace qwen_image {
namespace {

using on_mlx::Compile;
using on_mlx::Placement;
namespace mx = on_mlx::mx;

constexpr int64_t kTextTokens = 7;

struct Twins {
  explicit Twins(const std::function<Transformer()>& load, const Placement& placement = kExactOnCpu,
                 Compile compile = Compile::kNo)
      : host(load()), twin(load()) {
    auto on_device = std::make_unique<on_mlx::Transformer>(twin, placement, compile);
    device = on_device.get();
    twin.UseTwin(std::move(on_device));
  }
  explicit Twins(const fs::path& path, const Placement& placement = kExactOnCpu,
                 Compile compile = Compile::kNo)
      : Twins([&] { return Transformer(WeightStore(path, Component::kTransformer)); }, placement, compile) {}

  Transformer host, twin;
  const on_mlx::Transformer* device;
};

// Prompts of as many tokens, in one result: [1, all velocities].
Pass<Transformer> Predict(std::vector<TokenGrid> pictures = {{3, 4}},
                          std::vector<int64_t> text_tokens = {kTextTokens}) {
  return [=](const Transformer& transformer, const Compute& compute, CheckpointSink* sink) {
    std::vector<Tensor> texts;
    for (const int64_t tokens : text_tokens)
      texts.push_back(
          RandomTensor({1, tokens, transformer.config().joint_attention_dim}, static_cast<unsigned>(tokens)));
    std::vector<Transformer::Prompt> prompts;
    for (size_t i = 0; i < texts.size(); ++i)
      prompts.push_back({texts[i], sink ? Tap(sink, i == 0 ? "" : "neg/") : Tap()});
    int64_t tokens = 0;
    for (const TokenGrid& picture : pictures) tokens += picture.tokens();
    const Tensor latents = RandomTensor({1, tokens, transformer.config().in_channels}, 1);
    const std::vector<Tensor> velocities =
        transformer.PredictVelocities(latents, prompts, 0.6f, pictures, compute);
    std::vector<float> all;
    for (const Tensor& velocity : velocities)
      all.insert(all.end(), velocity.data(), velocity.data() + velocity.size());
    Tensor result({1, static_cast<int64_t>(all.size())});
    std::copy(all.begin(), all.end(), result.data());
    return result;
  };
}

const fs::path kTiny = kSource / "models/tiny/transformer", kMicro = kGoldens / "models/micro/transformer",
               kZeroCondT = kGoldens / "models/edit-micro-2511/transformer";
const std::vector<TokenGrid> kReferences = {{3, 4}, {2, 2}, {1, 5}};

TEST(TransformerTwins, TextAlone) {
  for (const fs::path& path : {kTiny, kMicro}) {
    const Twins twins(path);
    const std::vector<std::string> names = ExpectTwins(twins.host, twins.twin, Predict());
    EXPECT_THAT(names, ::testing::Contains("transformer_blocks.0:attn_weights"));
    EXPECT_THAT(names, ::testing::Contains("transformer_blocks.0:attn_entropy"));
    EXPECT_GT(names.size(), 90u);
  }
}

TEST(TransformerTwins, TwoPrompts) {
  const Twins twins(kMicro);
  ExpectTwins(twins.host, twins.twin, Predict({{3, 4}}, {7, 3}));
}

TEST(TransformerTwins, References) {
  for (const fs::path& path : {kMicro, kZeroCondT}) {
    const Twins twins(path);
    ExpectTwins(twins.host, twins.twin, Predict(kReferences, {7, 3}));
  }
}

TEST(TransformerTwins, ZeroCondTWithoutReferences) {
  const Twins twins(kZeroCondT);
  ExpectTwins(twins.host, twins.twin, Predict());
}

TEST(TransformerTwins, Loras) {
  const fs::path loras = kGoldens / "loras";
  const auto load = [&] {
    return Transformer(WeightStore(kTiny, Component::kTransformer),
                       LoraSet({{loras / "kohya.safetensors", 0.7f}, {loras / "second.safetensors", -0.5f}}));
  };
  const Twins twins(load), without(kTiny);
  ExpectTwins(twins.host, twins.twin, Predict());
  EXPECT_FALSE(Near(RunPass(Predict(), twins.twin), RunPass(Predict(), without.twin), kWhole)) << "no LoRA";
}

struct ForeignCase {
  const char* file;
  const char* config;
};
class ForeignTransformerTwins : public ::testing::TestWithParam<ForeignCase> {};

TEST_P(ForeignTransformerTwins, EveryOperation) {
  const ForeignModel model(GetParam().file, std::string(GetParam().config) + "/transformer");
  const Twins twins(model.path());
  ExpectTwins(twins.host, twins.twin, Predict());
}

INSTANTIATE_TEST_SUITE_P(Files, ForeignTransformerTwins,
                         ::testing::Values(ForeignCase{"mflux_q4/transformer", "wide64"},
                                           ForeignCase{"mlx_community_q4.safetensors", "wide64"},
                                           ForeignCase{"mlx_rs_q4.safetensors", "wide64"},
                                           ForeignCase{"mlx_q8_g32.safetensors", "wide32"},
                                           ForeignCase{"comfy_fp8_scaled.safetensors", "wide32"},
                                           ForeignCase{"transformer_q4_0.gguf", "wide32"},
                                           ForeignCase{"transformer_q8_0.gguf", "wide32"}),
                         [](const auto& info) {
                           std::string name = info.param.file;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
                           return name;
                         });

TEST(TransformerTwins, WhoeverChangesATensorChangesBoth) {
  for (const fs::path& path : {kMicro, kZeroCondT}) {
    const Twins twins(path);
    const Pass<Transformer> pass = Predict(kReferences);
    ExpectMeddlingTwins(twins.host, twins.twin, pass, ExpectTwins(twins.host, twins.twin, pass));
  }
}

TEST(TransformerTwins, ProgressAndCancel) {
  const Twins twins(kTiny);
  ExpectProgressAndCancel(twins.host, twins.twin, Predict());
}

// What a thread has put together but not computed belongs to it.
TEST(TransformerTwins, APassThatWasStoppedLeavesNothingToOtherThreads) {
  const Twins stopped(kTiny, kFastOnCpu), other(kTiny, kFastOnCpu);
  std::thread([&] {
    ThreadPool pool(1);
    CancelFlag cancel;
    const auto stop_at_second_block = [&](double fraction) {
      if (fraction > 0) cancel.Cancel();
    };
    const Compute compute{pool, cancel, stop_at_second_block};
    MessageOf(ErrorKind::kInterrupted, [&] { Predict()(stopped.twin, compute, nullptr); });
  }).join();
  EXPECT_TRUE(SameBits(RunPass(Predict(), stopped.twin), RunPass(Predict(), other.twin)));
}

TEST(TransformerTwins, SameBitsAgain) {
  const Twins twins(kMicro), fast(kMicro, kFastOnCpu);
  ExpectSameBitsAgain(twins.twin, Predict());
  ExpectSameBitsAgain(fast.twin, Predict());
}

TEST(TransformerTwins, WeightsGoAfterUseOrStay) {
  Placement keeping = kExactOnCpu;
  keeping.keep_weights = true;
  const Twins twins(kTiny), keep(kTiny, keeping);
  const size_t before = mx::get_active_memory();
  const size_t weights = fs::file_size(kTiny / "diffusion_pytorch_model.safetensors") * 9 / 10;
  RunPass(Predict(), twins.twin);
  EXPECT_GE(mx::get_active_memory(), before + weights);
  twins.twin.ReleasePages();
  EXPECT_EQ(mx::get_active_memory(), before);
  RunPass(Predict(), keep.twin);
  keep.twin.ReleasePages();
  EXPECT_GE(mx::get_active_memory(), before + weights);
}

// models/tiny with its blocks in several encodings: 0 and 1 are of one form, 2 and 3 of their own.
fs::path WriteMixedModel(const TempFolder& folder) {
  auto [tensors, metadata] = mx::load_safetensors((kTiny / "diffusion_pytorch_model.safetensors").string());
  std::unordered_map<std::string, mx::array> mixed;
  for (const auto& [name, tensor] : tensors) {
    const bool in_block =
        name.starts_with("transformer_blocks.") && name.ends_with(".weight") && tensor.ndim() == 2;
    const char block = in_block ? name[std::strlen("transformer_blocks.")] : '3';
    if (block == '3') {
      mixed.insert({name, tensor});
      continue;
    }
    const bool finer = name.find(".to_v.") != name.npos;
    const int bits = finer ? 8 : block == '2' ? 3 : 4, group = block == '2' ? 128 : finer ? 64 : 32;
    const std::vector<mx::array> parts = mx::quantize(tensor, group, bits);
    const std::string stem = name.substr(0, name.size() - std::strlen("weight"));
    mixed.insert({{stem + "weight", parts[0]}, {stem + "scales", parts[1]}, {stem + "biases", parts[2]}});
  }
  mx::save_safetensors((folder.path() / "diffusion_pytorch_model.safetensors").string(), mixed);
  fs::copy(kTiny / "config.json", folder.path() / "config.json");
  return folder.path();
}

TEST(TransformerTwins, MixedQuantization) {
  const TempFolder folder;
  const Twins twins(WriteMixedModel(folder));
  ExpectTwins(twins.host, twins.twin, Predict());
}

// MLX calls a C++ compiler here.
TEST(TransformerTwins, CompiledBlocksComputeTheSame) {
  const TempFolder folder;
  WriteMixedModel(folder);
  const Twins plain(kTiny, kExactOnCpu, Compile::kYes), mixed(folder.path(), kExactOnCpu, Compile::kYes);
  for (const Twins* twins : {&plain, &mixed}) {
    EXPECT_TRUE(Near(RunPass(Predict(), twins->twin), RunPass(Predict(), twins->host), kWhole));
    // Other sizes, and two of them at once.
    const Pass<Transformer> other = Predict({{2, 3}}, {5, 2});
    EXPECT_TRUE(Near(RunPass(other, twins->twin), RunPass(other, twins->host), kWhole));
  }
  EXPECT_EQ(plain.device->compiled_forms(), 1u);
  EXPECT_EQ(mixed.device->compiled_forms(), 3u);
  ExpectSameBitsAgain(mixed.twin, Predict());
  // Who listens sees every operation even so.
  ExpectTwins(plain.host, plain.twin, Predict());
}

TEST(TransformerTwins, CompiledBlocksWithReferences) {
  const Twins twins(kZeroCondT, kExactOnCpu, Compile::kYes);
  for (const Pass<Transformer>& pass : {Predict(kReferences), Predict()})
    EXPECT_TRUE(Near(RunPass(pass, twins.twin), RunPass(pass, twins.host), kWhole));
}

// A compiled function takes its weights as arguments, but a LoRA's factor is part of it.
TEST(TransformerTwins, CompiledBlocksWithLoras) {
  const fs::path loras = kGoldens / "loras";
  const auto load = [&] {
    return Transformer(WeightStore(kTiny, Component::kTransformer),
                       LoraSet({{loras / "kohya.safetensors", 0.7f}, {loras / "second.safetensors", -0.5f}}));
  };
  const Twins twins(load, kExactOnCpu, Compile::kYes);
  EXPECT_TRUE(Near(RunPass(Predict(), twins.twin), RunPass(Predict(), twins.host), kWhole));
}

// About 20 roundings of 2⁻⁹ on the way through a block, which add up like the steps of a random walk.
TEST(TransformerTwins, HalfAsWideActivations) {
  const Twins fast(kTiny, kFastOnCpu);
  const Tensor got = RunPass(Predict(), fast.twin), want = RunPass(Predict(), fast.host);
  EXPECT_TRUE(Near(got, want, 4 * 20 * 0x1p-18));
  EXPECT_FALSE(Near(got, want, 1e-9)) << "nothing was computed in bfloat16";
}

TEST(TransformerTwins, AHugeStreamIsNeverRounded) {
  const Twins fast(kTiny, kFastOnCpu);
  HugeStream img("transformer_blocks.0:img", "transformer_blocks.1:img"),
      txt("transformer_blocks.0:txt", "transformer_blocks.1:txt");
  RunPass(Predict(), fast.twin, &img);
  RunPass(Predict(), fast.twin, &txt);
}

}  // namespace
}  // namespace qwen_image
