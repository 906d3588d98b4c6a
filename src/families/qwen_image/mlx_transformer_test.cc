// The transformer on MLX against the host's.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "families/qwen_image/mlx_testing.h"
#include "families/qwen_image/transformer.h"
#include "files/json.h"

namespace qwen_image {
namespace {

using on_mlx::Placement;
namespace mx = on_mlx::mx;

constexpr int64_t kTextTokens = 7;
const Placement kCompiled{.device = mx::Device::cpu, .compile = true};

struct Transformers {
  explicit Transformers(const std::function<Transformer()>& load, const Placement& placement = kOnMlxCpu)
      : host(load()), mlx(load()), device(std::make_shared<on_mlx::MlxBackend>(placement)) {
    mlx.UseBackend(device);
  }
  explicit Transformers(const fs::path& path, const Placement& placement = kOnMlxCpu,
                        Precision precision = Precision::kExact)
      : Transformers([&] { return Transformer(WeightStore(path, Component::kTransformer), {}, precision); },
                     placement) {}

  Transformer host, mlx;
  std::shared_ptr<on_mlx::MlxBackend> device;
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

TEST(TransformerOnMlx, TextAlone) {
  for (const fs::path& path : {kTiny, kMicro}) {
    const Transformers both(path);
    const std::vector<std::string> names = ExpectAlike(both.host, both.mlx, Predict());
    EXPECT_THAT(names, ::testing::Contains("transformer_blocks.0:attn_weights"));
    EXPECT_THAT(names, ::testing::Contains("transformer_blocks.0:attn_entropy"));
    EXPECT_GT(names.size(), 90u);
  }
}

TEST(TransformerOnMlx, TwoPrompts) {
  const Transformers both(kMicro);
  ExpectAlike(both.host, both.mlx, Predict({{3, 4}}, {7, 3}));
}

TEST(TransformerOnMlx, References) {
  for (const fs::path& path : {kMicro, kZeroCondT}) {
    const Transformers both(path);
    ExpectAlike(both.host, both.mlx, Predict(kReferences, {7, 3}));
  }
}

TEST(TransformerOnMlx, ZeroCondTWithoutReferences) {
  const Transformers both(kZeroCondT);
  ExpectAlike(both.host, both.mlx, Predict());
}

TEST(TransformerOnMlx, Loras) {
  const fs::path loras = kGoldens / "loras";
  const auto load = [&] {
    return Transformer(
        WeightStore(kTiny, Component::kTransformer),
        lora::Set({{loras / "kohya.safetensors", 0.7f}, {loras / "second.safetensors", -0.5f}}));
  };
  const Transformers both(load), without(kTiny);
  ExpectAlike(both.host, both.mlx, Predict());
  EXPECT_FALSE(Near(RunPass(Predict(), both.mlx), RunPass(Predict(), without.mlx), kWhole)) << "no LoRA";
}

struct ForeignCase {
  const char* file;
  const char* config;
};
class ForeignTransformerOnMlx : public ::testing::TestWithParam<ForeignCase> {};

TEST_P(ForeignTransformerOnMlx, EveryOperation) {
  const ForeignModel model(GetParam().file, std::string(GetParam().config) + "/transformer");
  const Transformers both(model.path());
  ExpectAlike(both.host, both.mlx, Predict());
}

INSTANTIATE_TEST_SUITE_P(Files, ForeignTransformerOnMlx,
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

TEST(TransformerOnMlx, WhoeverChangesATensorChangesBoth) {
  for (const fs::path& path : {kMicro, kZeroCondT}) {
    const Transformers both(path);
    const Pass<Transformer> pass = Predict(kReferences);
    ExpectMeddlingAlike(both.host, both.mlx, pass, ExpectAlike(both.host, both.mlx, pass));
  }
}

TEST(TransformerOnMlx, ProgressAndCancel) {
  const Transformers both(kTiny);
  ExpectProgressAndCancel(both.host, both.mlx, Predict());
}

// What a thread has put together but not computed belongs to it.
TEST(TransformerOnMlx, APassThatWasStoppedLeavesNothingToOtherThreads) {
  const Transformers stopped(kTiny, kOnMlxCpu, Precision::kFast), other(kTiny, kOnMlxCpu, Precision::kFast);
  std::thread([&] {
    ThreadPool pool(1);
    CancelFlag cancel;
    const auto stop_at_second_block = [&](double fraction) {
      if (fraction > 0) cancel.Cancel();
    };
    const Compute compute{pool, cancel, stop_at_second_block};
    MessageOf(ErrorKind::kInterrupted, [&] { Predict()(stopped.mlx, compute, nullptr); });
  }).join();
  EXPECT_TRUE(SameBits(RunPass(Predict(), stopped.mlx), RunPass(Predict(), other.mlx)));
}

TEST(TransformerOnMlx, SameBitsAgain) {
  const Transformers both(kMicro), fast(kMicro, kOnMlxCpu, Precision::kFast);
  ExpectSameBitsAgain(both.mlx, Predict());
  ExpectSameBitsAgain(fast.mlx, Predict());
}

TEST(TransformerOnMlx, WeightsGoAfterUseOrStay) {
  Placement keeping = kOnMlxCpu;
  keeping.keep_weights = true;
  const Transformers both(kTiny), keep(kTiny, keeping);
  const size_t before = mx::get_active_memory();
  const size_t weights = fs::file_size(kTiny / "diffusion_pytorch_model.safetensors") * 9 / 10;
  RunPass(Predict(), both.mlx);
  EXPECT_GE(mx::get_active_memory(), before + weights);
  both.mlx.ReleasePages();
  EXPECT_EQ(mx::get_active_memory(), before);
  RunPass(Predict(), keep.mlx);
  keep.mlx.ReleasePages();
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

TEST(TransformerOnMlx, MixedQuantization) {
  const TempFolder folder;
  const Transformers both(WriteMixedModel(folder));
  ExpectAlike(both.host, both.mlx, Predict());
}

// MLX calls a C++ compiler here.
TEST(TransformerOnMlx, CompiledBlocksComputeTheSame) {
  const TempFolder folder;
  WriteMixedModel(folder);
  const Transformers plain(kTiny, kCompiled), mixed(folder.path(), kCompiled);
  for (const Transformers* both : {&plain, &mixed}) {
    EXPECT_TRUE(Near(RunPass(Predict(), both->mlx), RunPass(Predict(), both->host), kWhole));
    // Other sizes, and two of them at once.
    const Pass<Transformer> other = Predict({{2, 3}}, {5, 2});
    EXPECT_TRUE(Near(RunPass(other, both->mlx), RunPass(other, both->host), kWhole));
  }
  EXPECT_EQ(plain.device->compiled_forms(), 1u);
  EXPECT_EQ(mixed.device->compiled_forms(), 3u);
  ExpectSameBitsAgain(mixed.mlx, Predict());
  // Who listens sees every operation even so.
  ExpectAlike(plain.host, plain.mlx, Predict());
}

TEST(TransformerOnMlx, CompiledBlocksWithReferences) {
  const Transformers both(kZeroCondT, kCompiled);
  for (const Pass<Transformer>& pass : {Predict(kReferences), Predict()})
    EXPECT_TRUE(Near(RunPass(pass, both.mlx), RunPass(pass, both.host), kWhole));
}

// A compiled function takes its weights as arguments, but a LoRA's factor is part of it.
TEST(TransformerOnMlx, CompiledBlocksWithLoras) {
  const fs::path loras = kGoldens / "loras";
  const auto load = [&] {
    return Transformer(
        WeightStore(kTiny, Component::kTransformer),
        lora::Set({{loras / "kohya.safetensors", 0.7f}, {loras / "second.safetensors", -0.5f}}));
  };
  const Transformers both(load, kCompiled);
  EXPECT_TRUE(Near(RunPass(Predict(), both.mlx), RunPass(Predict(), both.host), kWhole));
}

// About 20 roundings of 2⁻⁹ on the way through a block, which add up like the steps of a random walk.
TEST(TransformerOnMlx, HalfAsWideActivations) {
  const Transformers fast(kTiny, kOnMlxCpu, Precision::kFast);
  const Tensor got = RunPass(Predict(), fast.mlx), want = RunPass(Predict(), fast.host);
  EXPECT_TRUE(Near(got, want, 4 * 20 * 0x1p-18));
  EXPECT_FALSE(Near(got, want, 1e-9)) << "nothing was computed in bfloat16";
}

TEST(TransformerOnMlx, AHugeStreamIsNeverRounded) {
  const Transformers fast(kTiny, kOnMlxCpu, Precision::kFast);
  HugeStream img("transformer_blocks.0:img", "transformer_blocks.1:img"),
      txt("transformer_blocks.0:txt", "transformer_blocks.1:txt");
  RunPass(Predict(), fast.mlx, &img);
  RunPass(Predict(), fast.mlx, &txt);
}

}  // namespace
}  // namespace qwen_image
