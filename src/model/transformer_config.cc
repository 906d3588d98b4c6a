#include <algorithm>

#include "core/fail.h"
#include "model/transformer.h"
#include "weights/config_reader.h"

namespace qwen_image {

TransformerConfig ReadTransformerConfig(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  const Json json = ReadJsonFile(path);
  const ConfigReader config(json, path.string());

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
  return c;
}

}  // namespace qwen_image
