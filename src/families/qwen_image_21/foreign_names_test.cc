#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/fail.h"
#include "families/qwen_image/vocabulary.h"
#include "families/qwen_image_21/vocabulary.h"
#include "files/gguf_testing.h"
#include "weights/recognize.h"
#include "weights/store.h"
#include "weights/testing.h"

namespace qwen_image::qwen_image_21 {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What tools/formats/golden_names_21.py asked the programs themselves.
const Json& Names() {
  static const Json names =
      ReadJsonFile(fs::path(QWEN_IMAGE_SOURCE_DIR) / "tests/goldens/formats21/names.json");
  return names;
}

Component ComponentOf(const Json& tool) {
  const std::string name = tool.at("component");
  return name == NameOf(Component::kVisionEncoder) ? Component::kVisionEncoder : ParseComponent(name);
}

std::vector<std::string_view> Keys(const Json& object) {
  std::vector<std::string_view> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

TEST(ForeignNames21, TheOfficialOnesStay) {
  for (const auto& [component, names] : Names().at("official").items()) {
    const Renamer rename = MakeRenamer(ParseComponent(component), {}, nullptr);
    for (const std::string name : names) {
      EXPECT_EQ(rename(name), name);
      if (component != "text_encoder") continue;
      EXPECT_EQ(MakeRenamer(Component::kVisionEncoder, {}, nullptr)(name),
                name.starts_with("model.visual.") ? name : "");
    }
  }
}

TEST(ForeignNames21, ThoseOfOtherProgramsAreBroughtToTheOfficialOnes) {
  int tools = 0;
  for (const Json& tool : Names().at("tools")) {
    SCOPED_TRACE(tool.at("tool").get<std::string>() + ", " + tool.at("component").get<std::string>());
    const Component component = ComponentOf(tool);
    const Json& names = tool.at("names");
    const std::vector<std::string_view> stored = Keys(names);
    const Renamer rename = MakeRenamer(component, stored, nullptr);
    for (const auto& [theirs, ours] : names.items()) EXPECT_EQ(rename(theirs), ours.get<std::string>());
    ++tools;
  }
  EXPECT_EQ(tools, 10);
}

// Of files that no program on hand writes.
TEST(ForeignNames21, OfPublishedFiles) {
  struct Case {
    Component component;
    const char *stored, *official;
  };
  const std::string layer = "model.language_model.layers.3.self_attn.q_norm.weight";
  for (const Case& c : std::initializer_list<Case>{
           // ComfyUI: single files with and without the prefix, and all in one
           {Component::kTransformer, "model.diffusion_model.img_in.weight", "img_in.weight"},
           {Component::kTransformer, "diffusion_model.txt_in.text_norm.weight", "txt_in.text_norm.weight"},
           {Component::kTransformer, "vae.conv1.weight", ""},
           {Component::kTransformer, "text_encoders.qwen3vl_8b.transformer.model.norm.weight", ""},
           {Component::kTextEncoder,
            "text_encoders.qwen3vl_8b.transformer.model.layers.3.self_attn.q_norm.weight", layer.c_str()},
           {Component::kTextEncoder, "text_encoders.qwen3vl_8b.model.visual.pos_embed.weight",
            "model.visual.pos_embed.weight"},
           {Component::kTextEncoder, "model.layers.3.self_attn.q_norm.weight", layer.c_str()},
           {Component::kTextEncoder, "visual.merger.norm.weight", "model.visual.merger.norm.weight"},
           {Component::kVisionEncoder, "visual.merger.norm.weight", "model.visual.merger.norm.weight"},
           {Component::kVisionEncoder, "model.layers.3.self_attn.q_norm.weight", ""},
           {Component::kVae, "first_stage_model.decoder.upsamples.3.upsamples.3.resample.1.bias",
            "decoder.up_blocks.3.upsampler.resample.1.bias"},
           {Component::kVae, "vae.conv2.bias", "post_quant_conv.bias"},
           // mlx-community, and tools like mlx-vlm
           {Component::kTransformer, "modulation.0.scales", "modulation.1.scales"},
           {Component::kTransformer, "modulation.layers.1.biases", "modulation.1.biases"},
           {Component::kTransformer, "time_text_embed.linear_2.weight",
            "time_text_embed.timestep_embedder.linear_2.weight"},
           {Component::kTransformer, "img_in.inner.weight", "img_in.weight"},
           {Component::kTextEncoder, "language_model.model.layers.3.self_attn.q_norm.weight", layer.c_str()},
           {Component::kTextEncoder, "language_model.lm_head.weight", "lm_head.weight"},
           {Component::kTextEncoder, "vision_tower.pos_embed.weight", "model.visual.pos_embed.weight"},
           // tables that mflux saved once
           {Component::kTransformer, "time_text_embed.time_proj.freqs", ""},
           {Component::kTransformer, "pos_embed.cos_tables.0", ""},
           {Component::kTransformer, "pos_embed.sin_tables.2", ""},
       }) {
    EXPECT_EQ(MakeRenamer(c.component, {}, nullptr)(c.stored), c.official) << c.stored;
  }
}

// The mergers are numbered by the blocks that they read, which need not come in order.
TEST(ForeignNames21, DeepstackMergersFollowTheirBlocks) {
  const std::vector<std::string_view> stored = {"v.deepstack.16.fc1.weight", "v.deepstack.24.norm.bias",
                                                "v.deepstack.8.fc2.weight", "v.deepstack.8.norm.weight"};
  const Renamer rename = MakeRenamer(Component::kVisionEncoder, stored, nullptr);
  EXPECT_EQ(rename(stored[0]), "model.visual.deepstack_merger_list.1.linear_fc1.weight");
  EXPECT_EQ(rename(stored[1]), "model.visual.deepstack_merger_list.2.norm.bias");
  EXPECT_EQ(rename(stored[2]), "model.visual.deepstack_merger_list.0.linear_fc2.weight");
}

class ForeignFiles21 : public ::testing::Test {
 protected:
  static MadeTensors Tensors(const std::vector<std::string>& names) {
    MadeTensors tensors;
    for (const std::string& name : names) tensors[name] = Constant({2}, 1);
    return tensors;
  }
  fs::path Write(const std::vector<std::string>& names, const std::string& file = "w.safetensors") const {
    return folder_.Write(file, WeightsBytes(Tensors(names)));
  }
  fs::path WriteGguf(const std::vector<std::string>& names, std::string_view architecture) const {
    GgufBytes gguf;
    if (!architecture.empty())
      gguf.Value("general.architecture", GgufType::kString, GgufString(architecture));
    for (const std::string& name : names) {
      gguf.Tensor(name, {1}, /*F32*/ 0, gguf.data.size());
      gguf.Data(std::string(32, '\0'));
    }
    return folder_.Write("w.gguf", gguf.Bytes());
  }

  const ScopedVocabulary family_{kQwenImage21Vocabulary};
  TempFolder folder_;
};

// Files of every tool are distinguished from the older family's, whose names are much alike.
TEST_F(ForeignFiles21, AreRecognised) {
  for (const Json& tool : Names().at("tools")) {
    const Component component = ComponentOf(tool);
    if (component == Component::kVisionEncoder) continue;
    SCOPED_TRACE(tool.at("tool").get<std::string>() + ", " + tool.at("component").get<std::string>());
    const Json& theirs = tool.at("names");
    std::vector<std::string> names;
    std::set<std::string> renamed;
    for (const auto& [stored, official] : theirs.items()) {
      names.push_back(stored);
      renamed.insert(official);
    }
    for (const std::string name : Names().at("official").at(tool.at("component").get<std::string>())) {
      if (!renamed.contains(name)) names.push_back(name);
    }
    const RecognizedFile found = RecognizeFile(Write(names));
    EXPECT_EQ(found.family, &kQwenImage21Vocabulary);
    EXPECT_THAT(found.components, ElementsAre(component));
  }
}

TEST_F(ForeignFiles21, OfTheOlderFamilyAreStillIts) {
  for (const char* name : {"txt_norm.weight", "token_embd.weight", "decoder.conv1.weight",
                           "decoder.conv_in.conv3d.weight", "model.embed_tokens.weight"})
    EXPECT_EQ(RecognizeFile(Write({name})).family, &kQwenImageVocabulary) << name;
}

// GGUF files of the transformer come with the family's word, another's, or none.
TEST_F(ForeignFiles21, GgufOfTheTransformer) {
  for (const char* architecture : {"qwen_image21", "qwen_image", ""}) {
    for (const std::string prefix : {"", "model.diffusion_model."}) {
      const WeightStore store(
          WriteGguf({prefix + "txt_in.text_norm.weight", prefix + "img_in.weight"}, architecture),
          Component::kTransformer);
      EXPECT_EQ(&store.family(), &kWeightNames) << architecture;
      EXPECT_TRUE(store.Find("img_in.weight"));
    }
  }
}

TEST_F(ForeignFiles21, GgufOfTheTextEncoder) {
  const std::vector<std::string> names = {"token_embd.weight", "blk.0.attn_q_norm.weight",
                                          "blk.0.attn_norm.weight"};
  for (const char* architecture : {"qwen3vl", ""}) {
    const WeightStore store(WriteGguf(names, architecture), Component::kTextEncoder);
    EXPECT_EQ(&store.family(), &kWeightNames);
    EXPECT_TRUE(store.Find("model.language_model.layers.0.self_attn.q_norm.weight"));
  }
  // It has the same tensors in the same shapes, and would draw something else.
  const fs::path other = WriteGguf(names, "qwen3");
  EXPECT_THAT(
      MessageOf(ErrorKind::kBadInput, [&] { WeightStore(other, Component::kTextEncoder); }),
      AllOf(HasSubstr("w.gguf"), HasSubstr("\"qwen3\""), HasSubstr("Qwen-Image-2.1"), HasSubstr("qwen3vl")));
}

TEST_F(ForeignFiles21, AVisionTowerByItselfIsToldByItsPositions) {
  const WeightStore mmproj(
      WriteGguf({"v.position_embd.weight", "v.blk.0.ln1.weight", "v.deepstack.8.norm.weight", "mm.0.weight"},
                "clip"),
      Component::kVisionEncoder);
  EXPECT_EQ(&mmproj.family(), &kWeightNames);
  EXPECT_TRUE(mmproj.Find("model.visual.deepstack_merger_list.0.norm.weight"));
  EXPECT_TRUE(mmproj.Find("model.visual.merger.linear_fc1.weight"));
  const WeightStore alone(Write({"visual.pos_embed.weight", "visual.blocks.0.norm1.weight"}),
                          Component::kVisionEncoder);
  EXPECT_EQ(&alone.family(), &kWeightNames);
  const WeightStore older(WriteGguf({"v.post_ln.weight", "mm.0.weight"}, "clip"), Component::kVisionEncoder);
  EXPECT_EQ(&older.family(), &kQwenImageWeightNames);
  EXPECT_TRUE(older.Find("model.visual.merger.mlp.0.weight"));
}

// The first shard may hold nothing that tells the families apart.
TEST_F(ForeignFiles21, ShardsAreOfOneFamily) {
  const std::vector<std::string> shards[] = {{"embed_tokens.weight", "norm.weight"},
                                             {"layers.0.self_attn.q_norm.weight"}};
  Json map;
  for (int i = 0; i < 2; ++i) {
    const std::string file = std::to_string(i) + ".safetensors";
    Write(shards[i], file);
    for (const std::string& name : shards[i]) map[name] = file;
  }
  folder_.Write("model.safetensors.index.json", Json{{"weight_map", map}}.dump());
  const WeightStore store(folder_.path(), Component::kTextEncoder);
  EXPECT_EQ(&store.family(), &kWeightNames);
  EXPECT_TRUE(store.Find("model.language_model.embed_tokens.weight"));

  Write({"model.language_model.embed_tokens.weight"}, "0.safetensors");
  Write({"model.visual.pos_embed.weight"}, "1.safetensors");
  map = {{"model.language_model.embed_tokens.weight", "0.safetensors"},
         {"model.visual.pos_embed.weight", "1.safetensors"}};
  folder_.Write("model.safetensors.index.json", Json{{"weight_map", map}}.dump());
  EXPECT_EQ(&WeightStore(folder_.path(), Component::kTextEncoder).family(), &kWeightNames);
}

// ComfyUI's convolutions are a frame deep; GGUF has four dimensions, and folds the first two of five.
TEST_F(ForeignFiles21, ConvolutionsOfOneFrame) {
  const Shape plane = {3, 2, 3, 3}, point = {3, 2, 1, 1};
  MadeTensors tensors = {{"a", Random({3, 2, 1, 3, 3}, 1)}, {"b", Random({6, 1, 3, 3}, 2)},
                         {"c", Random({3, 2, 1, 1, 1}, 3)}, {"d", Random({6}, 4)},
                         {"e", Random({2, 3, 1, 3, 3}, 5)}, {"f", Random({3, 2, 3, 3, 3}, 6)},
                         {"g", Random({3, 2, 9}, 7)}};
  WeightStore store(folder_.Write("w.safetensors", WeightsBytes(tensors)), Component::kVae);
  const auto fits = [&](const char* name, const Shape& shape) {
    WeightTensor tensor = *store.Find(name);
    const std::vector<float> before = tensor.Values();
    const bool fit = tensor.FitTo(shape);
    if (fit) {
      EXPECT_EQ(tensor.shape(), shape);
      EXPECT_EQ(tensor.Values(), before);
    }
    return fit;
  };
  EXPECT_TRUE(fits("a", plane));
  EXPECT_TRUE(fits("b", plane));
  EXPECT_TRUE(fits("c", point));
  EXPECT_TRUE(fits("d", point));
  for (const char* other : {"e", "f", "g"}) EXPECT_FALSE(fits(other, plane)) << other;
  // Of a tensor that nothing binds.
  const auto rows = [](const std::string& name) { return name == "x.time_conv.bias" ? 3 : 0; };
  EXPECT_EQ(kWeightNames.unbound_shape("x.time_conv.weight", 6, rows), point);
  EXPECT_EQ(kWeightNames.unbound_shape("y.time_conv.weight", 6, rows), Shape());
}

}  // namespace
}  // namespace qwen_image::qwen_image_21
