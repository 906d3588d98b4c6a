// What a run tells its caller while it goes on: progress, notes, previews. It also stops a cancelled run.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "qwen_image/cancel.h"
#include "qwen_image/qwen_image.h"

namespace qwen_image::draw {

class RunReport {
 public:
  // `hooks` must outlive this object.
  RunReport(const GenerateHooks& hooks, int64_t steps)
      : hooks_(hooks),
        progress_{.stage = Progress::Stage::kEncodePrompt, .step = 0, .steps = steps, .fraction = 0} {}
  RunReport(const RunReport&) = delete;
  RunReport& operator=(const RunReport&) = delete;

  void Begin(Progress::Stage stage, int64_t step) {  // throws if the run is cancelled
    cancel().ThrowIfCancelled();
    progress_.stage = stage;
    progress_.step = step;
    Fraction(0);
  }
  void Fraction(double fraction) {  // of the stage or step that began last
    progress_.fraction = fraction;
    if (hooks_.on_progress) hooks_.on_progress(progress_);
  }
  void Note(const std::string& text) {
    notes_.push_back(text);
    if (hooks_.on_note) hooks_.on_note(text);
  }
  bool wants_previews() const { return static_cast<bool>(hooks_.on_preview); }
  void Preview(const Image& image) { hooks_.on_preview(image); }

  const CancelFlag& cancel() const { return hooks_.cancel ? *hooks_.cancel : never_; }
  std::function<void(const std::string&)> note_function() {
    return [this](const std::string& text) { Note(text); };
  }
  void set_resumed(int64_t steps) { progress_.resumed = steps; }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  const GenerateHooks& hooks_;
  const CancelFlag never_;
  Progress progress_;
  std::vector<std::string> notes_;
};

}  // namespace qwen_image::draw
