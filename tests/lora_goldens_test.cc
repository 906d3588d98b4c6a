// LoRAs against diffusers: tests/goldens/loras holds files in every spelling, the final latents that
// diffusers' load_lora_weights leads to, and what the weights are worth when they are merged
// (tools/formats/write_loras.py). And on quantized weights, against the same weights merged.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "core/checkpoint.h"
#include "families/qwen_image/transformer.h"
#include "files/json.h"
#include "files/safetensors.h"
#include "qwen_image/cancel.h"
#include "qwen_image/qwen_image.h"
#include "weights/testing.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
const fs::path kSource = QWEN_IMAGE_SOURCE_DIR;
const fs::path kLoras = kSource / "tests/goldens/loras";
constexpr double kMaxNmse = 1e-6;

// Of the difference, relative to the reference.
double Nmse(const std::vector<float>& got, const std::vector<float>& want) {
  if (got.size() != want.size()) return INFINITY;
  double error = 0, power = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += std::pow(static_cast<double>(got[i]) - want[i], 2);
    power += std::pow(static_cast<double>(want[i]), 2);
  }
  return error / power;
}

std::vector<float> FloatsOf(const StoredTensor& stored) {
  std::vector<float> values(stored.bytes.size() / sizeof(float));
  std::memcpy(values.data(), stored.bytes.data(), stored.bytes.size());
  return values;
}

class LatentsSink : public CheckpointSink {
 public:
  bool Wants(std::string_view name) const override { return name == "final_latents_packed"; }
  void OnCheckpoint(const std::string&, const CheckpointView& view) override {
    const float* data = std::get<float*>(view.data);
    values.assign(data, data + ElementCount(view.shape));
  }
  std::vector<float> values;
};

std::vector<LoraFile> LorasOf(const Json& run) {
  std::vector<LoraFile> loras;
  for (const Json& lora : run.at("loras"))
    loras.push_back({kLoras / lora.at("file").get<std::string>(), lora.at("scale")});
  return loras;
}

class LoraGoldens : public testing::Test {
 protected:
  std::vector<float> Draw(const std::vector<LoraFile>& loras, int threads = 2) const {
    const Json& settings = expected_.at("settings");
    ModelFiles files = kSource / settings.at("model").get<std::string>();
    files.loras = loras;
    const Pipeline pipeline(files, {.threads = threads});
    GenerateRequest request;
    request.prompt = settings.at("prompt");
    request.cfg = settings.at("cfg");
    request.width = settings.at("width");
    request.height = settings.at("height");
    request.steps = settings.at("steps");
    request.seed = settings.at("seed");
    LatentsSink sink;
    pipeline.Generate(request, {.on_progress = {}, .cancel = nullptr, .checkpoints = &sink});
    return sink.values;
  }
  std::vector<float> Want(const std::string& run) const { return FloatsOf(latents_.tensors().at(run)); }

  const Json expected_ = ReadJsonFile(kLoras / "expected.json");
  const SafetensorsFile latents_{kLoras / "expected.safetensors"};
};

TEST_F(LoraGoldens, LatentsAreDiffusersInEverySpelling) {
  EXPECT_LE(Nmse(Draw({}), Want("without")), kMaxNmse);
  double worst = 0;
  for (const Json& run : expected_.at("runs")) {
    const std::string name = run.at("name");
    const std::vector<float> got = Draw(LorasOf(run)), want = Want(name);
    EXPECT_LE(Nmse(got, want), kMaxNmse) << name;
    EXPECT_GT(Nmse(Want("without"), want), 1e-3) << name << " is hardly different from no LoRA";
    worst = std::max(worst, Nmse(got, want));
  }
  EXPECT_GE(expected_.at("runs").size(), 17u);
  RecordProperty("worst_nmse", fmt::format("{:.1e}", worst));
}

TEST_F(LoraGoldens, LatentsDoNotDependOnTheNumberOfThreads) {
  for (const Json& run : expected_.at("runs")) {
    if (run.at("name") != "two_signs") continue;
    const std::vector<float> one = Draw(LorasOf(run), 1);
    for (int threads : {2, 5}) EXPECT_EQ(Draw(LorasOf(run), threads), one) << threads << " threads";
  }
}

TEST_F(LoraGoldens, AScaleOfZeroChangesNothing) {
  EXPECT_EQ(Draw({{kLoras / "peft.safetensors", 0}}), Draw({}));
}

// What AddTo makes of a weight is what diffusers' fuse_lora makes of it.
TEST_F(LoraGoldens, MergedWeightsAreDiffusers) {
  const WeightStore store(kSource / "models/tiny/transformer", Component::kTransformer);
  for (const Json& run : expected_.at("runs")) {
    lora::Set loras(LorasOf(run));
    loras.TakeAll(store);
    loras.Finish();
    for (const auto& [name, want] : expected_.at("weights").at(run.at("weights").get<size_t>()).items()) {
      SCOPED_TRACE(run.at("name").get<std::string>() + " " + name);
      const WeightTensor& weight = *store.Find(name);
      std::vector<float> values = weight.Values();
      const std::string module = name.substr(0, name.size() - std::string(".weight").size());
      const int64_t half = weight.rows() / 2;  // in two pieces, as a converter goes along
      loras.AddTo(module, 0, half, values.data());
      loras.AddTo(module, half, weight.rows() - half, values.data() + half * weight.row_size());
      double squares = 0;
      for (const float value : values) squares += static_cast<double>(value) * value;
      EXPECT_NEAR(squares / want.at("sum_squares").get<double>(), 1, 1e-6);
      for (const Json& probe : want.at("probes"))
        EXPECT_NEAR(values.at(probe.at(0)), probe.at(1).get<double>(), 1e-5) << probe;
    }
  }
}

