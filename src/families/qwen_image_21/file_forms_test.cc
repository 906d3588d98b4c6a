// The transformer bound from files of other tools, whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/fail.h"
#include "families/qwen_image_21/transformer.h"
#include "families/qwen_image_21/vocabulary.h"
#include "weights/testing.h"

namespace qwen_image::qwen_image_21 {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const fs::path kFormats = fs::path(QWEN_IMAGE_SOURCE_DIR) / "tests/goldens/formats21";

std::vector<float> Decoded(const Linear& linear) {
  const WeightMatrix& w = linear.weight;
  std::vector<float> values(static_cast<size_t>(w.rows * w.cols));
  for (int64_t row = 0; row < w.rows; ++row) DecodeRow(w, row, 0, w.cols, values.data() + row * w.cols);
  return values;
}

class FileForms21 : public ::testing::Test {
 protected:
  const ScopedVocabulary family_{kQwenImage21Vocabulary};
  TempFolder folder_;
};

TEST_F(FileForms21, OfOtherPrograms) {
  const fs::path mflux = folder_.path() / "transformer";
  fs::copy(kFormats / "mflux_q4/transformer", mflux);
  fs::copy_file(kFormats / "config.json", mflux / "config.json");
  for (const fs::path& path :
       {kFormats / "transformer_q8_0.gguf", kFormats / "transformer_q4_0_bare.gguf", mflux}) {
    SCOPED_TRACE(path);
    const Transformer transformer(WeightStore(path, Component::kTransformer));
    const TransformerWeights::Block& block = transformer.weights().transformer_blocks.at(0);
    EXPECT_EQ(block.gate_layer.weight.rows, 64);
    EXPECT_NE(Decoded(block.gate_layer), Decoded(block.proj));
    EXPECT_EQ(block.norm_q.size(), 32u);
  }
}

// All tensors of a transformer whose config follows from their shapes, with gate and up apart.
MadeTensors Whole() {
  const int64_t dim = 128, context = 64, mlp = 256;
  MadeTensors tensors;
  unsigned seed = 0;
  const auto add = [&](const std::string& name, const Shape& shape) {
    tensors[name + ".weight"] = Random(shape, ++seed);
  };
  add("img_in", {dim, 4});
  add("txt_in.text_norm", {context});
  add("txt_in.in_layer", {dim, context});
  add("txt_in.out_layer", {dim, dim});
  add("time_text_embed.timestep_embedder.linear_1", {dim, 256});
  add("time_text_embed.timestep_embedder.linear_2", {dim, dim});
  add("modulation.1", {4 * dim, dim});
  for (int i = 0; i < 2; ++i) {
    const std::string block = fmt::format("transformer_blocks.{}.", i);
    for (const char* name : {"attn.to_q", "attn.to_k", "attn.to_v", "attn.to_out.0"})
      add(block + name, {dim, dim});
    for (const char* name : {"attn.norm_q", "attn.norm_k"}) add(block + name, {dim});
    for (const char* name : {"img_mlp.gate_layer", "img_mlp.proj"}) add(block + name, {mlp, dim});
    add(block + "img_mlp.out", {dim, mlp});
  }
  add("norm_out.linear", {dim, dim});
  add("proj_out", {4, dim});
  return tensors;
}

TEST_F(FileForms21, FusedRowsAreTheLayersThatTheyWere) {
  const MadeTensors apart = Whole();
  MadeTensors fused;
  for (const auto& [name, tensor] : apart) {
    const size_t at = name.find("gate_layer");
    if (name.find("img_mlp.proj.") != name.npos) continue;
    std::string stored = name;
    MadeTensor whole = tensor;
    if (at != name.npos) {
      std::string up = name;
      up.replace(at, std::string("gate_layer").size(), "proj");
      stored.replace(at, std::string("gate_layer").size(), "gate_up");
      whole.shape[0] *= 2;
      whole.bytes += apart.at(up).bytes;
    }
    fused["model.diffusion_model." + stored] = whole;
  }
  ASSERT_EQ(fused.size() + 2, apart.size());
  const fs::path first = folder_.Write("apart.safetensors", WeightsBytes(apart)),
                 second = folder_.Write("fused.safetensors", WeightsBytes(fused));
  const Transformer reference(WeightStore(first, Component::kTransformer)),
      transformer(WeightStore(second, Component::kTransformer));
  EXPECT_EQ(transformer.config().num_layers, 2);
  EXPECT_EQ(transformer.config().mlp_ratio, 2);
  const auto want = reference.weights().AllLayers(), got = transformer.weights().AllLayers();
  ASSERT_EQ(want.size(), got.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(Decoded(*got[i]), Decoded(*want[i])) << i;
}

TEST_F(FileForms21, WhatIsMissingIsNamedByTheModule) {
  MadeTensors tensors = Whole();
  tensors.erase("transformer_blocks.1.img_mlp.proj.weight");
  const fs::path path = folder_.Write("w.safetensors", WeightsBytes(tensors));
  EXPECT_THAT(
      MessageOf(ErrorKind::kBadInput, [&] { Transformer(WeightStore(path, Component::kTransformer)); }),
      HasSubstr("transformer_blocks.1.img_mlp.proj.weight is missing, expected with shape [256, 128]"));
}

}  // namespace
}  // namespace qwen_image::qwen_image_21
