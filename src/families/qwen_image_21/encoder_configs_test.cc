// What configs and files may say, and what is said to those that are damaged or hostile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "families/qwen_image_21/encoders_testing.h"
#include "files/gguf_testing.h"

namespace qwen_image::qwen_image_21 {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// The nested golden model with other words in its config.
class ConfigTest : public ::testing::Test {
 protected:
  ConfigTest() { folder_.Write("model.safetensors", ReadBytes(kGoldens / "nested/model.safetensors")); }

  void Set(const char* section, const char* key, const Json& value) {
    Json config = ReadJsonFile(kGoldens / "nested/config.json");
    config[section][key] = value;
    folder_.Write("config.json", config.dump());
  }
  std::string TextMessage(const char* key, const Json& value) {
    Set("text_config", key, value);
    return MessageOf(ErrorKind::kBadInput, [&] { LoadTextEncoder(folder_.path()); });
  }
  std::string RopeMessage(const Json& value) { return TextMessage("rope_parameters", value); }
  std::string VisionMessage(const char* key, const Json& value) {
    Set("vision_config", key, value);
    return MessageOf(ErrorKind::kBadInput, [&] { LoadVisionEncoder(folder_.path()); });
  }
  const TempFolder folder_;
};

TEST_F(ConfigTest, OfTextIsChecked) {
  EXPECT_THAT(TextMessage("num_attention_heads", 3), HasSubstr("q_proj.weight (3) has shape [24, 12]"));
  EXPECT_THAT(TextMessage("num_attention_heads", 0), HasSubstr("\"num_attention_heads\" is 0"));
  EXPECT_THAT(TextMessage("num_key_value_heads", 4), HasSubstr("cannot share 4 key/value heads"));
  EXPECT_THAT(TextMessage("head_dim", 11), HasSubstr("heads of 11 values"));
  EXPECT_THAT(TextMessage("head_dim", int64_t{1} << 40), HasSubstr("\"head_dim\""));
  EXPECT_THAT(TextMessage("hidden_size", int64_t{1} << 50), HasSubstr("\"hidden_size\""));
  EXPECT_THAT(TextMessage("hidden_size", 1 << 20), HasSubstr("of a wrong shape"));
  EXPECT_THAT(TextMessage("vocab_size", 65), HasSubstr("embed_tokens.weight has shape [64, 12]"));
  EXPECT_THAT(TextMessage("num_hidden_layers", 4), HasSubstr("layers.3.self_attn.q_norm.weight is missing"));
  EXPECT_THAT(TextMessage("num_hidden_layers", 1 << 20), HasSubstr("\"num_hidden_layers\""));
  EXPECT_THAT(TextMessage("hidden_act", "gelu"), HasSubstr("\"gelu\" is not supported"));
  for (const double wrong : {0.0, -1.0})
    EXPECT_THAT(TextMessage("rms_norm_eps", wrong), HasSubstr("\"rms_norm_eps\" is"));
  EXPECT_THAT(TextMessage("attention_bias", true), HasSubstr("attention_bias is not supported"));
}

TEST_F(ConfigTest, OfRopeIsChecked) {
  for (const Json& section : {Json{2, 2, 1}, Json{2, 2, 3}, Json{6}, Json{2, 2, 1, 1}, Json{0, 0, 0}})
    EXPECT_THAT(RopeMessage({{"mrope_section", section}}), HasSubstr("does not share the 6 frequencies"));
  EXPECT_THAT(RopeMessage({{"mrope_section", {7, -1, 0}}}), HasSubstr("mrope_section"));
  EXPECT_THAT(RopeMessage({{"mrope_section", "all"}}), HasSubstr("mrope_section"));
  for (const double wrong : {0.0, -5.0})
    EXPECT_THAT(RopeMessage({{"rope_theta", wrong}}), HasSubstr("\"rope_theta\" is"));
  EXPECT_THAT(RopeMessage({{"rope_type", "yarn"}}), HasSubstr("rope type \"yarn\" is not supported"));
  EXPECT_THAT(RopeMessage({{"rope_theta", "x"}}), HasSubstr("rope_theta"));
}

TEST_F(ConfigTest, OfTextTakesTransformersDefaults) {
  Json config = ReadJsonFile(kGoldens / "nested/config.json");
  for (const char* key : {"rope_parameters", "head_dim", "rms_norm_eps", "hidden_act"})
    config["text_config"].erase(key);
  folder_.Write("config.json", config.dump());
  const TextEncoderConfig c = LoadTextEncoder(folder_.path()).config();
  EXPECT_EQ(c.head_dim, 12);
  EXPECT_EQ(c.rope_theta, 5e5);
  EXPECT_EQ(c.rms_norm_eps, 1e-6);
  EXPECT_EQ(c.mrope_section, (std::array<int64_t, 3>{2, 2, 2}));
}

TEST_F(ConfigTest, OfTextMayBeMissing) {
  folder_.Write("config.json", "{}");
  fs::remove(folder_.path() / "config.json");
  const TextEncoderConfig c = LoadTextEncoder(folder_.path()).config();
  EXPECT_EQ(c.vocab_size, 64);
  EXPECT_EQ(c.hidden_size, 12);
  EXPECT_EQ(c.intermediate_size, 20);
  EXPECT_EQ(c.num_hidden_layers, 3);
  EXPECT_EQ(c.num_attention_heads, 2);
  EXPECT_EQ(c.num_key_value_heads, 1);
  EXPECT_EQ(c.head_dim, 12);
  EXPECT_EQ(c.rope_theta, 5e6);  // as published
}

TEST_F(ConfigTest, OfVisionIsChecked) {
  EXPECT_THAT(VisionMessage("num_heads", 3),
              AllOf(HasSubstr("vision_config"), HasSubstr("8 does not split")));
  EXPECT_THAT(VisionMessage("num_heads", 4), HasSubstr("multiple of 4"));
  EXPECT_THAT(VisionMessage("num_heads", 0), HasSubstr("\"num_heads\" is 0"));
  EXPECT_THAT(VisionMessage("num_position_embeddings", 24),
              HasSubstr("24 position embeddings are not a square"));
  EXPECT_THAT(VisionMessage("num_position_embeddings", 36), HasSubstr("pos_embed.weight has shape [25, 8]"));
  EXPECT_THAT(VisionMessage("num_position_embeddings", int64_t{1} << 50),
              HasSubstr("\"num_position_embeddings\""));
  EXPECT_THAT(VisionMessage("deepstack_visual_indexes", {0, 2}), HasSubstr("deepstack_visual_indexes"));
  EXPECT_THAT(VisionMessage("deepstack_visual_indexes", {-1}), HasSubstr("deepstack_visual_indexes"));
  EXPECT_THAT(VisionMessage("deepstack_visual_indexes", {1, 1}), HasSubstr("names a block twice"));
  EXPECT_THAT(VisionMessage("deepstack_visual_indexes", 1), HasSubstr("deepstack_visual_indexes"));
  EXPECT_THAT(VisionMessage("deepstack_visual_indexes", {1}),
              HasSubstr("deepstack_merger_list.1.linear_fc1.bias is not expected"));
  EXPECT_THAT(VisionMessage("deepstack_visual_indexes", Json::array()),
              HasSubstr("deepstack_merger_list.{0,1}.linear_fc1.bias (2) is not expected"));
  EXPECT_THAT(VisionMessage("deepstack_visual_indexes", nullptr), HasSubstr("put its config.json beside it"));
  EXPECT_THAT(VisionMessage("hidden_act", "gelu"), HasSubstr("\"gelu\" is not supported"));
  EXPECT_THAT(VisionMessage("rope_parameters", {{"rope_type", "yarn"}}),
              HasSubstr("\"yarn\" is not supported"));
  EXPECT_THAT(VisionMessage("rope_parameters", {{"rope_theta", 0}}), HasSubstr("\"rope_theta\" is 0"));
  EXPECT_THAT(VisionMessage("depth", 3), HasSubstr("model.visual.blocks.2.norm1.bias is missing"));
  EXPECT_THAT(VisionMessage("hidden_size", 1 << 20), HasSubstr("of a wrong shape"));
  EXPECT_THAT(VisionMessage("spatial_merge_size", 64), HasSubstr("of a wrong shape"));
  EXPECT_THAT(VisionMessage("patch_size", 1024), HasSubstr("expected [8, 3, 2, 1024, 1024]"));
  EXPECT_THAT(VisionMessage("patch_size", 1 << 20), HasSubstr("\"patch_size\""));
}

TEST(TextConfig, OfAnOlderModelIsNamed) {
  const fs::path older = fs::path(QWEN_IMAGE_SOURCE_DIR) / "models/tiny/text_encoder";
  EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [&] { LoadTextEncoder(older); }),
              HasSubstr("this is the text encoder of an older model (Qwen2.5-VL)"));
}

