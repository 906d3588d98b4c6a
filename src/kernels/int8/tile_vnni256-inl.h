// A tile on registers of 256 bits with dot products, for the instruction set that QWEN_IMAGE_TARGET and
// QWEN_IMAGE_DOT name. Included once for each, inside a namespace of its own.

// Twelve sums of integers, two registers of weights and one of activations; the sums of floats stay in
// memory.
constexpr int kRows = 6;

template <int kCount>
QWEN_IMAGE_TARGET void Multiply(const Int8Tile& t, int panel) {
  const Int8Rows& x = t.x;
  const Int8Panel& w = t.w[panel];
  float* const sums = t.sums + panel * kRows * kInt8PanelCols;
  const int8_t* a = x.a;
  const uint8_t* q = w.q;
  if (!t.add) {
    for (int i = 0; i < kCount * kInt8PanelCols; i += 8) _mm256_store_ps(sums + i, _mm256_setzero_ps());
  }
  NextActivations next(t, panel, kRows);
  for (int64_t g = 0; g < t.groups; ++g) {
    next.FetchShare();
    __m256i start[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    if (w.starts) {
      const auto* const from = reinterpret_cast<const __m256i*>(w.starts + g * kInt8PanelCols);
      start[0] = _mm256_load_si256(from);
      start[1] = _mm256_load_si256(from + 1);
    }
    __m256i dot[kCount][2];
#pragma GCC unroll 6
    for (int r = 0; r < kCount; ++r) {
      dot[r][0] = start[0];
      dot[r][1] = start[1];
    }
    for (int k = 0; k < t.group; k += 4) {
      const __m256i w0 = _mm256_load_si256(reinterpret_cast<const __m256i*>(q));
      const __m256i w1 = _mm256_load_si256(reinterpret_cast<const __m256i*>(q + 32));
#pragma GCC unroll 6
      for (int r = 0; r < kCount; ++r) {
        int32_t four;
        __builtin_memcpy(&four, a + 4 * r, sizeof(four));
        const __m256i activations = _mm256_set1_epi32(four);
        dot[r][0] = QWEN_IMAGE_DOT(dot[r][0], w0, activations);
        dot[r][1] = QWEN_IMAGE_DOT(dot[r][1], w1, activations);
      }
      q += 64;
      a += 4 * kRows;
    }
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const __m256 scale = _mm256_load_ps(w.scales + g * kInt8PanelCols + 8 * half);
      const __m256 bias = _mm256_load_ps(w.biases + g * kInt8PanelCols + 8 * half);
#pragma GCC unroll 6
      for (int r = 0; r < kCount; ++r) {
        float* const to = sums + r * kInt8PanelCols + 8 * half;
        const __m256 both = _mm256_mul_ps(scale, _mm256_broadcast_ss(x.scales + g * kRows + r));
        __m256 sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[r][half]), both, _mm256_load_ps(to));
        sum = _mm256_fmadd_ps(bias, _mm256_broadcast_ss(x.sums + g * kRows + r), sum);
        _mm256_store_ps(to, sum);
      }
    }
  }
}

template <int kCount = kRows>
void MultiplyRows(const Int8Tile& t) {
  if constexpr (kCount > 1) {
    if (t.rows < kCount) return MultiplyRows<kCount - 1>(t);
  }
  for (int panel = 0; panel < t.panels; ++panel) Multiply<kCount>(t, panel);
}
