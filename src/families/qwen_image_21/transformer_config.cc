#include <algorithm>

#include "core/fail.h"
#include "families/qwen_image_21/transformer_weights.h"
#include "weights/config_reader.h"

namespace qwen_image::qwen_image_21 {
namespace {

// Single files bring no config: all but the axes of RoPE stands in the shapes of the tensors.
TransformerConfig TransformerConfigOfTensors(const WeightStore& store) {
  TransformerConfig c;
  const std::string block = "transformer_blocks.0.";
  const int64_t inner_dim = store.Rows("img_in.weight"), head_dim = store.Rows(block + "attn.norm_q.weight");
  const int64_t context = store.Rows("txt_in.text_norm.weight"), channels = store.Rows("proj_out.weight");
  const int64_t mlp = store.Rows(block + "img_mlp.proj.weight");
  if (std::min({inner_dim, head_dim, context, channels, mlp}) == 0)
    return c;  // not whole: binding will list what is missing
  if (head_dim != c.attention_head_dim || inner_dim % head_dim != 0 || mlp % inner_dim != 0) {
    Fail(ErrorKind::kBadInput,
         "{}: no config.json beside the transformer, and its heads are {} wide (all of them: {}, the MLP: "
         "{}). "
         "Those of Qwen-Image-2.1 are {} wide; for other models config.json must tell how RoPE divides them",
         store.path().string(), head_dim, inner_dim, mlp, c.attention_head_dim);
  }
  c.num_layers = std::max<int64_t>(store.CountModules("transformer_blocks."), 1);
  c.num_attention_heads = inner_dim / head_dim;
  c.context_in_dim = context;
  c.in_channels = c.out_channels = channels;
  c.mlp_ratio = mlp / inner_dim;
  return c;
}

void CheckRope(const TransformerConfig& c, const ConfigReader& config) {
  int64_t width = 0;
  for (const int64_t axis : c.axes_dims_rope) {
    if (axis % 2 != 0)
      Fail(ErrorKind::kBadInput, "{}: axes_dims_rope holds the odd width {}", config.where(), axis);
    width += axis;
  }
  if (width != c.attention_head_dim)
    Fail(ErrorKind::kBadInput, "{}: the axes of axes_dims_rope add up to {}, but attention_head_dim is {}",
         config.where(), width, c.attention_head_dim);
}

}  // namespace

TransformerConfig ReadTransformerConfig(const WeightStore& store) {
  if (store.config().is_null()) return TransformerConfigOfTensors(store);
  const ConfigReader config(store.config(), store.config_path());
  TransformerConfig c;
  c.num_layers = config.Int("num_layers", 1, 4096, c.num_layers);
  c.num_attention_heads = config.Int("num_attention_heads", 1, 4096, c.num_attention_heads);
  c.attention_head_dim = config.Int("attention_head_dim", 2, 4096, c.attention_head_dim);
  c.in_channels = config.Int("in_channels", 1, 4096, c.in_channels);
  c.out_channels = config.Has("out_channels") ? config.Int("out_channels", 1, 4096, c.out_channels)
                                              : c.in_channels;  // as diffusers does
  config.Int("patch_size", 1, 1, 1);
  c.context_in_dim = config.Int("context_in_dim", 1, 1 << 20, c.context_in_dim);
  c.mlp_ratio = config.Int("mlp_ratio", 1, 64, c.mlp_ratio);
  c.eps = config.Number("eps", c.eps);
  if (config.Has("axes_dims_rope")) {
    const std::vector<int64_t> axes = config.Ints("axes_dims_rope", 2, 4096);
    if (axes.size() != 3) Fail(ErrorKind::kBadInput, "{}: axes_dims_rope needs 3 values", config.where());
    std::copy(axes.begin(), axes.end(), c.axes_dims_rope.begin());
  }
  CheckRope(c, config);
  if (!(c.eps > 0 && c.eps < 1))
    Fail(ErrorKind::kBadInput, "{}: eps is {}, expected a small positive number", config.where(), c.eps);
  if (c.in_channels != c.out_channels)
    Fail(ErrorKind::kBadInput, "{}: in_channels {} is not out_channels {}", config.where(), c.in_channels,
         c.out_channels);
  if (!config.Bool("causal_condition", true))
    Fail(ErrorKind::kBadInput,
         "{}: causal_condition is false: text and references that change from step to step are not supported",
         config.where());
  return c;
}

Json TransformerConfigJson(const TransformerConfig& config) {
  return {{"_class_name", "QwenImage21Transformer2DModel"},
          {"attention_head_dim", config.attention_head_dim},
          {"axes_dims_rope", config.axes_dims_rope},
          {"causal_condition", true},
          {"context_in_dim", config.context_in_dim},
          {"eps", config.eps},
          {"in_channels", config.in_channels},
          {"mlp_ratio", config.mlp_ratio},
          {"num_attention_heads", config.num_attention_heads},
          {"num_layers", config.num_layers},
          {"out_channels", config.out_channels},
          {"patch_size", 1}};
}

}  // namespace qwen_image::qwen_image_21