HalfWeights Golden() { return ReadHalfWeights(kGoldens / "nested/model.safetensors"); }

TEST(EncoderWeights, AreNamedAllAtOnceWhenTheyDoNotFit) {
  const TempFolder folder;
  HalfWeights weights = Golden();
  weights.erase("model.visual.blocks.1.norm1.bias");
  weights.erase("model.visual.pos_embed.weight");
  weights.erase("model.language_model.layers.0.self_attn.q_norm.weight");
  weights["model.visual.patch_embed.proj.bias"] = {{4}, std::string(8, '\0')};
  weights["model.language_model.layers.0.self_attn.q_proj.bias"] = {{24}, std::string(48, '\0')};
  folder.Write("model.safetensors", Safetensors(weights));
  folder.Write("config.json", ReadBytes(kGoldens / "nested/config.json"));
  EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [&] { LoadVisionEncoder(folder.path()); }),
              AllOf(HasSubstr("2 missing, 1 of a wrong shape, 0 not readable, 0 not expected"),
                    HasSubstr("blocks.1.norm1.bias is missing"),
                    HasSubstr("pos_embed.weight is missing, expected with shape [25, 8]"),
                    HasSubstr("patch_embed.proj.bias has shape [4], expected [8]"),
                    Not(HasSubstr("language_model"))));
  EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [&] { LoadTextEncoder(folder.path()); }),
              AllOf(HasSubstr("1 missing, 0 of a wrong shape, 0 not readable, 1 not expected"),
                    HasSubstr("self_attn.q_norm.weight is missing, expected with shape [12]"),
                    HasSubstr("self_attn.q_proj.bias is not expected")));
}

