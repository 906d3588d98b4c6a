#include <algorithm>

#include "core/fail.h"
#include "families/qwen_image/transformer_weights.h"
#include "families/qwen_image/vocabulary.h"
#include "weights/config_reader.h"

namespace qwen_image {

namespace {

// Single files bring no config: all but the axes of RoPE stands in the shapes of vectors.
TransformerConfig TransformerConfigOfTensors(const WeightStore& store) {
  TransformerConfig c;
  const std::string block = "transformer_blocks.0.";
  const int64_t inner_dim = store.Rows("img_in.bias");
  for (const std::string& name : {std::string("img_in.bias"), std::string("txt_norm.weight"),
                                  std::string("proj_out.bias"), block + "attn.norm_q.weight"}) {
    if (store.Rows(name) == 0) return c;  // not whole: binding will list what is missing
  }
  c.num_layers = std::max<int64_t>(store.CountModules("transformer_blocks."), 1);
  c.joint_attention_dim = store.Rows("txt_norm.weight");
  c.in_channels = store.Rows("proj_out.bias");
  c.out_channels = c.in_channels / (c.patch_size * c.patch_size);
  const int64_t head_dim = store.Rows(block + "attn.norm_q.weight");
  if (head_dim != c.attention_head_dim || inner_dim % head_dim != 0) {
    Fail(ErrorKind::kBadInput,
         "{}: no config.json beside the transformer, and its heads are {} wide (all of them: {}). Those of "
         "Qwen-Image are {} wide; for other models config.json must tell how RoPE divides them",
         store.path().string(), head_dim, inner_dim, c.attention_head_dim);
  }
  c.num_attention_heads = inner_dim / head_dim;
  return c;
}

}  // namespace

TransformerConfig ReadTransformerConfig(const WeightStore& store) {
  if (store.config().is_null()) {
    TransformerConfig c = TransformerConfigOfTensors(store);
    c.zero_cond_t = store.HasMarker(kZeroCondMarker);
    return c;
  }
  const ConfigReader config(store.config(), store.config_path());

  TransformerConfig c;
  c.num_layers = config.Int("num_layers", 1, 4096, c.num_layers);
  c.num_attention_heads = config.Int("num_attention_heads", 1, 4096, c.num_attention_heads);
  c.attention_head_dim = config.Int("attention_head_dim", 2, 4096, c.attention_head_dim);
  c.in_channels = config.Int("in_channels", 4, 4096, c.in_channels);
  c.out_channels = config.Int("out_channels", 1, 4096, c.out_channels);
  c.patch_size = config.Int("patch_size", 2, 2, c.patch_size);
  c.joint_attention_dim = config.Int("joint_attention_dim", 1, 1 << 20, c.joint_attention_dim);
  if (config.Has("axes_dims_rope")) {
    const std::vector<int64_t> axes = config.Ints("axes_dims_rope", 2, 4096);
    if (axes.size() != 3) Fail(ErrorKind::kBadInput, "{}: axes_dims_rope needs 3 values", config.where());
    std::copy(axes.begin(), axes.end(), c.axes_dims_rope.begin());
  }
  int64_t rope_width = 0;
  for (int64_t axis : c.axes_dims_rope) {
    if (axis % 2 != 0)
      Fail(ErrorKind::kBadInput, "{}: axes_dims_rope holds the odd width {}", config.where(), axis);
    rope_width += axis;
  }
  if (rope_width != c.attention_head_dim) {
    Fail(ErrorKind::kBadInput, "{}: the axes of axes_dims_rope add up to {}, but attention_head_dim is {}",
         config.where(), rope_width, c.attention_head_dim);
  }
  if (c.in_channels != c.patch_size * c.patch_size * c.out_channels) {
    Fail(ErrorKind::kBadInput, "{}: in_channels {} is not 4 × out_channels {}", config.where(), c.in_channels,
         c.out_channels);
  }
  if (config.Bool("guidance_embeds", false)) {
    Fail(ErrorKind::kBadInput, "{}: guidance-distilled models (guidance_embeds) are not supported",
         config.where());
  }
  if (config.Bool("use_additional_t_cond", false) || config.Bool("use_layer3d_rope", false)) {
    Fail(ErrorKind::kBadInput, "{}: this is a Qwen-Image-Layered transformer, which is not supported yet",
         config.where());
  }
  c.zero_cond_t = config.Bool("zero_cond_t", false) || store.HasMarker(kZeroCondMarker);
  return c;
}

}  // namespace qwen_image
