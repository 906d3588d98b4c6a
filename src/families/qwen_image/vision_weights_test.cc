// Where a vision tower is found, and what is said when it is not there or not whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "families/qwen_image/vision_testing.h"
#include "files/gguf_testing.h"
#include "weights/recognize.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Weights = HalfWeights;

Weights ReadWeights(const std::string& model) {
  return ReadHalfWeights(kVisionGoldens / model / "model.safetensors");
}

class Mmproj {
 public:
  Mmproj() {
    Text("general.architecture", "clip");
    Text("clip.projector_type", "qwen2.5vl_merger");
    for (const auto& [key, value] : {std::pair{"attention.head_count", 2},
                                     {"patch_size", 4},
                                     {"spatial_merge_size", 2},
                                     {"window_size", 16},
                                     {"n_wa_pattern", 2}})
      file_.Value(std::string("clip.vision.") + key, GgufType::kU32,
                  LittleEndian(static_cast<uint64_t>(value), 4));
  }
  void Text(std::string_view key, std::string_view text) {
    file_.Value(key, GgufType::kString, GgufString(text));
  }
  static constexpr uint32_t kF32 = 0, kF16 = 1, kQ8 = 8;  // ggml's numbers
  void Add(const std::string& name, const Shape& shape, std::string_view bytes, uint32_t type = kF16) {
    file_.Tensor(name, std::vector<uint64_t>(shape.rbegin(), shape.rend()), type, file_.data.size());
    file_.Data(bytes);
    file_.data.resize((file_.data.size() + 31) / 32 * 32, '\0');
  }
  std::string Bytes() const { return file_.Bytes(); }

 private:
  GgufBytes file_;
};

std::string Replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  return at == text.npos ? text : text.replace(at, from.size(), to);
}

// llama.cpp's conversion of a tower: other names, q, k and v apart, the two frames of the convolution apart.
Mmproj MmprojOf(const Weights& weights) {
  constexpr std::pair<const char*, const char*> kNames[] = {{"model.visual.blocks.", "v.blk."},
                                                            {".norm1.", ".ln1."},
                                                            {".norm2.", ".ln2."},
                                                            {".attn.proj.", ".attn_out."},
                                                            {".mlp.gate_proj.", ".ffn_gate."},
                                                            {".mlp.up_proj.", ".ffn_up."},
                                                            {".mlp.down_proj.", ".ffn_down."},
                                                            {"model.visual.merger.mlp.", "mm."},
                                                            {"model.visual.merger.ln_q.", "v.post_ln."}};
  Mmproj file;
  for (const auto& [name, weight] : weights) {
    if (!name.starts_with("model.visual.")) continue;
    std::string other = name;
    for (const auto& [from, to] : kNames) other = Replaced(other, from, to);
    if (name.find(".qkv.") != name.npos) {
      Shape third = weight.shape;
      third[0] /= 3;
      const size_t size = weight.bytes.size() / 3;
      for (size_t i = 0; i < 3; ++i)
        file.Add(Replaced(other, ".attn.qkv.", std::string(".attn_") + "qkv"[i] + "."), third,
                 weight.bytes.substr(i * size, size));
    } else if (name.find("patch_embed") != name.npos) {
      const size_t area = 4 * 4 * 2;  // bytes of a channel's patch
      for (size_t frame = 0; frame < 2; ++frame) {
        std::string half;
        for (size_t at = frame * area; at < weight.bytes.size(); at += 2 * area)
          half += weight.bytes.substr(at, area);
        file.Add(frame ? "v.patch_embd.weight.1" : "v.patch_embd.weight", {weight.shape[0], 3, 4, 4}, half);
      }
    } else {
      file.Add(other, weight.shape, weight.bytes);
    }
  }
  return file;
}

std::string LoadMessage(const fs::path& path) {
  return MessageOf(ErrorKind::kBadInput, [&] { LoadVisionEncoder(path); });
}

TEST(VisionWeights, ComeFromMmprojFiles) {
  const TempFolder folder;
  const fs::path file = folder.Write("mmproj.gguf", MmprojOf(ReadWeights("nested")).Bytes());
  const VisionEncoder mmproj = LoadVisionEncoder(file),
                      official = LoadVisionEncoder(kVisionGoldens / "nested");
  EXPECT_EQ(mmproj.config().fullatt_block_indexes, std::vector<int64_t>{1});
  const VisionCase c = FindVisionCase("nested", "three");
  const Tensor got = EncodeVision(mmproj, c), want = EncodeVision(official, c);
  EXPECT_TRUE(SameBits(got.data(), want.data(), want.size()));
}

