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
  if (integers.rotation > 0) return {Kind::kDecoded};  // its products do not rotate activations
  if (integers.group != 32 && integers.group != 64 && integers.group != 128) return {Kind::kDecoded};
  if (w.cols % integers.group != 0) return {Kind::kDecoded};
  return {Kind::kRegrouped, integers.bits <= 4 ? 4 : 8, integers.group};
}

MlxWeightUse UseOfWeights(std::span<const Linear* const> layers) {
  MlxWeightUse use;
  for (const Linear* layer : layers) {
    const MlxForm form = MlxFormOf(layer->weight);
    MlxWeightUse::Share& share = form.kind == Kind::kAsInFile    ? use.as_in_file
                                 : form.kind == Kind::kRegrouped ? use.regrouped
                                                                 : use.decoded;
    const DType decoded = layer->precision == Precision::kFast ? DType::kBF16 : DType::kF32;
    ++share.matrices;
    ++share.formats[FormatOf(layer->weight)];
    share.file_bytes += layer->weight.bytes();
    share.device_bytes += BytesOnDevice(layer->weight, form, BytesOf(decoded));
  }
  return use;
}

std::string DescribeWeights(const MlxWeightUse& use) {
  const std::string regrouped = Described(use.regrouped, "repacked in MLX's groups, with the same values");
  const std::string decoded = Described(use.decoded, "decoded, since MLX has no such groups");
  return regrouped + (regrouped.empty() || decoded.empty() ? "" : "; ") + decoded;
}

}  // namespace qwen_image
