#include "mlx/weight_forms.h"

#include <fmt/format.h>

#include "core/dtype.h"
#include "kernels/mlx_groups.h"

namespace qwen_image {
namespace {

using Kind = MlxForm::Kind;

int64_t BytesOf(DType dtype) { return static_cast<int64_t>(SizeOf(dtype)); }

std::string FormatOf(const WeightMatrix& w) {
  return w.coding ? w.coding->Name() : std::string(NameOf(w.dtype));
}

int64_t GroupBytes(const WeightMatrix& w, int bits, int group_size, int64_t bytes_per_group) {
  return w.rows * w.cols / 8 * bits + w.rows * (w.cols / group_size) * bytes_per_group;
}

int64_t BytesOnDevice(const WeightMatrix& w, const MlxForm& form, int64_t decoded_size) {
  switch (form.kind) {
    case Kind::kAsInFile:
      break;
    case Kind::kRegrouped:
      return GroupBytes(w, form.bits, form.group_size, 2 * BytesOf(DType::kF32));
    case Kind::kDecoded:
      return w.rows * w.cols * decoded_size;
  }
  return w.bytes();
}

class Counter {
 public:
  explicit Counter(Precision precision) : activations_(precision == Precision::kFast ? 2 : 4) {}

  void Add(const Linear& layer) { Add(layer, activations_); }
  // Layers that compute in float32 at every precision.
  void AddExact(const Linear& layer) { Add(layer, 4); }

  const MlxWeightUse& use() const { return use_; }

 private:
  void Add(const Linear& layer, int64_t decoded_size) {
    const MlxForm form = MlxFormOf(layer.weight);
    MlxWeightUse::Share& share = form.kind == Kind::kAsInFile    ? use_.as_in_file
                                 : form.kind == Kind::kRegrouped ? use_.regrouped
                                                                 : use_.decoded;
    ++share.matrices;
    ++share.formats[FormatOf(layer.weight)];
    share.file_bytes += layer.weight.bytes();
    share.device_bytes += BytesOnDevice(layer.weight, form, decoded_size);
  }

  int64_t activations_;  // bytes of a number
  MlxWeightUse use_;
};

void AddStream(const TransformerWeights::Stream& w, Counter& counter) {
  for (const Linear* layer : {&w.mod, &w.to_q, &w.to_k, &w.to_v, &w.to_out, &w.mlp.proj, &w.mlp.out})
    counter.Add(*layer);
}

void Count(const TextEncoderWeights& weights, Counter& counter) {
  for (const TextEncoderWeights::Layer& w : weights.layers)
    for (const Linear* layer : {&w.self_attn.q_proj, &w.self_attn.k_proj, &w.self_attn.v_proj,
                                &w.self_attn.o_proj, &w.mlp.gate_proj, &w.mlp.up_proj, &w.mlp.down_proj})
      counter.Add(*layer);
}

void Count(const VisionEncoderWeights& weights, Counter& counter) {
  for (const VisionEncoderWeights::Block& w : weights.blocks) {
    for (const Linear& layer : w.attn.qkv) counter.Add(layer);
    for (const Linear* layer : {&w.attn.proj, &w.mlp.gate_proj, &w.mlp.up_proj, &w.mlp.down_proj})
      counter.Add(*layer);
  }
  counter.Add(weights.merger.mlp_0);
  counter.Add(weights.merger.mlp_2);
}

void Count(const TransformerWeights& w, Counter& counter) {
  for (const TransformerWeights::Block& block : w.transformer_blocks) {
    AddStream(block.img, counter);
    AddStream(block.txt, counter);
  }
  for (const Linear* layer :
       {&w.img_in, &w.txt_in, &w.time_linear_1, &w.time_linear_2, &w.norm_out_linear, &w.proj_out})
    counter.AddExact(*layer);
}

std::string Described(const MlxWeightUse::Share& share, const char* what) {
  if (share.matrices == 0) return "";
  std::string formats;
  for (const auto& [format, count] : share.formats)
    formats.append(formats.empty() ? "" : ", ").append(format);
  const auto megabytes = [](int64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  return fmt::format("{} matrices ({}) are {}: {:.1f} MB in the file, {:.1f} MB on the device",
                     share.matrices, formats, what, megabytes(share.file_bytes),
                     megabytes(share.device_bytes));
}

}  // namespace

MlxForm MlxFormOf(const WeightMatrix& w) {
  if (!w.coding) return {};
  if (const MlxGroups* groups = w.coding->mlx()) return {Kind::kAsInFile, groups->bits, groups->group_size};
  // MLX has groups of 32, 64 and 128 values. Widths between 4 and 8 bits become 8, whose bytes need no
  // packing across words.
  const IntegerForm& integers = w.coding->integers();
  if (integers.group != 32 && integers.group != 64 && integers.group != 128) return {Kind::kDecoded};
  if (w.cols % integers.group != 0) return {Kind::kDecoded};
  return {Kind::kRegrouped, integers.bits <= 4 ? 4 : 8, integers.group};
}

MlxWeightUse UseOfWeights(const TextEncoder* text_encoder, const VisionEncoder* vision_encoder,
                          const Transformer* transformer, Precision precision) {
  Counter counter(precision);
  if (text_encoder) Count(text_encoder->weights(), counter);
  if (vision_encoder) Count(vision_encoder->weights(), counter);
  if (transformer) Count(transformer->weights(), counter);
  return counter.use();
}

std::string DescribeWeights(const MlxWeightUse& use) {
  const std::string regrouped = Described(use.regrouped, "packed anew in MLX's groups, with the same values");
  const std::string decoded = Described(use.decoded, "decoded, since MLX has no such groups");
  return regrouped + (regrouped.empty() || decoded.empty() ? "" : "; ") + decoded;
}

}  // namespace qwen_image
