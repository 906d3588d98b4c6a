#include "mlx/arrays.h"

#include <algorithm>

namespace qwen_image::on_mlx {

std::recursive_mutex& OneAtATime() {
  static std::recursive_mutex mutex;
  return mutex;
}

mx::Shape ShapeOf(const Shape& shape) {
  mx::Shape result;
  for (const int64_t size : shape) result.push_back(mx::safe_cast(size, "shape"));
  return result;
}

Shape ShapeOf(const array& x) { return Shape(x.shape().begin(), x.shape().end()); }

array ToDevice(const float* data, const Shape& shape) { return array(data, ShapeOf(shape), mx::float32); }

Tensor ToHost(const array& x) {
  array dense = mx::contiguous(mx::astype(x, mx::float32));
  dense.eval();
  Tensor host(ShapeOf(x));
  std::copy_n(dense.data<float>(), host.size(), host.data());
  return host;
}

void TapArray(const Tap& tap, std::string_view name, array& x) {
  if (!tap.Wants(name)) return;
  Tensor seen = ToHost(x);
  tap(name, seen);
  x = mx::astype(ToDevice(seen.data(), ShapeOf(x)), x.dtype());
}

}  // namespace qwen_image::on_mlx
