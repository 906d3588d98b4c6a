// The thread that draws: one picture at a time, by the queue's pipeline.
#include <new>

#include "core/fail.h"
#include "server/jobs/draw_picture.h"
#include "server/jobs/drawer.h"
#include "server/jobs/queue_impl.h"

namespace qwen_image::jobs {
namespace {

class LocalDrawer : public Drawer {
 public:
  void Run(Queue::Impl& queue) override {
    while (const Entry entry = queue.TakeFirst()) {
      try {
        queue.TellWaiting();
        queue.Finish(entry, DrawJob(queue, entry));
      } catch (const std::exception&) {
        queue.FinishWithoutMemory(entry);
      }
    }
  }

 private:
  static Ending DrawJob(Queue::Impl& queue, const Entry& entry);
  static void DrawNext(Queue::Impl& queue, const Entry& entry, int64_t index, ProgressMeter& meter);
};

Ending LocalDrawer::DrawJob(Queue::Impl& queue, const Entry& entry) {
  try {
    queue.TellBegun(entry);
    const int64_t count = entry->request.count;
    ProgressMeter meter(count);
    for (int64_t i = 0; i < count; ++i) DrawNext(queue, entry, i, meter);
    return {};
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInterrupted || !entry->cancel.cancelled())
      return {State::kFailed, error.kind(), error.message()};
    const std::lock_guard lock(queue.mutex);
    if (entry->interrupted) return {State::kInterrupted, ErrorKind::kInterrupted, kStoppedDrawing};
    return {State::kCancelled, ErrorKind::kInterrupted, "the job was cancelled"};
  } catch (const std::bad_alloc&) {
    return {State::kFailed, ErrorKind::kOutOfMemory, "there was not enough memory for this picture"};
  } catch (const std::exception& error) {
    return {State::kFailed, ErrorKind::kInternal, error.what()};
  }
}

void LocalDrawer::DrawNext(Queue::Impl& queue, const Entry& entry, int64_t index, ProgressMeter& meter) {
  DrawingHooks hooks;
  hooks.on_progress = [&](const JobProgress& progress) { queue.SetProgress(entry, progress); };
  hooks.watched = [&] { return queue.Watched(entry); };
  hooks.on_preview = [&](const std::string& png) { queue.SetPreview(entry, png); };
  hooks.on_note = [&](const std::string& note) {
    const std::lock_guard lock(queue.mutex);
    entry->job.notes.push_back(note);
  };
  hooks.cancel = &entry->cancel;
  const Request& request = entry->request;  // nobody else touches it while the job runs
  const Picture picture = DrawPicture(queue.pipeline, request, index, meter, hooks);
  queue.store.WritePicture(
      entry->job.id, index, picture.image(),
      TextOf(queue.pipeline, picture, request, queue.options.model_name, queue.options.mark));

  const std::lock_guard lock(queue.mutex);
  AddPicture(picture, request, entry->job);
  QueueStats& stats = queue.stats;
  stats.pictures += 1;
  stats.steps += picture.steps_run;
  stats.seconds.encode_prompt += picture.seconds.encode_prompt;
  stats.seconds.encode_pictures += picture.seconds.encode_pictures;
  stats.seconds.denoise += picture.seconds.denoise;
  stats.seconds.decode += picture.seconds.decode;
  if (picture.steps_run > 0)
    stats.last_seconds_per_step = picture.seconds.denoise / static_cast<double>(picture.steps_run);
}

}  // namespace

std::shared_ptr<Drawer> DrawHere() { return std::make_shared<LocalDrawer>(); }

}  // namespace qwen_image::jobs
