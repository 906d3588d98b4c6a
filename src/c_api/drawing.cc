// Drawings on threads of their own, for C: the thread that draws hands over events, and waits until they were
// seen.
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "c_api/guard.h"
#include "c_api/handles.h"
#include "qwen_image/cancel.h"

using qwen_image::ErrorKind;
using qwen_image::Fail;
using qwen_image::Guarded;
using qwen_image::Need;

struct qwen_image_drawing {
  qwen_image_drawing(const qwen_image_pipeline& with, qwen_image::GenerateRequest asked, int wanted)
      : pipeline_(with), request_(std::move(asked)), thread_([this, wanted] { Draw(wanted); }) {}

  ~qwen_image_drawing() {
    Cancel();
    thread_.join();
  }

  int Next(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    GoOn();
    changed_.wait_for(lock, limit, [&] { return over_ || event_ != QWEN_IMAGE_EVENT_NONE; });
    if (failure_) std::rethrow_exception(failure_);
    if (over_) return QWEN_IMAGE_EVENT_DRAWN;
    if (event_ != QWEN_IMAGE_EVENT_NONE) pipeline_.told = std::this_thread::get_id();
    seen_ = event_ != QWEN_IMAGE_EVENT_NONE;
    return event_;
  }

  void Cancel() {
    const std::lock_guard lock(mutex_);
    cancel_.Cancel();
    GoOn();
    changed_.notify_all();
  }

  const qwen_image_progress& progress() const { return progress_; }
  const qwen_image_picture& picture() const { return picture_; }

 private:
  // After an event that was seen. The lock is held.
  void GoOn() {
    if (!std::exchange(seen_, false)) return;
    pipeline_.told = std::thread::id();
    event_ = QWEN_IMAGE_EVENT_NONE;
    changed_.notify_all();
  }

  // On the drawing's thread: `fill` writes what there is to see.
  template <typename Fill>
  void Tell(qwen_image_event event, const Fill& fill) {
    std::unique_lock lock(mutex_);
    cancel_.ThrowIfCancelled();
    fill();
    event_ = event;
    changed_.notify_all();
    changed_.wait(lock, [&] { return event_ == QWEN_IMAGE_EVENT_NONE || cancel_.cancelled(); });
    cancel_.ThrowIfCancelled();
  }

  void Draw(int wanted) noexcept {
    qwen_image::GenerateHooks hooks;
    hooks.cancel = &cancel_;
    if (wanted & QWEN_IMAGE_EVENT_PROGRESS) {
      hooks.on_progress = [this](const qwen_image::Progress& p) {
        Tell(QWEN_IMAGE_EVENT_PROGRESS, [&] {
          progress_ = {static_cast<qwen_image_stage>(p.stage), p.step, p.steps, p.fraction};
        });
      };
    }
    if (wanted & QWEN_IMAGE_EVENT_PREVIEW) {
      hooks.on_preview = [this](const qwen_image::Image& image) {
        Tell(QWEN_IMAGE_EVENT_PREVIEW, [&] {
          qwen_image::Picture& preview = picture_.picture;
          preview.width = image.width;
          preview.height = image.height;
          preview.channels = image.channels;
          preview.pixels = image.pixels;
        });
      };
    }
    std::exception_ptr failure;
    qwen_image::Picture drawn;
    try {
      drawn = pipeline_.pipeline.Generate(request_, hooks);
    } catch (...) {
      failure = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    FillPicture(std::move(drawn), picture_);
    failure_ = failure;
    over_ = true;
    changed_.notify_all();
  }

  const qwen_image_pipeline& pipeline_;
  const qwen_image::GenerateRequest request_;
  qwen_image::CancelFlag cancel_;
  std::mutex mutex_;
  std::condition_variable changed_;
  qwen_image_event event_ = QWEN_IMAGE_EVENT_NONE;
  bool seen_ = false;  // somebody was told of event_
  bool over_ = false;
  std::exception_ptr failure_;
  qwen_image_progress progress_ = {};
  qwen_image_picture picture_;
  std::thread thread_;  // the last member: it uses the others
};

qwen_image_status qwen_image_drawing_start(const qwen_image_pipeline* pipeline,
                                           const qwen_image_request* request, int events,
                                           qwen_image_drawing** drawing) {
  return Guarded([&] {
    Need(drawing, "drawing") = nullptr;
    constexpr int kKnown = QWEN_IMAGE_EVENT_PROGRESS | QWEN_IMAGE_EVENT_PREVIEW;
    if (events & ~kKnown) Fail(ErrorKind::kUsage, "{} are no events; see qwen_image_event", events);
    Need(pipeline, "pipeline").ThrowIfToldOfAnEvent();
    *drawing = new qwen_image_drawing(*pipeline, Need(request, "request").request, events);
  });
}

qwen_image_status qwen_image_drawing_next(qwen_image_drawing* drawing, int milliseconds, int* event) {
  return Guarded([&] {
    Need(event, "event") = QWEN_IMAGE_EVENT_NONE;
    *event = Need(drawing, "drawing").Next(std::chrono::milliseconds(milliseconds));
  });
}

const qwen_image_progress* qwen_image_drawing_progress(const qwen_image_drawing* drawing) {
  return drawing ? &drawing->progress() : nullptr;
}

const qwen_image_picture* qwen_image_drawing_picture(const qwen_image_drawing* drawing) {
  return drawing ? &drawing->picture() : nullptr;
}

void qwen_image_drawing_cancel(qwen_image_drawing* drawing) {
  if (drawing) drawing->Cancel();
}

void qwen_image_drawing_free(qwen_image_drawing* drawing) { delete drawing; }
