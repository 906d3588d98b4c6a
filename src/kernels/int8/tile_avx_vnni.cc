// AVX with VNNI (Alder Lake and later, Zen 5). The same code is compiled once more for the 256-bit form of
// AVX-512 VNNI, which differs in the encoding of one instruction: so it is tested on machines with either.
#include "kernels/int8/tile.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace qwen_image {
namespace {

namespace avx_vnni {
#define QWEN_IMAGE_TARGET __attribute__((target("avx2,fma,avxvnni")))
#define QWEN_IMAGE_DOT _mm256_dpbusd_avx_epi32
#include "kernels/int8/tile_vnni256-inl.h"
#undef QWEN_IMAGE_TARGET
#undef QWEN_IMAGE_DOT
}  // namespace avx_vnni

namespace avx512_vnni_256 {
#define QWEN_IMAGE_TARGET __attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")))
#define QWEN_IMAGE_DOT _mm256_dpbusd_epi32
#include "kernels/int8/tile_vnni256-inl.h"
#undef QWEN_IMAGE_TARGET
#undef QWEN_IMAGE_DOT
}  // namespace avx512_vnni_256

}  // namespace

const Int8Kernel kInt8AvxVnni = {"AVX VNNI", Int8Weights::kUnsigned, avx_vnni::kRows,
                                 avx_vnni::MultiplyRows<>, true};
const Int8Kernel kInt8Avx512Vnni256 = {"AVX-512 VNNI, 256 bits", Int8Weights::kUnsigned,
                                       avx512_vnni_256::kRows, avx512_vnni_256::MultiplyRows<>, true};

}  // namespace qwen_image
#endif
