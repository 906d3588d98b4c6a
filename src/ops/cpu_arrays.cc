// Arrays in this program's memory, and what is done to their values one by one.
#include <algorithm>
#include <cmath>

#include "core/dtype.h"
#include "core/fail.h"
#include "ops/cpu.h"

namespace qwen_image {
namespace {

class Cpu : public Backend {
 public:
  explicit Cpu(int64_t band_floats) : band_floats_(band_floats) {}
  std::unique_ptr<Ops> Start(const Compute& compute) override {
    return std::make_unique<CpuOps>(compute, band_floats_);
  }

 private:
  const int64_t band_floats_;
};

void Copy(ConstView from, View to) {
  for (int64_t i = 0; i < from.rows; ++i) std::copy_n(from.row(i), from.cols, to.row(i));
}

// What Keep made of an array with bfloat16.
struct RoundedValues : DeviceValues {
  std::vector<uint16_t> bits;  // [rows, cols]
};

Shape WithLast(Shape shape, int64_t cols) {
  shape.back() = cols;
  return shape;
}

}  // namespace

std::shared_ptr<Backend> CpuBackend(int64_t band_floats) { return std::make_shared<Cpu>(band_floats); }

Array CpuOps::New(const Shape& shape) {
  auto memory = std::make_shared<Tensor>(shape);
  const View view = ViewOf(*memory);
  return {.shape = shape, .view = view, .memory = std::move(memory), .values = nullptr};
}

Joint CpuOps::PartsOf(const Array& memory, std::span<const int64_t> tokens) {
  Joint parts;
  int64_t first = 0;
  for (const int64_t count : tokens) {
    parts.push_back(Rows(memory, first, count));
    first += count;
  }
  return parts;
}

Array CpuOps::FromHost(const Tensor& x) {
  const Profile::Scope timed = Timed("copies");
  Array array = New(x.shape());
  std::copy_n(x.data(), x.size(), array.view.data);
  return array;
}

Tensor CpuOps::ToHost(const Array& x) {
  const Profile::Scope timed = Timed("copies");
  Tensor host(x.shape);
  Copy(x.view, ViewOf(host));
  return host;
}

Array CpuOps::Rows(const Array& x, int64_t first, int64_t count) {
  Array rows = x;
  rows.shape[rows.shape.size() - 2] = count;
  rows.view = x.view.Rows(first, count);
  return rows;
}

Array CpuOps::Cols(const Array& x, int64_t first, int64_t count) {
  Array cols = x;
  cols.shape = WithLast(x.shape, count);
  cols.view = x.view.Cols(first, count);
  return cols;
}

Array CpuOps::JoinRows(std::span<const Array> parts) {
  const Profile::Scope timed = Timed("copies");
  int64_t rows = 0;
  for (const Array& part : parts) rows += part.view.rows;
  Array whole = New({1, rows, parts.front().cols()});
  int64_t first = 0;
  for (const Array& part : parts) {
    Copy(part.view, whole.view.Rows(first, part.view.rows));
    first += part.view.rows;
  }
  return whole;
}

Array CpuOps::JoinCols(std::span<const Array> parts) {
  Array whole = parts.front();
  for (const Array& part : parts.subspan(1)) {
    if (part.view.data != whole.view.data + whole.view.cols || part.view.stride != whole.view.stride)
      Fail(ErrorKind::kInternal, "the columns of an array do not lie side by side");
    whole.view.cols += part.view.cols;
  }
  whole.shape = WithLast(whole.shape, whole.view.cols);
  return whole;
}

Array CpuOps::Reshaped(const Array& x, const Shape& shape) {
  if (!x.view.dense() || ElementCount(shape) != x.view.size())
    Fail(ErrorKind::kInternal, "an array {} cannot be seen as {}", ToString(x.shape), ToString(shape));
  Array reshaped = x;
  reshaped.shape = shape;
  reshaped.view = {x.view.data, x.view.size() / shape.back(), shape.back()};
  return reshaped;
}

Array CpuOps::Reordered(const Array& x, std::span<const int64_t> order, int64_t unit) {
  const Profile::Scope timed = Timed("copies");
  Array y = New(x.shape);
  for (size_t i = 0; i < order.size(); ++i)
    Copy(x.view.Rows(order[i] * unit, unit), y.view.Rows(static_cast<int64_t>(i) * unit, unit));
  return y;
}

Array CpuOps::Keep(const Array& x, Keeping keeping) {
  const Profile::Scope timed = Timed("copies");
  if (keeping == Keeping::kFloat32) {
    Array kept = New(x.shape);
    compute_.pool.ParallelFor(x.view.rows, [&](int64_t i) { Copy(x.view.Rows(i, 1), kept.view.Rows(i, 1)); });
    return kept;
  }
  auto rounded = std::make_shared<RoundedValues>();
  rounded->bits.resize(static_cast<size_t>(x.view.size()));
  compute_.pool.ParallelFor(x.view.rows, [&](int64_t i) {
    const float* const from = x.view.row(i);
    std::transform(from, from + x.view.cols, rounded->bits.data() + i * x.view.cols, Bf16FromFloat);
  });
  return {.shape = x.shape, .view = {}, .memory = nullptr, .values = std::move(rounded)};
}

void CpuOps::Restore(const Array& kept, Array& x) {
  const Profile::Scope timed = Timed("copies");
  const auto* rounded = static_cast<const RoundedValues*>(kept.values.get());
  compute_.pool.ParallelFor(x.view.rows, [&](int64_t i) {
    if (!rounded) {
      Copy(kept.view.Rows(i, 1), x.view.Rows(i, 1));
    } else {
      const uint16_t* const from = rounded->bits.data() + i * x.view.cols;
      std::transform(from, from + x.view.cols, x.view.row(i), FloatFromBf16);
    }
  });
}

void CpuOps::Show(const Tap& tap, std::string_view name, Array& x) { ShowAs(tap, name, x.shape, x); }

// In another shape than the array's own, such as one with an axis of heads.
void CpuOps::ShowAs(const Tap& tap, std::string_view name, const Shape& shape, Array& x) {
  if (!tap.Wants(name)) return;
  if (x.view.dense()) {
    tap(name, x.view.data, shape);
    return;
  }
  Tensor seen(shape);
  const View rows = {seen.data(), x.view.rows, x.view.cols};
  Copy(x.view, rows);
  tap(name, seen);
  Copy(rows, x.view);
}

void CpuOps::RmsNorm(const std::vector<float>& weight, float eps, Array& x) {
  const Profile::Scope timed = Timed("norm");
  qwen_image::RmsNorm(x.view, weight.data(), eps, x.view, compute_.pool);
}

// One number at a time: for the few of a modulation.
void CpuOps::Tanh(Array& x) {
  const Profile::Scope timed = Timed("activation");
  for (int64_t i = 0; i < x.view.rows; ++i) {
    float* const row = x.view.row(i);
    std::transform(row, row + x.view.cols, row, [](float value) { return std::tanh(value); });
  }
}

void CpuOps::LayerNorm(const std::vector<float>& weight, const std::vector<float>& bias, float eps,
                       Array& x) {
  const Profile::Scope timed = Timed("norm");
  qwen_image::LayerNorm(x.view, weight.data(), bias.data(), eps, x.view, compute_.pool);
}

void CpuOps::Silu(Array& x) {
  const Profile::Scope timed = Timed("activation");
  qwen_image::Silu(x.view, x.view, compute_.pool);
}

void CpuOps::SiluMul(const Array& up, Array& gate) {
  const Profile::Scope timed = Timed("activation");
  qwen_image::SiluMul(gate.view, up.view, gate.view, compute_.pool);
}

void CpuOps::Add(const Array& x, Array& sum) {
  const Profile::Scope timed = Timed("addition");
  qwen_image::Add(sum.view, x.view, sum.view, compute_.pool);
}

}  // namespace qwen_image