// The final norm and the head are legal, and not needed.
TEST(EncoderWeights, MayLackWhatIsNotUsed) {
  const TempFolder folder;
  HalfWeights weights = Golden();
  EXPECT_EQ(weights.erase("model.language_model.norm.weight"), 1u);
  EXPECT_EQ(weights.erase("lm_head.weight"), 1u);
  folder.Write("model.safetensors", Safetensors(weights));
  folder.Write("config.json", ReadBytes(kGoldens / "nested/config.json"));
  const VisionCase c = FindCase("nested", "text");
  const Tensor want = ExpectedOf("nested").Get("text/hidden_states");
  const Tensor got = EncodeText(LoadTextEncoder(folder.path()), c, {});
  EXPECT_LE(Nmse(got.data(), want.data(), want.size()), 1e-8);
}

TEST(EncoderWeights, MayHoldThePatchEmbeddingAsAMatrixOrByFrames) {
  const VisionCase c = FindCase("nested", "two");
  const std::vector<Tensor> want = EncodeVision(LoadVisionEncoder(kGoldens / "nested"), c);
  const std::string name = "model.visual.patch_embed.proj.";
  const HalfWeight whole = Golden().at(name + "weight");
  HalfWeights matrix = Golden(), frames = Golden();
  matrix[name + "weight"].shape = {8, 96};
  frames.erase(name + "weight");
  constexpr size_t kArea = 4 * 4 * 2;  // bytes of a channel's patch
  for (size_t frame = 0; frame < 2; ++frame) {
    HalfWeight& half = frames[name + std::to_string(frame) + ".weight"];
    half.shape = {8, 3, 4, 4};
    for (size_t at = frame * kArea; at < whole.bytes.size(); at += 2 * kArea)
      half.bytes += whole.bytes.substr(at, kArea);
  }
  for (const HalfWeights& weights : {matrix, frames}) {
    const TempFolder folder;
    folder.Write("model.safetensors", Safetensors(weights));
    folder.Write("config.json", ReadBytes(kGoldens / "nested/config.json"));
    const std::vector<Tensor> got = EncodeVision(LoadVisionEncoder(folder.path()), c);
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_TRUE(SameBits(got[i].data(), want[i].data(), want[i].size())) << i;
  }
}

