#include "convert/encoding.h"

#include "core/fail.h"
#include "files/text.h"

namespace qwen_image::convert {

std::string Encoding::Name() const {
  return quantized() ? fmt::format("{}-bit g{}", mlx.bits, mlx.group_size) : std::string(NameOf(dtype));
}

std::vector<PlannedTensor> StoredTensors(const std::string& name, const Shape& shape,
                                         const Encoding& encoding) {
  const DType dtype = encoding.dtype;
  if (!encoding.quantized()) return {{name, dtype, shape}};
  constexpr std::string_view kWeight = "weight";
  constexpr int kWordBits = 32;
  const std::string stem = name.substr(0, name.size() - kWeight.size());  // with its dot
  Shape packed = shape, groups = shape;
  packed.back() = shape.back() * encoding.mlx.bits / kWordBits;
  groups.back() = shape.back() / encoding.mlx.group_size;
  return {{name, DType::kU32, packed}, {stem + "scales", dtype, groups}, {stem + "biases", dtype, groups}};
}

Target ParseTarget(std::string_view text) {
  if (text == "keep") return {.keep = true};
  if (text == "f32") return {.dtype = DType::kF32};
  if (text == "f16") return {.dtype = DType::kF16};
  if (text == "bf16") return {.dtype = DType::kBF16};
  for (const int bits : kMlxBits) {
    if (text == fmt::format("q{}", bits)) return {.bits = bits};
  }
  Fail(ErrorKind::kUsage, "there is no type {}; known are f32, f16, bf16, q8, q6, q5, q4, q3, q2 and keep",
       Quoted(text));
}

}  // namespace qwen_image::convert
