#include "draw.h"

#include <algorithm>
#include <condition_variable>
#include <future>
#include <mutex>
#include <set>
#include <utility>

#include "qwen_image/cancel.h"

namespace py = pybind11;

namespace qwen_image {
namespace {

// Only the main thread sees signals; on others this does nothing.
void RaiseSignals() {
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

// The drawings of all threads. When Python ends, those of daemon threads are stopped: it ends a thread that
// asks for its lock then, and C++ ends the process for that.
class Drawings {
 public:
  void Begin(CancelFlag* drawing) {
    const std::lock_guard lock(mutex_);
    if (ending_) drawing->Cancel();
    running_.insert(drawing);
  }
  // Does not come back if Python has ended.
  void End(CancelFlag* drawing) {
    std::unique_lock lock(mutex_);
    running_.erase(drawing);
    changed_.notify_all();
    const bool ending = ending_;
    lock.unlock();
    if (ending) std::promise<void>().get_future().wait();
  }
  void StopAll() {
    std::unique_lock lock(mutex_);
    ending_ = true;
    for (CancelFlag* drawing : running_) drawing->Cancel();
    changed_.wait(lock, [&] { return running_.empty(); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<CancelFlag*> running_;
  bool ending_ = false;
};

Drawings& AllDrawings() {
  static Drawings& drawings = *new Drawings;  // outlives the threads that wait in it
  return drawings;
}

struct Drawing {
  Drawing() { AllDrawings().Begin(&cancel); }
  ~Drawing() { AllDrawings().End(&cancel); }
  CancelFlag cancel;
};

}  // namespace

void StopDrawings() {
  const py::gil_scoped_release unlocked;
  AllDrawings().StopAll();
}

Image ImageOf(const Bytes& pixels) {
  return {pixels.shape(1), pixels.shape(0), {pixels.data(), pixels.data() + pixels.size()}, pixels.shape(2)};
}

GreyImage GreyOf(const Bytes& pixels) {
  return {pixels.shape(1), pixels.shape(0), {pixels.data(), pixels.data() + pixels.size()}};
}

Bytes ArrayOf(const Image& image) {
  Bytes array({image.height, image.width, image.channels});
  std::copy(image.pixels.begin(), image.pixels.end(), array.mutable_data());
  return array;
}

Picture Draw(const Pipeline& pipeline, const GenerateRequest& request, const py::object& on_progress,
             const py::object& on_preview) {
  // Exceptions of Python pass through Generate as any other would: it holds nothing that needs more than
  // unwinding.
  GenerateHooks hooks;
  hooks.on_progress = [&](const Progress& progress) {
    hooks.cancel->ThrowIfCancelled();  // Python may have ended
    const py::gil_scoped_acquire lock;
    RaiseSignals();
    if (!on_progress.is_none()) on_progress(progress);
  };
  if (!on_preview.is_none()) {
    hooks.on_preview = [&](const Image& image) {
      hooks.cancel->ThrowIfCancelled();
      const py::gil_scoped_acquire lock;
      on_preview(ArrayOf(image));
    };
  }
  hooks.on_wait = [&] {
    hooks.cancel->ThrowIfCancelled();
    const py::gil_scoped_acquire lock;
    RaiseSignals();
  };
  const py::gil_scoped_release unlocked;
  const Drawing drawing;  // ends before Python's lock is asked for
  hooks.cancel = &drawing.cancel;
  return pipeline.Generate(request, hooks);
}

}  // namespace qwen_image