TEST(EncoderWeights, OfATextEncoderWithoutATowerAreMissed) {
  const TempFolder folder;
  HalfWeights weights;
  for (auto& [name, weight] : Golden())
    if (!name.starts_with("model.visual.")) weights[name] = weight;
  folder.Write("model.safetensors", Safetensors(weights));
  folder.Write("config.json", ReadBytes(kGoldens / "nested/config.json"));
  EXPECT_NO_THROW(LoadTextEncoder(folder.path()));
  EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [&] { LoadVisionEncoder(folder.path()); }),
              HasSubstr("has no vision tower (model.visual.*), which editing needs"));
}

// llama.cpp's names of a tower say which blocks its deepstack mergers read.
TEST(VisionConfig, TakesTheDeepstackOfAnMmprojFile) {
  const auto read = [](std::initializer_list<int> deepstack) {
    HalfWeights weights;
    const auto add = [&](const std::string& name, const Shape& shape) {
      weights[name] = {shape, std::string(static_cast<size_t>(2 * ElementCount(shape)), '\0')};
    };
    for (int i = 0; i < 27; ++i) add("v.blk." + std::to_string(i) + ".ln1.weight", {64});
    for (const int block : deepstack) add("v.deepstack." + std::to_string(block) + ".norm.weight", {1});
    add("v.blk.0.ffn_up.weight", {5, 1});
    add("mm.2.weight", {7, 1});
    add("v.position_embd.weight", {2304, 1});
    const TempFolder folder;
    const fs::path file = folder.Write("mmproj.safetensors", Safetensors(weights));
    return ReadVisionEncoderConfig(WeightStore(file, Component::kVisionEncoder)).deepstack_visual_indexes;
  };
  EXPECT_EQ(read({11, 5, 17}), (std::vector<int64_t>{5, 11, 17}));
  EXPECT_EQ(read({0}), (std::vector<int64_t>{0}));
  EXPECT_TRUE(read({}).empty());
  EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [&] { read({5, 27}); }), HasSubstr("but there are 27"));
}

// A tower of Qwen3-VL-8B's shape in which only what tells its config is there.
TEST(VisionConfig, IsThatOfQwen3Vl8bWhereNothingTells) {
  const auto read = [](int64_t depth, int64_t mergers, int64_t positions) {
    HalfWeights weights;
    const auto add = [&](const std::string& name, const Shape& shape) {
      weights["model.visual." + name] = {shape,
                                         std::string(static_cast<size_t>(2 * ElementCount(shape)), '\0')};
    };
    for (int64_t i = 0; i < depth; ++i) add("blocks." + std::to_string(i) + ".norm1.weight", {64});
    for (int64_t i = 0; i < mergers; ++i)
      add("deepstack_merger_list." + std::to_string(i) + ".norm.weight", {1});
    add("blocks.0.mlp.linear_fc1.weight", {5, 1});
    add("merger.linear_fc2.weight", {7, 1});
    add("pos_embed.weight", {positions, 1});
    const TempFolder folder;
    const fs::path file = folder.Write("vision.safetensors", Safetensors(weights));
    return ReadVisionEncoderConfig(WeightStore(file, Component::kVisionEncoder));
  };
  const VisionEncoderConfig c = read(27, 3, 2304);
  EXPECT_EQ(c.depth, 27);
  EXPECT_EQ(c.hidden_size, 64);
  EXPECT_EQ(c.intermediate_size, 5);
  EXPECT_EQ(c.out_hidden_size, 7);
  EXPECT_EQ(c.num_heads, 16);
  EXPECT_EQ(c.position_side(), 48);
  EXPECT_EQ(c.patch().values(), 1536);
  EXPECT_EQ(c.deepstack_visual_indexes, (std::vector<int64_t>{8, 16, 24}));
  EXPECT_TRUE(read(2, 0, 1).deepstack_visual_indexes.empty());
  EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [&] { read(26, 3, 2304); }),
              HasSubstr("26 blocks and 3 deepstack mergers"));
  EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [&] { read(27, 3, 2303); }), HasSubstr("not a square table"));
}