// A tower of random weights that Q8_0 holds without loss: the same once with its matrices as Q8_0, and once
// all in float32.
std::string WideMmproj(bool quantized) {
  constexpr float kScale = 0.001953125f;  // 2^-9, and as float16:
  constexpr uint64_t kHalfScale = 0x1800;
  std::mt19937 random(7);
  Mmproj file;
  const auto add = [&](const std::string& name, const Shape& shape) {
    std::string blocks, floats;
    for (int64_t i = 0; i < ElementCount(shape); ++i) {
      const int q = static_cast<int>(random() % 255) - 127;
      const float value = kScale * static_cast<float>(q);
      if (i % 32 == 0) blocks += LittleEndian(kHalfScale, 2);
      blocks += static_cast<char>(q);
      floats.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
    const bool blocked = quantized && shape.size() == 2;
    file.Add(name, shape, blocked ? blocks : floats, blocked ? Mmproj::kQ8 : Mmproj::kF32);
  };
  const auto linear = [&](const std::string& name, int64_t out, int64_t in) {
    add(name + ".weight", {out, in});
    add(name + ".bias", {out});
  };
  for (const char* half : {"v.patch_embd.weight", "v.patch_embd.weight.1"}) add(half, {32, 3, 4, 4});
  for (const std::string block : {"v.blk.0.", "v.blk.1."}) {
    for (const char* norm : {"ln1.weight", "ln2.weight"}) add(block + norm, {32});
    for (const char* part : {"attn_q", "attn_k", "attn_v", "attn_out"}) linear(block + part, 32, 32);
    for (const char* part : {"ffn_gate", "ffn_up"}) linear(block + part, 64, 32);
    linear(block + "ffn_down", 32, 64);
  }
  add("v.post_ln.weight", {32});
  linear("mm.0", 128, 128);
  linear("mm.2", 16, 128);
  return file.Bytes();
}

TEST(VisionWeights, MayBeQuantized) {
  const TempFolder folder;
  const fs::path plain = folder.Write("f32.gguf", WideMmproj(false)),
                 q8 = folder.Write("q8.gguf", WideMmproj(true));
  const VisionCase c = FindVisionCase("nested", "two");
  const Tensor want = EncodeVision(LoadVisionEncoder(plain), c), got = EncodeVision(LoadVisionEncoder(q8), c);
  EXPECT_TRUE(SameBits(got.data(), want.data(), want.size()));
  const VisionEncoder fast(WeightStore(q8, Component::kVisionEncoder), Precision::kFast);
  const Tensor close = EncodeVision(fast, c);
  const double error = Nmse(close.data(), want.data(), want.size());
  EXPECT_GT(error, 0);  // in 8 bits
  EXPECT_LT(error, 1e-3);
}

TEST(VisionWeights, OfAnotherMmprojAreRefused) {
  const TempFolder folder;
  Mmproj position = MmprojOf(ReadWeights("nested"));
  position.Add("v.position_embd.weight", {4}, std::string(8, '\0'));
  EXPECT_THAT(LoadMessage(folder.Write("position.gguf", position.Bytes())),
              HasSubstr("are not those of this model"));  // but of a newer one

  GgufBytes gemma;
  gemma.Value("general.architecture", GgufType::kString, GgufString("clip"))
      .Value("clip.projector_type", GgufType::kString, GgufString("gemma3"))
      .Tensor("v.blk.0.ln1.weight", {2}, 0, 0)
      .Data(std::string(32, '\0'));
  EXPECT_THAT(LoadMessage(folder.Write("gemma.gguf", gemma.Bytes())),
              AllOf(HasSubstr("gemma.gguf"), HasSubstr("\"gemma3\""), HasSubstr("qwen2.5vl_merger")));
}

TEST(VisionWeights, ComeFromSingleFilesWithTheirConfigBeside) {
  const TempFolder folder;
  Weights tower;
  for (auto& [name, weight] : ReadWeights("flat")) {
    if (name.starts_with("visual.")) tower[name] = weight;
  }
  ASSERT_FALSE(tower.empty());
  const fs::path file = folder.Write("vision.safetensors", Safetensors(tower));
  // 20 does not split into the 16 heads that every published size has.
  EXPECT_THAT(LoadMessage(file), AllOf(HasSubstr("vision.safetensors"), HasSubstr("width 20"),
                                       HasSubstr("put its config.json beside it")));
  folder.Write("config.json", ReadBytes(kVisionGoldens / "flat/config.json"));
  const VisionCase c = FindVisionCase("flat", "landscape");
  const Tensor got = EncodeVision(LoadVisionEncoder(file), c);
  const Tensor want = ExpectedTensors("flat").Get("landscape/model.visual");
  EXPECT_LE(Nmse(got.data(), want.data(), want.size()), 1e-8);
}

TEST(VisionWeights, OfATextEncoderWithoutATowerAreMissed) {
  const TempFolder folder;
  Weights text;
  for (auto& [name, weight] : ReadWeights("nested")) {
    if (!name.starts_with("model.visual.")) text[name] = weight;
  }
  folder.Write("model.safetensors", Safetensors(text));
  folder.Write("config.json", ReadBytes(kVisionGoldens / "nested/config.json"));
  EXPECT_NO_THROW(LoadTextEncoder(folder.path()));
  const fs::path gguf = fs::path(QWEN_IMAGE_SOURCE_DIR) / "tests/goldens/formats/text_encoder_q8_0.gguf";
  for (const fs::path& path : {folder.path(), folder.path() / "model.safetensors", gguf}) {
    EXPECT_EQ(LoadMessage(path),
              "the text encoder " + path.string() +
                  " has no vision tower (model.visual.*), which editing needs; GGUF text encoders come "
                  "without; name a file with one as the vision encoder");
  }
  const fs::path vae = fs::path(QWEN_IMAGE_SOURCE_DIR) / "tests/goldens/formats/comfy_vae.safetensors";
  EXPECT_THAT(LoadMessage(vae), HasSubstr("the vision_encoder is expected here, but this is a VAE"));
}

TEST(VisionWeights, AreNamedAllAtOnceWhenTheyDoNotFit) {
  const TempFolder folder;
  Weights weights = ReadWeights("nested");
  weights.erase("model.visual.blocks.1.attn.qkv.weight");
  weights.erase("model.visual.patch_embed.proj.weight");
  weights["model.visual.blocks.0.norm2.weight"] = {{12}, std::string(24, '\0')};
  weights["model.visual.merger.mlp.3.weight"] = {{1}, std::string(2, '\0')};
  folder.Write("model.safetensors", Safetensors(weights));
  folder.Write("config.json", ReadBytes(kVisionGoldens / "nested/config.json"));
  const std::string message = LoadMessage(folder.path());
  EXPECT_THAT(message,
              AllOf(HasSubstr("2 missing, 1 of a wrong shape, 0 not readable, 1 not expected"),
                    HasSubstr("model.visual.blocks.1.attn.qkv.weight is missing"),
                    HasSubstr("patch_embed.proj.weight is missing, expected with shape [24, 3, 2, 4, 4]"),
                    HasSubstr("blocks.0.norm2.weight has shape [12], expected [24]"),
                    HasSubstr("merger.mlp.3.weight is not expected")));
  EXPECT_THAT(message, Not(HasSubstr("language_model")));
  EXPECT_NO_THROW(LoadTextEncoder(folder.path()));  // which does not need them
}

TEST(VisionConfig, IsChecked) {
  const TempFolder folder;
  folder.Write("model.safetensors", ReadBytes(kVisionGoldens / "nested/model.safetensors"));
  const auto message = [&](const char* key, const Json& value) {
    Json config = ReadJsonFile(kVisionGoldens / "nested/config.json");
    config["vision_config"][key] = value;
    folder.Write("config.json", config.dump());
    return LoadMessage(folder.path());
  };
  EXPECT_THAT(message("num_heads", 5),
              AllOf(HasSubstr("vision_config"), HasSubstr("24 does not split into 5")));
  EXPECT_THAT(message("num_heads", 4), HasSubstr("multiple of 4"));
  EXPECT_THAT(message("num_heads", 0), HasSubstr("\"num_heads\" is 0"));
  EXPECT_THAT(message("window_size", 7),
              HasSubstr("a window of 7 pixels holds no 2 x 2 patches of 4 pixels"));
  EXPECT_THAT(message("hidden_act", "quick_gelu"), HasSubstr("\"quick_gelu\" is not supported"));
  EXPECT_THAT(message("rope_parameters", {{"rope_type", "yarn"}}), HasSubstr("\"yarn\" is not supported"));
  EXPECT_THAT(message("depth", 3), HasSubstr("model.visual.blocks.2.norm1.weight is missing"));
  EXPECT_THAT(message("hidden_size", 48), HasSubstr("of a wrong shape"));
  EXPECT_THAT(message("patch_size", 1024), HasSubstr("a window"));
  EXPECT_THAT(message("fullatt_block_indexes", {-1}), HasSubstr("fullatt_block_indexes"));
}

TEST(VisionConfig, IsThatOfQwen25VlWhereNothingTells) {
  const TempFolder folder;
  Weights weights;
  constexpr int64_t kHidden = 64, kDepth = 17;  // 16 heads
  for (int64_t i = 0; i < kDepth; ++i)
    weights["visual.blocks." + std::to_string(i) + ".norm1.weight"] = {{kHidden},
                                                                       std::string(2 * kHidden, '\0')};
  weights["visual.blocks.0.mlp.gate_proj.weight"] = {{5, 1}, std::string(10, '\0')};
  weights["visual.merger.mlp.2.weight"] = {{7, 1}, std::string(14, '\0')};
  const fs::path file = folder.Write("vision.safetensors", Safetensors(weights));
  const VisionEncoderConfig c = ReadVisionEncoderConfig(WeightStore(file, Component::kVisionEncoder));
  EXPECT_EQ(c.depth, kDepth);
  EXPECT_EQ(c.hidden_size, kHidden);
  EXPECT_EQ(c.intermediate_size, 5);
  EXPECT_EQ(c.out_hidden_size, 7);
  EXPECT_EQ(c.num_heads, 16);
  EXPECT_EQ(c.patch_values(), 1176);
  EXPECT_EQ(c.window_size, 112);
  EXPECT_EQ(c.fullatt_block_indexes, (std::vector<int64_t>{7, 15}));
}

}  // namespace
}  // namespace qwen_image
