// Between the host's tensors and MLX's arrays: copies, checkpoints, errors. Arrays are lazy: nothing is
// computed before it is evaluated. Only a block's end, a checkpoint and a result evaluate arrays here.
#pragma once

#include <mlx/mlx.h>

#include <mutex>
#include <string_view>

#include "core/checkpoint.h"
#include "core/fail.h"
#include "core/tensor.h"

namespace qwen_image::on_mlx {

namespace mx = mlx::core;
using mx::array;

mx::Shape ShapeOf(const Shape& shape);
Shape ShapeOf(const array& x);

// Copies.
array ToDevice(const float* data, const Shape& shape);
inline array ToDevice(const Tensor& x) { return ToDevice(x.data(), x.shape()); }
inline array ToDevice(const std::vector<float>& x) {
  return ToDevice(x.data(), {static_cast<int64_t>(x.size())});
}
// Evaluates. A transposed or broadcast view is written out first, so that its values come in the order of its
// shape whatever its strides are.
Tensor ToHost(const array& x);

// Shows `x` to the tap and takes back what the listener may have changed, in the type of `x`.
void TapArray(const Tap& tap, std::string_view name, array& x);

// MLX has one default device for the whole process, which pipelines on different devices must not change
// under each other. Recursive: a callback may draw with another pipeline.
std::recursive_mutex& OneAtATime();

// Runs `work` on a device. What MLX throws becomes an Error.
template <typename Work>
auto RunOn(const mx::Device& device, Work&& work) {
  const std::lock_guard lock(OneAtATime());
  try {
    const mx::StreamContext context(device);
    return work();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    const std::string_view what = error.what();
    const bool memory = what.find("alloc") != what.npos || what.find("memory") != what.npos;
    Fail(memory ? ErrorKind::kOutOfMemory : ErrorKind::kInternal, "MLX: {}", what);
  }
}

}  // namespace qwen_image::on_mlx
