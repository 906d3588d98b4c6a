// How long the VAE's encoder takes; the program that draws has no use for it yet, so no option of it can
// tell.
//
//   vae_encode_bench FOLDER SIDE THREADS       prints "encode SECONDS s" for a picture of SIDE x SIDE
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "core/tensor.h"
#include "core/threads.h"
#include "families/qwen_image/vae.h"
#include "weights/store.h"

namespace qwen_image {
namespace {

// A smooth picture [1, 3, side, side] in [-1, 1].
Tensor MakePicture(int64_t side) {
  Tensor picture({1, 3, side, side});
  for (int64_t i = 0; i < picture.size(); ++i) picture[i] = std::sin(0.01f * static_cast<float>(i));
  return picture;
}

void Run(const char* folder, int64_t side, int threads) {
  const Vae vae(WeightStore(folder, Component::kVae));
  ThreadPool pool(threads);
  const CancelFlag never;
  const Tensor picture = MakePicture(side);
  const auto start = std::chrono::steady_clock::now();
  vae.Encode(picture, {pool, never});
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("encode %.3f s\n", seconds.count());
}

}  // namespace
}  // namespace qwen_image

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: vae_encode_bench FOLDER SIDE THREADS\n");
    return 2;
  }
  try {
    qwen_image::Run(argv[1], std::atoll(argv[2]), std::atoi(argv[3]));
  } catch (const qwen_image::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
  return 0;
}
