#include <cstdint>

#include "peak.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace qwen_image {
namespace {

#if defined(__x86_64__)

constexpr int64_t kRounds = 200 * 1000;
// Independent sums hide the latency of a dot product. They stay in registers: the instructions are written
// out, since a compiler is free to leave out what is never read.
constexpr int kSums = 12;

// Products are added to others, so each counts twice.
double Operations(int products_an_instruction) { return 2.0 * products_an_instruction * kSums * kRounds; }

__attribute__((target("avx512f,avx512vnni"))) double Vpdpbusd512() {
  __m512i sum[kSums];
  const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5);
#pragma GCC unroll 12
  for (int i = 0; i < kSums; ++i) sum[i] = _mm512_setzero_si512();
  for (int64_t n = 0; n < kRounds; ++n) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) asm volatile("vpdpbusd %2, %1, %0" : "+v"(sum[i]) : "v"(a), "v"(b));
  }
  return Operations(64);
}

__attribute__((target("avx2,avxvnni"))) double Vpdpbusd256() {
  __m256i sum[kSums];
  const __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5);
#pragma GCC unroll 12
  for (int i = 0; i < kSums; ++i) sum[i] = _mm256_setzero_si256();
  for (int64_t n = 0; n < kRounds; ++n) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i)
      asm volatile("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum[i]) : "x"(a), "x"(b));
  }
  return Operations(32);
}

// Pairs of products are added in 16 bits.
__attribute__((target("avx2"))) double Vpmaddubsw256() {
  __m256i sum[kSums];
  const __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5);
#pragma GCC unroll 12
  for (int i = 0; i < kSums; ++i) sum[i] = _mm256_setzero_si256();
  for (int64_t n = 0; n < kRounds; ++n) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) {
      __m256i product;
      asm volatile("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0"
                   : "+x"(sum[i]), "=&x"(product)
                   : "x"(a), "x"(b));
    }
  }
  return Operations(32);
}

std::function<double()> LoopOf(std::string_view kernel) {
  if (kernel == "AVX-512 VNNI") return Vpdpbusd512;
  if (kernel == "AVX VNNI") return Vpdpbusd256;
  if (kernel == "AVX2") return Vpmaddubsw256;
  return nullptr;
}

#else

std::function<double()> LoopOf(std::string_view) { return nullptr; }

#endif

}  // namespace

double MeasurePeakInt8Ops(std::string_view kernel, ThreadPool& pool) {
  const std::function<double()> loop = LoopOf(kernel);
  return loop ? OperationsASecond(pool, loop) : 0.0;
}

}  // namespace qwen_image
