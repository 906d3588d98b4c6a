#include "files/mmap_guard.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>

namespace qwen_image {

// The ranges are a list that only grows: a signal handler can walk it without a lock. Entries are used again,
// so that it is as long as there were ever mappings at the same time.
class GuardedMapping {
 public:
  bool TryTake() { return !taken_.exchange(true, std::memory_order_acquire); }

  // The end is written last and removed first, so that a handler sees the whole range or none.
  void Set(uintptr_t begin, uintptr_t end) {
    cut_.store(false);
    begin_.store(begin);
    end_.store(end);
  }
  void Clear() {
    end_.store(0);
    begin_.store(0);
    taken_.store(false, std::memory_order_release);
  }

  // The end of the range if `address` is in it, else 0.
  uintptr_t EndAround(uintptr_t address) const {
    const uintptr_t end = end_.load();
    const bool inside = begin_.load() <= address && address < end;
    return inside && end_.load() == end ? end : 0;
  }

  bool cut() const { return cut_.load(); }
  void MarkCut() { cut_.store(true); }

  GuardedMapping* next = nullptr;  // does not change once the entry is in the list

 private:
  std::atomic<bool> taken_ = true;
  std::atomic<uintptr_t> begin_ = 0, end_ = 0;
  std::atomic<bool> cut_ = false;
};

namespace {

static_assert(std::atomic<uintptr_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free,
              "they are used in a signal handler");

std::atomic<GuardedMapping*> mappings = nullptr;
struct sigaction previous_action;
uintptr_t page_bytes = 4096;

// Maps zeros from the page of `address` to the end of its mapping, if it has one. If this page is gone, all
// pages behind it are, so one signal is enough for a whole model. The zeros take no memory: they are only
// read.
bool ReplaceLostPages(uintptr_t address) {
  for (GuardedMapping* mapping = mappings.load(); mapping; mapping = mapping->next) {
    const uintptr_t end = mapping->EndAround(address);
    if (end == 0) continue;
    mapping->MarkCut();  // first: no other thread may read zeros and take them for the file's
    const uintptr_t begin = address / page_bytes * page_bytes;
    return mmap(reinterpret_cast<void*>(begin), end - begin, PROT_READ,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED;
  }
  return false;
}

void CallPrevious(int signal, siginfo_t* info, void* context) {
  if (previous_action.sa_flags & SA_SIGINFO) return previous_action.sa_sigaction(signal, info, context);
  if (previous_action.sa_handler != SIG_DFL && previous_action.sa_handler != SIG_IGN)
    return previous_action.sa_handler(signal);
  // The signal is blocked until this handler returns; then it ends the process as if we had not been here.
  struct sigaction fallback = {};
  fallback.sa_handler = SIG_DFL;
  sigaction(signal, &fallback, nullptr);
  raise(signal);
}

extern "C" void OnBusError(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  // Positive codes come from the processor, others from kill() and the like, without an address.
  const bool replaced = info->si_code > 0 && ReplaceLostPages(reinterpret_cast<uintptr_t>(info->si_addr));
  if (!replaced) CallPrevious(signal, info, context);
  errno = saved_errno;
}

}  // namespace

void InstallTruncationGuard() {
  static std::once_flag once;
  std::call_once(once, [] {
    page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    struct sigaction action = {};
    action.sa_sigaction = OnBusError;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    // Known before it can be needed: two handlers would call each other for ever.
    sigaction(SIGBUS, nullptr, &previous_action);
    sigaction(SIGBUS, &action, nullptr);
  });
}

GuardedMapping* GuardMapping(std::span<const std::byte> bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
  for (GuardedMapping* mapping = mappings.load(); mapping; mapping = mapping->next) {
    if (!mapping->TryTake()) continue;
    mapping->Set(begin, begin + bytes.size());
    return mapping;
  }
  auto* added = new GuardedMapping;  // never deleted: a handler may be looking at it
  added->Set(begin, begin + bytes.size());
  added->next = mappings.load();
  while (!mappings.compare_exchange_weak(added->next, added)) {
  }
  return added;
}

void UnguardMapping(GuardedMapping* mapping) { mapping->Clear(); }

bool WasCut(const GuardedMapping* mapping) { return mapping->cut(); }

}  // namespace qwen_image
