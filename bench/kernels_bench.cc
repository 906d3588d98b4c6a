// How fast the kernels are, as GFLOP/s and as a share of what this machine can do at best: the peak is
// measured in the same run, by a loop that multiplies and adds in registers only; that of 8-bit integers is
// printed beside it.
//
//   ./run bench                                       everything, one line a case, the best of three
//   kernels_bench --benchmark_filter=Attention        one family
//   kernels_bench --instruction-set=avx2              as on a machine that has nothing better
//
// "% peak" goes by the clock on the wall. "cpu %" is the same by processor time, of all threads together and
// against a peak that is measured beside every run: it stays true when other programs use the machine, and on
// several threads the two differ by what is lost to waiting.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "core/threads.h"
#include "kernels/int8/attention.h"
#include "kernels/int8/matmul.h"
#include "kernels/interface.h"
#include "kernels/mlx_groups.h"
#include "peak.h"
#include "qwen_image/error.h"
#include "qwen_image/instruction_set.h"

namespace qwen_image {
namespace {

ThreadPool& Pool(int threads) {
  static ThreadPool one(1);
  static ThreadPool all(DefaultThreadCount());
  return threads == 1 ? one : all;
}

// The best of a few tries, since other programs may be running.
double BestOf(const std::function<double()>& measure) {
  double best = 0;
  for (int i = 0; i < 5; ++i) best = std::max(best, measure());
  return best;
}

// FLOP/s of `threads` threads at once.
double PeakOf(int threads) {
  static std::vector<double> known(static_cast<size_t>(DefaultThreadCount()) + 1, 0.0);
  double& peak = known[static_cast<size_t>(threads)];
  if (peak == 0.0) peak = BestOf([&] { return MeasurePeakFlops(Pool(threads)); });
  return peak;
}

// The same of 8-bit integers, by the instructions of the kernel in use.
double Int8PeakOf(int threads) {
  return BestOf([&] { return MeasurePeakInt8Ops(ChosenInt8Kernel().name, Pool(threads)); });
}

Tensor Random(Shape shape) {
  Tensor t(std::move(shape));
  uint32_t state = 12345;
  for (int64_t i = 0; i < t.size(); ++i) {
    state = state * 1664525u + 1013904223u;
    t[i] = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
  }
  return t;
}

double CpuSeconds() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Times `run` and reports it. The peak beside each run is one thread's, on processor time.
template <class F>
void Measure(benchmark::State& state, double flops, double bytes, int threads, const F& run) {
  run();  // threads, scratch memory and the output's pages are there from now on
  double work_seconds = 0, peak_seconds = 0, peak_flops = 0;
  const auto measure_peak = [&] {
    const double start = CpuSeconds();
    peak_flops += MultiplyAdds();
    peak_seconds += CpuSeconds() - start;
  };
  measure_peak();
  for (auto _ : state) {
    const double start = CpuSeconds();
    run();
    work_seconds += CpuSeconds() - start;
    state.PauseTiming();
    measure_peak();
    state.ResumeTiming();
  }
  const double runs = static_cast<double>(state.iterations());
  using benchmark::Counter;
  state.counters["GFLOP/s"] = Counter(flops * runs * 1e-9, Counter::kIsRate);
  state.counters["%peak"] = Counter(100.0 * flops * runs / PeakOf(threads), Counter::kIsRate);
  state.counters["cpu%"] = 100.0 * (flops * runs / work_seconds) / (peak_flops / peak_seconds);
  if (bytes > 0) state.counters["GB/s"] = Counter(bytes * runs * 1e-9, Counter::kIsRate);
}

void BM_MatMul(benchmark::State& state, int64_t rows, int64_t depth, int64_t cols, DType dtype, int threads) {
  const Tensor x = Random({rows, depth});
  const Tensor bias = Random({cols});
  const int64_t size = static_cast<int64_t>(SizeOf(dtype));
  const Tensor weights = Random({cols, depth * size / 4});
  std::vector<uint16_t> halves;
  if (dtype != DType::kF32)
    halves.assign(static_cast<size_t>(cols * depth), 0x3c01);  // small and not denormal
  const void* data = halves.empty() ? static_cast<const void*>(weights.data()) : halves.data();
  const WeightMatrix w{data, dtype, cols, depth};
  Tensor y({rows, cols});
  const double bytes = static_cast<double>(cols * depth * size);
  Measure(state, 2.0 * static_cast<double>(rows * depth * cols), rows < 64 ? bytes : 0, threads,
          [&] { MatMul(ViewOf(x), w, bias.data(), ViewOf(y), Pool(threads)); });
}

// Weights as MLX quantizes them, in groups of 64; the quantization of the activations is part of it.
void BM_Int8MatMul(benchmark::State& state, int64_t rows, int64_t depth, int64_t cols, int bits,
                   int threads) {
  constexpr int kGroup = 64;
  const Tensor x = Random({rows, depth}), bias = Random({cols});
  std::mt19937 random(1);
  std::vector<std::byte> packed(static_cast<size_t>(cols * depth * bits / 8));
  for (std::byte& b : packed) b = static_cast<std::byte>(random());
  const Tensor scales = Random({cols * depth / kGroup}), biases = Random({cols * depth / kGroup});
  const auto coding = MakeMlxCoding({.bits = bits,
                                     .group_size = kGroup,
                                     .packed = packed.data(),
                                     .scales = reinterpret_cast<const std::byte*>(scales.data()),
                                     .biases = reinterpret_cast<const std::byte*>(biases.data())});
  const WeightMatrix w{packed.data(), DType::kF32, cols, depth, coding};
  Tensor y({rows, cols});
  Int8Activations quantized;
  const double bytes = static_cast<double>(packed.size());
  Measure(state, 2.0 * static_cast<double>(rows * depth * cols), rows < 64 ? bytes : 0, threads, [&] {
    quantized.Quantize(
        rows, depth, kGroup, Int8Fineness::kWhereNeeded,
        [&](int64_t row, float*) { return x.data() + row * depth; }, Pool(threads));
    const Int8Product product = {.x = &quantized, .w = &w, .bias = bias.data(), .y = ViewOf(y)};
    Int8MatMul({&product, 1}, Pool(threads));
  });
}

void BM_Attention(benchmark::State& state, int64_t heads, int64_t head_dim, int64_t tokens, int threads) {
  const AttentionShape shape{heads, heads, head_dim};
  const Tensor q = Random({tokens, heads * head_dim});
  const Tensor k = Random({tokens, heads * head_dim});
  const Tensor v = Random({tokens, heads * head_dim});
  Tensor out({tokens, heads * head_dim});
  const double flops = 4.0 * static_cast<double>(heads * head_dim * tokens) * static_cast<double>(tokens);
  Measure(state, flops, 0, threads,
          [&] { Attention(ViewOf(q), ViewOf(k), ViewOf(v), shape, ViewOf(out), Pool(threads)); });
}

void BM_Int8Attention(benchmark::State& state, int64_t heads, int64_t head_dim, int64_t tokens, int threads) {
  const AttentionShape shape{heads, heads, head_dim};
  const Tensor q = Random({tokens, heads * head_dim});
  const Tensor k = Random({tokens, heads * head_dim});
  const Tensor v = Random({tokens, heads * head_dim});
  Tensor out({tokens, heads * head_dim});
  const double flops = 4.0 * static_cast<double>(heads * head_dim * tokens) * static_cast<double>(tokens);
  Measure(state, flops, 0, threads,
          [&] { Int8Attention(ViewOf(q), ViewOf(k), ViewOf(v), shape, ViewOf(out), Pool(threads)); });
}

void BM_Conv2d(benchmark::State& state, int64_t side, int64_t in, int64_t out, int64_t kernel, int threads) {
  const Conv2dShape shape{in, out, side, side, kernel, 1, kernel / 2, kernel / 2};
  const Tensor x = Random({side, side, in});
  const Tensor weight = Random({out, kernel, kernel, in});
  const Tensor bias = Random({out});
  Tensor y({side, side, out});
  Measure(state, 2.0 * static_cast<double>(side * side * in * out * kernel * kernel), 0, threads,
          [&] { Conv2d(x.data(), shape, weight.data(), bias.data(), y.data(), Pool(threads)); });
}

// GFLOP/s are counted as for a direct convolution of the (upsampled) picture, so they may exceed the peak:
// the Winograd convolution multiplies a quarter as often.
void BM_Conv3x3(benchmark::State& state, int64_t side, int64_t in, int64_t out, bool upsample, bool norm,
                int threads) {
  const Conv3x3Shape shape{in, out, side, side, upsample};
  const Tensor x = Random({side, side, in});
  const Tensor weight = Random({out, in, 3, 3});
  const Tensor bias = Random({out});
  const Tensor gamma = Random({in});
  Tensor y({shape.out_height(), shape.out_width(), out});
  Conv3x3Filter filter;
  const double flops = 18.0 * static_cast<double>(shape.out_height() * shape.out_width() * in * out);
  Measure(state, flops, 0, threads, [&] {
    filter.Set({weight.data(), DType::kF32, out, in * 9}, in, upsample, Pool(threads));
    Conv3x3(shape, filter, {x.data(), 0, norm ? gamma.data() : nullptr},
            {bias.data(), nullptr, y.data(), 0, 0, shape.out_height()}, Pool(threads));
  });
}

void BM_Conv3x3Filter(benchmark::State& state, int64_t channels, int threads) {
  const Tensor weight = Random({channels, channels, 3, 3});
  Conv3x3Filter filter;
  for (auto _ : state)
    filter.Set({weight.data(), DType::kF32, channels, channels * 9}, channels, false, Pool(threads));
}

// Kernels that are bound by memory: GB/s of what is read and written.
template <class F>
void BM_RowWise(benchmark::State& state, int64_t rows, int64_t cols, F run) {
  const Tensor x = Random({rows, cols});
  const Tensor a = Random({cols});
  const Tensor b = Random({cols});
  Tensor y({rows, cols});
  for (auto _ : state) run(ViewOf(x), a.data(), b.data(), ViewOf(y), Pool(DefaultThreadCount()));
  const double bytes = 8.0 * static_cast<double>(rows * cols * state.iterations());
  state.counters["GB/s"] = benchmark::Counter(bytes * 1e-9, benchmark::Counter::kIsRate);
}

// RmsNorm and RopeInterleaved, in place; fused, or one after the other.
void BM_RmsNormRope(benchmark::State& state, bool fused) {
  constexpr int64_t kTokens = 1047, kHeads = 24, kDim = 128;
  Tensor x = Random({kTokens, kHeads * kDim});
  const Tensor weight = Random({kDim}), cos = Random({kTokens, kDim / 2}), sin = Random({kTokens, kDim / 2});
  const RopeAngles angles = {cos.data(), sin.data(), kDim};
  ThreadPool& pool = Pool(DefaultThreadCount());
  for (auto _ : state) {
    if (fused) {
      RmsNormRope(ViewOf(x), weight.data(), 1e-6f, angles, pool);
    } else {
      RmsNormHeads(ViewOf(x), weight.data(), kDim, 1e-6f, pool);
      RopeInterleaved(ViewOf(x), angles, pool);
    }
  }
  const double bytes = 8.0 * static_cast<double>(x.size() * state.iterations());
  state.counters["GB/s"] = benchmark::Counter(bytes * 1e-9, benchmark::Counter::kIsRate);
}

// What handing out work costs: as many empty tasks as there are threads.
void BM_EmptyTasks(benchmark::State& state) {
  ThreadPool& pool = Pool(DefaultThreadCount());
  for (auto _ : state) pool.ParallelFor(pool.size(), [](int64_t) {});
}

template <class F, class... Args>
void Register(const std::string& name, F run, Args... args) {
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) { run(state, args...); })
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond)
      ->MinTime(0.2)
      ->Repetitions(3);
}

