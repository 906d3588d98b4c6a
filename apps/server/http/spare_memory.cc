#include "server/http/spare_memory.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace qwen_image::http {
namespace {

// More than the largest tree of a request's JSON. Nothing is written there, so it takes addresses only.
constexpr size_t kBytes = 8 << 20;

std::atomic<void*> spare = nullptr;
std::atomic<bool> kept = false;

void OnNoMemory() {
  std::free(spare.exchange(nullptr));
  throw std::bad_alloc();
}

}  // namespace

void KeepSpareMemory() {
  kept = true;
  RefillSpareMemory();
  std::set_new_handler(OnNoMemory);
}

void RefillSpareMemory() noexcept {
  if (!kept || spare.load()) return;
  void* none = nullptr;
  void* const taken = std::malloc(kBytes);
  if (!spare.compare_exchange_strong(none, taken)) std::free(taken);
}

}  // namespace qwen_image::http
