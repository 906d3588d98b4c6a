// Between the operations' arrays and MLX's.
#pragma once

#include "core/fail.h"
#include "mlx/arrays.h"
#include "ops/array.h"

namespace qwen_image::on_mlx {

struct Values : DeviceValues {
  explicit Values(array values) : x(std::move(values)) {}
  const array x;
};

inline const array& Of(const Array& a) {
  if (!a.values)
    Fail(ErrorKind::kInternal, "an array {} is read that nothing was written to", ToString(a.shape));
  return static_cast<const Values&>(*a.values).x;
}

// In the shape that the array has.
inline void Set(Array& a, const array& x) {
  a.values = std::make_shared<Values>(ShapeOf(x) == a.shape ? x : mx::reshape(x, ShapeOf(a.shape)));
}

inline Array Wrapped(const array& x) {
  return {.shape = ShapeOf(x), .view = {}, .memory = nullptr, .values = std::make_shared<Values>(x)};
}

}  // namespace qwen_image::on_mlx
