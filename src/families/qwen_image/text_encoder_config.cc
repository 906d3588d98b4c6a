// What the text encoder's config says, or the tensors and metadata of a single file.
#include <algorithm>

#include "core/fail.h"
#include "families/qwen_image/text_encoder.h"
#include "files/text.h"
#include "weights/config_reader.h"

namespace qwen_image {
namespace {

// As in Qwen2.5-VL, which has 16, 24, 24 of 64.
std::vector<int64_t> UsualMropeSection(int64_t head_dim) {
  const int64_t time = head_dim / 8, height = (head_dim / 2 - time) / 2;
  return {time, height, head_dim / 2 - time - height};
}

// Only plain rotary embeddings. mrope_section counts with pictures alone, so it is checked where they come.
void ReadRope(const ConfigReader& config, TextEncoderConfig& c) {
  c.mrope_section = UsualMropeSection(c.head_dim());
  c.rope_theta = config.Positive("rope_theta", c.rope_theta);
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
  std::vector<int64_t> section = rope.Ints("mrope_section", 0, 1 << 20);
  if (!section.empty()) c.mrope_section = std::move(section);
}

TextEncoderConfig TextEncoderConfigOfTensors(const WeightStore& store) {
  constexpr int64_t kHeadDim = 128;  // of Qwen2.5-VL in every size
  const std::string layer = "model.language_model.layers.0.";
  TextEncoderConfig c;
  c.vocab_size = store.Rows("model.language_model.embed_tokens.weight");
  c.hidden_size = store.Rows("model.language_model.norm.weight");
  c.intermediate_size = store.Rows(layer + "mlp.gate_proj.weight");
  c.num_hidden_layers = store.CountModules("model.language_model.layers.");
  c.num_attention_heads =
      store.MetadataCount("qwen2vl.attention.head_count", std::max<int64_t>(c.hidden_size / kHeadDim, 1));
  const int64_t head_dim = std::max<int64_t>(c.hidden_size / c.num_attention_heads, 1);
  c.num_key_value_heads =
      store.MetadataCount("qwen2vl.attention.head_count_kv",
                          std::max<int64_t>(store.Rows(layer + "self_attn.k_proj.bias") / head_dim, 1));
  const auto positive = [&](const char* key, double fallback) {
    return CheckPositive(store.MetadataNumber(key, fallback), store.path().string(), key);
  };
  c.rms_norm_eps = positive("qwen2vl.attention.layer_norm_rms_epsilon", c.rms_norm_eps);
  c.rope_theta = positive("qwen2vl.rope.freq_base", c.rope_theta);
  if (head_dim * c.num_attention_heads != c.hidden_size || head_dim % 2 != 0 ||
      c.num_attention_heads % c.num_key_value_heads != 0 ||
      c.num_key_value_heads * head_dim != store.Rows(layer + "self_attn.k_proj.bias")) {
    Fail(ErrorKind::kBadInput,
         "{}: no config.json beside the text encoder, and its width {} does not split into heads as that of "
         "Qwen2.5-VL does; put its config.json beside it",
         store.path().string(), c.hidden_size);
  }
  c.mrope_section = UsualMropeSection(head_dim);
  return c;
}

}  // namespace

TextEncoderConfig ReadTextEncoderConfig(const WeightStore& store) {
  if (store.Rows("model.language_model.layers.0.self_attn.q_norm.weight") > 0) {
    Fail(ErrorKind::kBadInput,
         "{}: this is the text encoder of a newer model (Qwen3-VL, of Qwen-Image-2.1); this one needs "
         "Qwen2.5-VL",
         store.path().string());
  }
  if (store.config().is_null()) return TextEncoderConfigOfTensors(store);
  const ConfigReader top(store.config(), store.config_path());
  const ConfigReader config = top.Has("text_config") ? top.Object("text_config") : top;

  TextEncoderConfig c;
  c.vocab_size = config.Int("vocab_size", 1, 1 << 24);
  c.hidden_size = config.Int("hidden_size", 1, 1 << 20);
  c.intermediate_size = config.Int("intermediate_size", 1, 1 << 20);
  c.num_hidden_layers = config.Int("num_hidden_layers", 1, 4096);
  c.num_attention_heads = config.Int("num_attention_heads", 1, 4096);
  c.num_key_value_heads = config.Int("num_key_value_heads", 1, 4096, c.num_attention_heads);
  c.rms_norm_eps = config.Positive("rms_norm_eps", 1e-6);
  if (c.hidden_size % c.num_attention_heads != 0 || c.head_dim() % 2 != 0 ||
      c.num_attention_heads % c.num_key_value_heads != 0) {
    Fail(ErrorKind::kBadInput,
         "{}: hidden_size {} does not split into {} heads of even width with {} key/value heads",
         config.where(), c.hidden_size, c.num_attention_heads, c.num_key_value_heads);
  }
  ReadRope(config, c);
  if (const std::string act = config.String("hidden_act", "silu"); act != "silu") {
    Fail(ErrorKind::kBadInput, "{}: hidden_act {} is not supported (expected silu)", config.where(),
         Quoted(act));
  }
  if (config.Bool("use_sliding_window", false)) {
    Fail(ErrorKind::kBadInput, "{}: sliding-window attention is not supported", config.where());
  }
  return c;
}

}  // namespace qwen_image