// Files of a transformer with quantized weights, and the config that belongs to them.
struct QuantizedCase {
  const char *name, *path, *config;
};
void PrintTo(const QuantizedCase& c, std::ostream* out) { *out << c.name; }

class LoraOnQuantized : public testing::TestWithParam<QuantizedCase> {
 protected:
  static std::vector<float> Velocity(const Transformer& transformer, int threads) {
    const TransformerConfig& config = transformer.config();
    const auto random = [](const Shape& shape, unsigned seed) {
      Tensor tensor(shape);
      const std::string bytes = Random(shape, seed, 1).bytes;
      std::memcpy(tensor.data(), bytes.data(), bytes.size());
      return tensor;
    };
    ThreadPool pool(threads);
    const CancelFlag never;
    const Tensor embeds = random({1, 5, config.joint_attention_dim}, 4);
    const Transformer::Prompt prompt = {embeds};
    const TokenGrid grid = {2, 3};
    const std::vector<Tensor> velocity = transformer.PredictVelocities(
        random({1, 6, config.in_channels}, 3), {&prompt, 1}, 0.6f, {&grid, 1}, Compute{pool, never});
    return {velocity[0].data(), velocity[0].data() + velocity[0].size()};
  }
  // Rank 3 for every matrix, about as large as the weights.
  LoraFile WriteLora(const WeightStore& bound) const {
    MadeTensors tensors;
    unsigned seed = 10;
    for (const auto& [name, weight] : bound.tensors()) {
      if (!name.ends_with(".weight") || weight.shape().size() != 2) continue;
      const std::string module = "diffusion_model." + name.substr(0, name.size() - 7);
      tensors[module + ".lora_A.weight"] = Random({3, weight.shape()[1]}, seed++, 0.3f);
      tensors[module + ".lora_B.weight"] = Random({weight.shape()[0], 3}, seed++, 0.3f);
    }
    return {folder_.Write("lora.safetensors", WeightsBytes(tensors)), 0.7};
  }
  // The same model in floats, with the LoRA in its weights.
  fs::path WriteMerged(const WeightStore& bound, const lora::Set& loras) const {
    MadeTensors tensors;
    for (const auto& [name, weight] : bound.tensors()) {
      std::vector<float> values = weight.Values();
      if (weight.shape().size() == 2)
        loras.AddTo(name.substr(0, name.size() - 7), 0, weight.rows(), values.data());
      tensors[name] = Floats(weight.shape(), values);
    }
    folder_.Write("merged/model.safetensors", WeightsBytes(tensors));
    fs::copy(Config(), folder_.path() / "merged/config.json");
    return folder_.path() / "merged";
  }
  static fs::path Config() {
    return kSource / "tests/goldens/formats/configs" / GetParam().config / "transformer/config.json";
  }
  WeightStore OpenQuantized() const {
    const fs::path source = kSource / "tests/goldens/formats" / GetParam().path,
                   target = folder_.path() / "q";
    if (!fs::exists(target)) {
      fs::create_directory(target);
      fs::copy(source, fs::is_directory(source) ? target : target / source.filename());
      fs::copy(Config(), target / "config.json", fs::copy_options::overwrite_existing);
    }
    return WeightStore(target, Component::kTransformer);
  }

  TempFolder folder_;
};

TEST_P(LoraOnQuantized, IsTheMergedModel) {
  const Transformer plain(OpenQuantized());
  const LoraFile file = WriteLora(plain.store());
  const Transformer quantized(OpenQuantized(), lora::Set({file}));
  const AppliedLora& applied = quantized.loras().applied()[0];
  EXPECT_EQ(applied.layers, applied.total);
  EXPECT_GT(applied.layers, 15);
  const Transformer merged(
      WeightStore(WriteMerged(plain.store(), quantized.loras()), Component::kTransformer));
  const std::vector<float> got = Velocity(quantized, 2), want = Velocity(merged, 2);
  EXPECT_LE(Nmse(got, want), 1e-9);
  EXPECT_GT(Nmse(Velocity(plain, 2), want), 1e-2);
  for (int threads : {1, 5}) EXPECT_EQ(Velocity(quantized, threads), got) << threads << " threads";
}

INSTANTIATE_TEST_SUITE_P(Formats, LoraOnQuantized,
                         testing::Values(QuantizedCase{"mflux_q4", "mflux_q4/transformer", "wide64"},
                                         QuantizedCase{"mlx_q8_g32", "mlx_q8_g32.safetensors", "wide32"},
                                         QuantizedCase{"gguf_q4_0", "transformer_q4_0.gguf", "wide32"},
                                         QuantizedCase{"fp8", "comfy_fp8_scaled.safetensors", "wide32"}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace qwen_image
