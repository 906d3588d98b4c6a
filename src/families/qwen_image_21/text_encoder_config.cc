// What the text encoder's config says, or the tensors and metadata of a single file.
#include <algorithm>
#include <numeric>

#include "core/fail.h"
#include "families/qwen_image_21/text_encoder.h"
#include "files/text.h"
#include "weights/config_reader.h"

namespace qwen_image::qwen_image_21 {
namespace {

// The first dimension of a tensor of the first layer.
int64_t LayerRows(const WeightStore& store, const char* name) {
  return store.Rows(std::string("model.language_model.layers.0.") + name);
}

// The default of transformers: of 64 frequencies 24 follow time, 20 the height and 20 the width.
std::array<int64_t, 3> UsualMropeSection(int64_t half) {
  constexpr int64_t kMost = 20;
  const int64_t height = std::min(kMost, (half + 1) / 3), width = std::min(kMost, half / 3);
  return {half - height - width, height, width};
}

void CheckHeads(const TextEncoderConfig& c, const std::string& where) {
  if (c.head_dim >= 2 && c.head_dim % 2 == 0 && c.num_attention_heads >= 1 && c.num_key_value_heads >= 1 &&
      c.num_attention_heads % c.num_key_value_heads == 0)
    return;
  Fail(ErrorKind::kBadInput,
       "{}: {} attention heads of {} values cannot share {} key/value heads; the first number must be a "
       "multiple of the last, and the width even",
       where, c.num_attention_heads, c.head_dim, c.num_key_value_heads);
}

// Only plain rotary embeddings. transformers interleaves the axes whatever mrope_interleaved says.
void ReadRope(const ConfigReader& config, TextEncoderConfig& c) {
  const int64_t half = c.head_dim / 2;
  c.mrope_section = UsualMropeSection(half);
  c.rope_theta = config.Positive("rope_theta", 5e5);  // transformers' own, which no published model has
  const char* key = config.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!config.Has(key)) return;
  const ConfigReader rope = config.Object(key);
  const std::string type = rope.String("rope_type", rope.String("type", "default"));
  if (type != "default" && type != "mrope") {
    Fail(ErrorKind::kBadInput, "{}: rope type {} is not supported (expected default or mrope)",
         config.where(), Quoted(type));
  }
  c.rope_theta = rope.Positive("rope_theta", c.rope_theta);
  if (!rope.Has("mrope_section")) return;
  const std::vector<int64_t> section = rope.Ints("mrope_section", 0, 1 << 20);
  if (section.size() != c.mrope_section.size() ||
      std::accumulate(section.begin(), section.end(), int64_t{0}) != half) {
    Fail(ErrorKind::kBadInput,
         "{}: mrope_section {} does not share the {} frequencies of a head among three axes", config.where(),
         ToString(section), half);
  }
  std::copy(section.begin(), section.end(), c.mrope_section.begin());
}

TextEncoderConfig TextEncoderConfigOfTensors(const WeightStore& store) {
  TextEncoderConfig c;
  c.vocab_size = store.Rows("model.language_model.embed_tokens.weight");
  c.hidden_size = LayerRows(store, "input_layernorm.weight");
  c.intermediate_size = LayerRows(store, "mlp.gate_proj.weight");
  c.num_hidden_layers = store.CountModules("model.language_model.layers.");
  c.head_dim = LayerRows(store, "self_attn.q_norm.weight");
  if (c.head_dim > 0) {
    c.num_attention_heads = LayerRows(store, "self_attn.q_proj.weight") / c.head_dim;
    c.num_key_value_heads = LayerRows(store, "self_attn.k_proj.weight") / c.head_dim;
  }
  const auto positive = [&](const char* key, double fallback) {
    return CheckPositive(store.MetadataNumber(key, fallback), store.path().string(), key);
  };
  c.rms_norm_eps = positive("qwen3vl.attention.layer_norm_rms_epsilon", c.rms_norm_eps);
  c.rope_theta = positive("qwen3vl.rope.freq_base", c.rope_theta);
  if (std::min({c.vocab_size, c.hidden_size, c.intermediate_size, c.num_hidden_layers, c.head_dim}) < 1) {
    Fail(ErrorKind::kBadInput,
         "{}: there is no config.json beside it, and its tensors are not those of a text encoder of "
         "Qwen-Image-2.1 (Qwen3-VL)",
         store.path().string());
  }
  CheckHeads(c, store.path().string());
  c.mrope_section = UsualMropeSection(c.head_dim / 2);
  return c;
}

void RefuseOthers(const ConfigReader& config) {
  if (const std::string act = config.String("hidden_act", "silu"); act != "silu") {
    Fail(ErrorKind::kBadInput, "{}: hidden_act {} is not supported (expected silu)", config.where(),
         Quoted(act));
  }
  if (config.Bool("attention_bias", false))
    Fail(ErrorKind::kBadInput, "{}: attention_bias is not supported", config.where());
}

}  // namespace

TextEncoderConfig ReadTextEncoderConfig(const WeightStore& store) {
  if (store.config().is_null()) return TextEncoderConfigOfTensors(store);
  if (LayerRows(store, "self_attn.k_norm.weight") == 0 && LayerRows(store, "self_attn.k_proj.bias") > 0) {
    Fail(ErrorKind::kBadInput,
         "{}: this is the text encoder of an older model (Qwen2.5-VL); Qwen-Image-2.1 needs Qwen3-VL",
         store.path().string());
  }
  const ConfigReader top(store.config(), store.config_path());
  const ConfigReader config = top.Has("text_config") ? top.Object("text_config") : top;
  RefuseOthers(config);

  constexpr int64_t kMaxWidth = 1 << 20, kMaxCount = 4096;
  TextEncoderConfig c;
  c.vocab_size = config.Int("vocab_size", 1, 1 << 24);
  c.hidden_size = config.Int("hidden_size", 1, kMaxWidth);
  c.intermediate_size = config.Int("intermediate_size", 1, kMaxWidth);
  c.num_hidden_layers = config.Int("num_hidden_layers", 1, kMaxCount);
  c.num_attention_heads = config.Int("num_attention_heads", 1, kMaxCount);
  c.num_key_value_heads = config.Int("num_key_value_heads", 1, kMaxCount, c.num_attention_heads);
  c.head_dim = config.Int("head_dim", 1, kMaxWidth, LayerRows(store, "self_attn.q_norm.weight"));
  c.rms_norm_eps = config.Positive("rms_norm_eps", c.rms_norm_eps);
  CheckHeads(c, config.where());
  ReadRope(config, c);
  return c;
}

}  // namespace qwen_image::qwen_image_21