void RegisterAll() {
  const int all = DefaultThreadCount();
  const std::string on_all = ", " + std::to_string(all) + " threads";
  Register("MatMul 1024x3072x12288 f32, 1 thread", BM_MatMul, 1024, 3072, 12288, DType::kF32, 1);
  Register("MatMul 1024x3072x12288 f32" + on_all, BM_MatMul, 1024, 3072, 12288, DType::kF32, all);
  Register("MatMul 1024x3072x12288 bf16, 1 thread", BM_MatMul, 1024, 3072, 12288, DType::kBF16, 1);
  Register("MatMul 1024x3072x12288 bf16" + on_all, BM_MatMul, 1024, 3072, 12288, DType::kBF16, all);
  Register("MatMul 1024x12288x3072 bf16" + on_all, BM_MatMul, 1024, 12288, 3072, DType::kBF16, all);
  Register("MatMul 1024x12288x3072 bf16, 1 thread", BM_MatMul, 1024, 12288, 3072, DType::kBF16, 1);
  Register("MatMul 1024x3072x3072 bf16, 1 thread", BM_MatMul, 1024, 3072, 3072, DType::kBF16, 1);
  Register("MatMul 1024x3072x3072 f16" + on_all, BM_MatMul, 1024, 3072, 3072, DType::kF16, all);
  Register("MatMul 23x3072x12288 bf16, 1 thread", BM_MatMul, 23, 3072, 12288, DType::kBF16, 1);
  Register("MatMul 57x3584x18944 bf16, 1 thread", BM_MatMul, 57, 3584, 18944, DType::kBF16, 1);
  Register("MatMul 23x3072x12288 bf16" + on_all, BM_MatMul, 23, 3072, 12288, DType::kBF16, all);
  Register("MatMul 1x3072x18432 bf16, 1 thread", BM_MatMul, 1, 3072, 18432, DType::kBF16, 1);
  Register("MatMul 1x3072x18432 f32" + on_all, BM_MatMul, 1, 3072, 18432, DType::kF32, all);
  Register("MatMul 1x3072x18432 bf16" + on_all, BM_MatMul, 1, 3072, 18432, DType::kBF16, all);
  Register("MatMul 64x64x128 f32" + on_all, BM_MatMul, 64, 64, 128, DType::kF32, all);
  Register("Int8MatMul 1024x3072x12288 4-bit, 1 thread", BM_Int8MatMul, 1024, 3072, 12288, 4, 1);
  Register("Int8MatMul 1024x3072x12288 4-bit" + on_all, BM_Int8MatMul, 1024, 3072, 12288, 4, all);
  Register("Int8MatMul 1024x12288x3072 4-bit" + on_all, BM_Int8MatMul, 1024, 12288, 3072, 4, all);
  Register("Int8MatMul 1024x3072x12288 8-bit" + on_all, BM_Int8MatMul, 1024, 3072, 12288, 8, all);
  Register("Int8MatMul 57x3584x18944 4-bit" + on_all, BM_Int8MatMul, 57, 3584, 18944, 4, all);
  for (const int bits : {4, 8}) {  // the layers of the text encoder
    const std::string of_bits = std::to_string(bits) + "-bit, 1 thread";
    Register("Int8MatMul 57x3584x512 " + of_bits, BM_Int8MatMul, 57, 3584, 512, bits, 1);
    Register("Int8MatMul 57x3584x3584 " + of_bits, BM_Int8MatMul, 57, 3584, 3584, bits, 1);
    Register("Int8MatMul 57x3584x18944 " + of_bits, BM_Int8MatMul, 57, 3584, 18944, bits, 1);
    Register("Int8MatMul 57x18944x3584 " + of_bits, BM_Int8MatMul, 57, 18944, 3584, bits, 1);
  }
  Register("Int8MatMul 1x3072x18432 4-bit" + on_all, BM_Int8MatMul, 1, 3072, 18432, 4, all);
  Register("Attention 24x128 1047 tokens, 1 thread", BM_Attention, 24, 128, 1047, 1);
  Register("Attention 24x128 1047 tokens" + on_all, BM_Attention, 24, 128, 1047, all);
  Register("FastAttention 24x128 1047 tokens, 1 thread", BM_Int8Attention, 24, 128, 1047, 1);
  Register("FastAttention 24x128 1047 tokens" + on_all, BM_Int8Attention, 24, 128, 1047, all);
  Register("Attention 24x128 4119 tokens, 1 thread", BM_Attention, 24, 128, 4119, 1);
  Register("Attention 24x128 4119 tokens" + on_all, BM_Attention, 24, 128, 4119, all);
  Register("FastAttention 24x128 4119 tokens, 1 thread", BM_Int8Attention, 24, 128, 4119, 1);
  Register("FastAttention 24x128 4119 tokens" + on_all, BM_Int8Attention, 24, 128, 4119, all);
  Register("Attention 1x384 4096 tokens" + on_all, BM_Attention, 1, 384, 4096, all);
  Register("Conv2d 3x3 512x512 96->96" + on_all, BM_Conv2d, 512, 96, 96, 3, all);
  Register("Conv2d 3x3 256x256 192->192" + on_all, BM_Conv2d, 256, 192, 192, 3, all);
  Register("Conv2d 3x3 64x64 384->384" + on_all, BM_Conv2d, 64, 384, 384, 3, all);
  Register("Conv2d 3x3 512x512 96->3" + on_all, BM_Conv2d, 512, 96, 3, 3, all);

  for (const int threads : {1, all}) {
    const std::string on = threads == 1 ? ", 1 thread" : on_all;
    Register("Conv3x3 512x512 96->96" + on, BM_Conv3x3, 512, 96, 96, false, false, threads);
    Register("Conv3x3 512x512 96->96, norm + SiLU" + on, BM_Conv3x3, 512, 96, 96, false, true, threads);
    Register("Conv3x3 256x256 192->192, norm + SiLU" + on, BM_Conv3x3, 256, 192, 192, false, true, threads);
    Register("Conv3x3 128x128 384->384, norm + SiLU" + on, BM_Conv3x3, 128, 384, 384, false, true, threads);
    Register("Conv3x3 64x64 384->384, norm + SiLU" + on, BM_Conv3x3, 64, 384, 384, false, true, threads);
    Register("Conv3x3 256x256 192->96, upsampled" + on, BM_Conv3x3, 256, 192, 96, true, false, threads);
    Register("Conv3x3 128x128 384->192, upsampled" + on, BM_Conv3x3, 128, 384, 192, true, false, threads);
    Register("Conv3x3 512x512 96->3, norm + SiLU" + on, BM_Conv3x3, 512, 96, 3, false, true, threads);
    Register("Conv3x3 512x512 3->96" + on, BM_Conv3x3, 512, 3, 96, false, false, threads);
    Register("Conv3x3 filter 384->384" + on, BM_Conv3x3Filter, 384, threads);
  }

  const auto row_wise = [&](const std::string& name, auto run) {
    Register(name + on_all, [=](benchmark::State& state) { BM_RowWise(state, 1047, 3072, run); });
  };
  row_wise("LayerNorm 1047x3072", [](ConstView x, const float*, const float*, View y, ThreadPool& pool) {
    LayerNorm(x, 1e-6f, y, pool);
  });
  row_wise("Modulate 1047x3072", [](ConstView x, const float* a, const float* b, View y, ThreadPool& pool) {
    Modulate(x, a, b, y, pool);
  });
  row_wise("LayerNormModulate 1047x3072",
           [](ConstView x, const float* a, const float* b, View y, ThreadPool& pool) {
             LayerNormModulate(x, 1e-6f, a, b, y, pool);
           });
  row_wise("GeluTanh 1047x3072",
           [](ConstView x, const float*, const float*, View y, ThreadPool& pool) { GeluTanh(x, y, pool); });
  row_wise("RmsNorm 25128x128", [](ConstView x, const float* a, const float*, View y, ThreadPool& pool) {
    RmsNorm({x.data, x.size() / 128, 128}, a, 1e-6f, {y.data, y.size() / 128, 128}, pool);
  });
  Register("RmsNorm, RopeInterleaved 1047x24x128" + on_all, BM_RmsNormRope, false);
  Register("RmsNormRope 1047x24x128" + on_all, BM_RmsNormRope, true);
  Register("ParallelFor of empty tasks" + on_all, BM_EmptyTasks);
}

