#include "peak.h"

#include <chrono>
#include <numeric>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "peak.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must follow foreach_target.h.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace qwen_image {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Twelve independent sums hide the latency of the multiply-add; returns the number of operations.
double MultiplyAddInRegisters(int64_t rounds, float* result) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kSums = 12;
  const V a = hn::Set(d, 0.999f);
  const V b = hn::Set(d, 0.001f);
  V sum[kSums];
  HWY_UNROLL(12) for (int i = 0; i < kSums; ++i) sum[i] = hn::Set(d, static_cast<float>(i));
  for (int64_t n = 0; n < rounds; ++n) {
    HWY_UNROLL(12) for (int i = 0; i < kSums; ++i) sum[i] = hn::MulAdd(sum[i], a, b);
  }
  V all = hn::Zero(d);
  HWY_UNROLL(12) for (int i = 0; i < kSums; ++i) all = hn::Add(all, sum[i]);
  *result = hn::GetLane(all);  // so that the compiler cannot leave the loop out
  return 2.0 * kSums * static_cast<double>(hn::Lanes(d)) * static_cast<double>(rounds);
}

}  // namespace HWY_NAMESPACE
}  // namespace qwen_image
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qwen_image {

HWY_EXPORT(MultiplyAddInRegisters);

double OperationsASecond(ThreadPool& pool, const std::function<double()>& work) {
  constexpr int64_t kTasks = 20;  // a thread; short ones, so that all threads end together
  const int64_t tasks = kTasks * pool.size();
  std::vector<double> operations(static_cast<size_t>(tasks));
  const auto start = std::chrono::steady_clock::now();
  pool.ParallelFor(tasks, [&](int64_t i) { operations[static_cast<size_t>(i)] = work(); });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return std::accumulate(operations.begin(), operations.end(), 0.0) / seconds.count();
}

double MeasurePeakFlops(ThreadPool& pool) {
  constexpr int64_t kRounds = 200 * 1000;
  return OperationsASecond(pool, [] {
    float result = 0;
    return HWY_DYNAMIC_DISPATCH(MultiplyAddInRegisters)(kRounds, &result);
  });
}

double MultiplyAdds() {
  constexpr int64_t kRounds = 1000 * 1000;
  float result = 0;
  return HWY_DYNAMIC_DISPATCH(MultiplyAddInRegisters)(kRounds, &result);
}

}  // namespace qwen_image
#endif