// An encoder with its tower, of random weights that Q8_0 holds without loss: the same once with its matrices
// as Q8_0, and once all in float32.
std::string WideModel(const HalfWeights& shapes, bool quantized) {
  constexpr float kScale = 0.001953125f;  // 2^-9, and as float16:
  constexpr uint64_t kHalfScale = 0x1800;
  constexpr uint32_t kF32 = 0, kQ8 = 8;  // ggml's numbers
  std::mt19937 random(7);
  GgufBytes file;
  for (const auto& [name, weight] : shapes) {
    std::string blocks, floats;
    for (int64_t i = 0; i < ElementCount(weight.shape); ++i) {
      const int q = static_cast<int>(random() % 255) - 127;
      const float value = kScale * static_cast<float>(q);
      if (i % 32 == 0) blocks += LittleEndian(kHalfScale, 2);
      blocks += static_cast<char>(q);
      floats.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
    const bool blocked = quantized && weight.shape.size() == 2;
    file.Tensor(name, std::vector<uint64_t>(weight.shape.rbegin(), weight.shape.rend()), blocked ? kQ8 : kF32,
                file.data.size());
    file.Data(blocked ? blocks : floats);
    file.data.resize((file.data.size() + 31) / 32 * 32, '\0');
  }
  return file.Bytes();
}

// The nested model's tensors with every width a multiple of 32.
HalfWeights WideShapes(const Json& text, const Json& vision) {
  HalfWeights shapes;
  const int64_t hidden = text["hidden_size"], head_dim = text["head_dim"], tower = vision["hidden_size"];
  const int64_t q = text["num_attention_heads"].get<int64_t>() * head_dim,
                kv = text["num_key_value_heads"].get<int64_t>() * head_dim;
  const std::map<int64_t, int64_t> wider = {{12, hidden}, {20, text["intermediate_size"]}, {8, tower}};
  for (auto& [name, weight] : Golden()) {
    Shape shape = weight.shape;
    if (shape.size() == 5) {  // GGUF has a tensor for each frame
      for (const char* frame : {"0", "1"})
        shapes["model.visual.patch_embed.proj." + std::string(frame) + ".weight"] = {{tower, 3, 4, 4}, ""};
      continue;
    }
    if (name.find(".visual.") != name.npos) {
      const int64_t merged = 4 * tower;
      const std::map<int64_t, int64_t> widths = {
          {8, tower}, {24, 3 * tower}, {12, vision["intermediate_size"]}, {32, merged}};
      for (int64_t& side : shape) side = widths.contains(side) ? widths.at(side) : side;
      if (name.find("linear_fc2") != name.npos && name.find("merger") != name.npos) shape[0] = hidden;
    } else if (name.find("_norm.") != name.npos) {
      shape = {head_dim};
    } else if (name.find("q_proj") != name.npos) {
      shape = {q, hidden};
    } else if (name.find("o_proj") != name.npos) {
      shape = {hidden, q};
    } else if (name.find("k_proj") != name.npos || name.find("v_proj") != name.npos) {
      shape = {kv, hidden};
    } else {
      for (int64_t& side : shape) side = wider.contains(side) ? wider.at(side) : side;
    }
    shapes[name] = {shape, ""};
  }
  return shapes;
}

TEST(EncoderWeights, MayBeQuantized) {
  Json config = ReadJsonFile(kGoldens / "nested/config.json");
  Json &text = config["text_config"], &vision = config["vision_config"];
  text.update({{"hidden_size", 32}, {"head_dim", 32}, {"intermediate_size", 64}});
  text["rope_parameters"]["mrope_section"] = {6, 5, 5};
  vision.update({{"hidden_size", 32}, {"intermediate_size", 64}, {"out_hidden_size", 32}});
  const TempFolder folder;
  folder.Write("config.json", config.dump());
  const HalfWeights shapes = WideShapes(text, vision);
  const fs::path plain = folder.Write("f32.gguf", WideModel(shapes, false)),
                 q8 = folder.Write("q8.gguf", WideModel(shapes, true));
  const VisionCase c = FindCase("nested", "two");
  const auto encode = [&](const fs::path& file, Precision precision) {
    std::vector<Tensor> results = EncodeVision(LoadVisionEncoder(file, precision), c);
    results.push_back(EncodeText(LoadTextEncoder(file, precision), c, results));
    return results;
  };
  const std::vector<Tensor> want = encode(plain, Precision::kExact), exact = encode(q8, Precision::kExact),
                            fast = encode(q8, Precision::kFast);
  ASSERT_EQ(want.size(), 4u);
  for (size_t i = 0; i < want.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_TRUE(SameBits(exact[i].data(), want[i].data(), want[i].size()));
    const double error = Nmse(fast[i].data(), want[i].data(), want[i].size());
    EXPECT_GT(error, 1e-9) << "nothing was computed in 8 bits";
    EXPECT_LT(error, 1e-3);
  }
}

}  // namespace
}  // namespace qwen_image::qwen_image_21