// One line a case: the best repetition, since whatever else runs on the machine only ever makes it slower.
class TableReporter : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override {
    std::printf("%-46s %10s %10s %8s %8s %8s\n", "", "ms", "GFLOP/s", "% peak", "cpu %", "GB/s");
    return true;
  }

  void ReportRuns(const std::vector<Run>& runs) override {
    const Run* best = nullptr;
    for (const Run& run : runs) {
      if (run.run_type != Run::RT_Iteration) continue;
      if (!best || run.GetAdjustedRealTime() < best->GetAdjustedRealTime()) best = &run;
    }
    if (!best) return;
    std::printf("%-46s %10.3f %10s %8s %8s %8s\n", best->run_name.function_name.c_str(),
                best->GetAdjustedRealTime(), Counter(*best, "GFLOP/s").c_str(),
                Counter(*best, "%peak").c_str(), Counter(*best, "cpu%").c_str(),
                Counter(*best, "GB/s").c_str());
    std::fflush(stdout);
  }

 private:
  static std::string Counter(const Run& run, const char* name) {
    const auto found = run.counters.find(name);
    if (found == run.counters.end()) return "";
    char text[32];
    std::snprintf(text, sizeof(text), "%.1f", found->second.value);
    return text;
  }
};

// Takes our own flag out of the arguments, as benchmark::Initialize does with its own.
bool ReadInstructionSet(int* argc, char** argv) {
  constexpr std::string_view kFlag = "--instruction-set=";
  for (int i = 1; i < *argc; ++i) {
    const std::string_view argument = argv[i];
    if (!argument.starts_with(kFlag)) continue;
    std::copy(argv + i + 1, argv + *argc, argv + i);
    --*argc;
    try {
      UseInstructionSet(std::string(argument.substr(kFlag.size())));
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", error.message().c_str());
      return false;
    }
    return true;
  }
  return true;
}

}  // namespace
}  // namespace qwen_image

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (!qwen_image::ReadInstructionSet(&argc, argv)) return 2;
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const int all = qwen_image::DefaultThreadCount();
  std::printf("8-bit kernel %s; instruction set %s; f32 peak %.0f GFLOP/s on 1 thread, %.0f on %d\n",
              qwen_image::ChosenInt8Kernel().name, qwen_image::InstructionSet().c_str(),
              qwen_image::PeakOf(1) * 1e-9, qwen_image::PeakOf(all) * 1e-9, all);
  if (const double one = qwen_image::Int8PeakOf(1); one > 0)
    std::printf("8-bit peak %.0f Gop/s on 1 thread, %.0f on %d\n", one * 1e-9,
                qwen_image::Int8PeakOf(all) * 1e-9, all);
  std::printf("\n");
  qwen_image::RegisterAll();
  qwen_image::TableReporter table;
  benchmark::RunSpecifiedBenchmarks(&table);
  return 0;
}
