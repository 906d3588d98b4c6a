// What the text encoder's config says, or the tensors and metadata of a single file.
#include <algorithm>
#include <charconv>

#include "core/fail.h"
#include "model/text_encoder.h"
#include "weights/config_reader.h"

namespace qwen_image {
namespace {

// Only plain rotary embeddings: with text alone the three axes of M-RoPE carry the same position, so that
// mrope_section, which splits the frequencies between the axes, changes nothing.
double ReadRopeTheta(const ConfigReader& config) {
  const char* key = config.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!config.Has(key)) return config.Number("rope_theta", 1e6);
  const ConfigReader rope = config.Object(key);
  const std::string type = rope.String("rope_type", rope.String("type", "default"));
  if (type != "default" && type != "mrope") {
    Fail(ErrorKind::kBadInput, "{}: rope type \"{}\" is not supported (expected default or mrope)",
         config.where(), type);
  }
  return rope.Number("rope_theta", config.Number("rope_theta", 1e6));
}

// A number of GGUF's metadata, as llama.cpp writes it for this architecture.
double MetadataNumber(const WeightStore& store, const char* key, double fallback) {
  const std::string text = store.Metadata(std::string("qwen2vl.") + key);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty() ? value : fallback;
}

int64_t MetadataCount(const WeightStore& store, const char* key, int64_t fallback) {
  const double value = MetadataNumber(store, key, static_cast<double>(fallback));
  return value >= 1 && value <= 1e6 ? static_cast<int64_t>(value) : fallback;
}

TextEncoderConfig ConfigOfTensors(const WeightStore& store) {
  constexpr int64_t kHeadDim = 128;  // of Qwen2.5-VL in every size
  const std::string layer = "model.language_model.layers.0.";
  TextEncoderConfig c;
  c.vocab_size = store.Rows("model.language_model.embed_tokens.weight");
  c.hidden_size = store.Rows("model.language_model.norm.weight");
  c.intermediate_size = store.Rows(layer + "mlp.gate_proj.weight");
  c.num_hidden_layers = store.CountModules("model.language_model.layers.");
  c.num_attention_heads =
      MetadataCount(store, "attention.head_count", std::max<int64_t>(c.hidden_size / kHeadDim, 1));
  const int64_t head_dim = std::max<int64_t>(c.hidden_size / c.num_attention_heads, 1);
  c.num_key_value_heads =
      MetadataCount(store, "attention.head_count_kv",
                    std::max<int64_t>(store.Rows(layer + "self_attn.k_proj.bias") / head_dim, 1));
  c.rms_norm_eps = MetadataNumber(store, "attention.layer_norm_rms_epsilon", c.rms_norm_eps);
  c.rope_theta = MetadataNumber(store, "rope.freq_base", c.rope_theta);
  if (head_dim * c.num_attention_heads != c.hidden_size || head_dim % 2 != 0 ||
      c.num_attention_heads % c.num_key_value_heads != 0 ||
      c.num_key_value_heads * head_dim != store.Rows(layer + "self_attn.k_proj.bias")) {
    Fail(ErrorKind::kBadInput,
         "{}: no config.json beside the text encoder, and its width {} does not split into heads as that of "
         "Qwen2.5-VL does; put its config.json beside it",
         store.path().string(), c.hidden_size);
  }
  return c;
}

}  // namespace

TextEncoderConfig ReadTextEncoderConfig(const WeightStore& store) {
  if (store.config().is_null()) return ConfigOfTensors(store);
  const ConfigReader top(store.config(), store.config_path());
  const ConfigReader config = top.Has("text_config") ? top.Object("text_config") : top;

  TextEncoderConfig c;
  c.vocab_size = config.Int("vocab_size", 1, 1 << 24);
  c.hidden_size = config.Int("hidden_size", 1, 1 << 20);
  c.intermediate_size = config.Int("intermediate_size", 1, 1 << 20);
  c.num_hidden_layers = config.Int("num_hidden_layers", 1, 4096);
  c.num_attention_heads = config.Int("num_attention_heads", 1, 4096);
  c.num_key_value_heads = config.Int("num_key_value_heads", 1, 4096, c.num_attention_heads);
  c.rms_norm_eps = config.Number("rms_norm_eps", 1e-6);
  c.rope_theta = ReadRopeTheta(config);
  if (c.hidden_size % c.num_attention_heads != 0 || c.head_dim() % 2 != 0 ||
      c.num_attention_heads % c.num_key_value_heads != 0) {
    Fail(ErrorKind::kBadInput,
         "{}: hidden_size {} does not split into {} heads of even width with {} key/value heads",
         config.where(), c.hidden_size, c.num_attention_heads, c.num_key_value_heads);
  }
  if (const std::string act = config.String("hidden_act", "silu"); act != "silu") {
    Fail(ErrorKind::kBadInput, "{}: hidden_act \"{}\" is not supported (expected silu)", config.where(), act);
  }
  if (config.Bool("use_sliding_window", false)) {
    Fail(ErrorKind::kBadInput, "{}: sliding-window attention is not supported", config.where());
  }
  return c;
}

}  // namespace qwen_image
