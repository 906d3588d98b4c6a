#include "families/wan_vae_names.h"

#include "families/renaming.h"

namespace qwen_image {

std::string WanVaeName(std::string name) {
  constexpr Replacement kPrefixes[] = {
      {"conv1.", "quant_conv."},
      {"conv2.", "post_quant_conv."},
      {"encoder.conv1.", "encoder.conv_in."},
      {"decoder.conv1.", "decoder.conv_in."},
      {"encoder.head.0.", "encoder.norm_out."},
      {"encoder.head.2.", "encoder.conv_out."},
      {"decoder.head.0.", "decoder.norm_out."},
      {"decoder.head.2.", "decoder.conv_out."},
      {"encoder.middle.0.", "encoder.mid_block.resnets.0."},
      {"encoder.middle.1.", "encoder.mid_block.attentions.0."},
      {"encoder.middle.2.", "encoder.mid_block.resnets.1."},
      {"decoder.middle.0.", "decoder.mid_block.resnets.0."},
      {"decoder.middle.1.", "decoder.mid_block.attentions.0."},
      {"decoder.middle.2.", "decoder.mid_block.resnets.1."},
  };
  constexpr Replacement kParts[] = {
      {".residual.0.", ".norm1."},
      {".residual.2.", ".conv1."},
      {".residual.3.", ".norm2."},
      {".residual.6.", ".conv2."},
      {".shortcut.", ".conv_shortcut."},
      {".norm1.weight", ".norm1.gamma"},  // mflux
      {".norm2.weight", ".norm2.gamma"},
      {".norm.weight", ".norm.gamma"},
      {".norm_out.weight", ".norm_out.gamma"},
  };
  return ReplaceParts(ReplacePrefix(std::move(name), kPrefixes), kParts);
}

}  // namespace qwen_image
