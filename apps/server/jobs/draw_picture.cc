#include "server/jobs/draw_picture.h"

#include <fmt/format.h>

#include <utility>

#include "qwen_image/image_file.h"

namespace qwen_image::jobs {

Picture DrawPicture(const Pipeline& pipeline, const Request& job, int64_t index, ProgressMeter& meter,
                    const DrawingHooks& asked) {
  GenerateRequest request = job.request;
  request.seed += static_cast<uint64_t>(index);
  GenerateHooks hooks;
  const auto on_preview = [&](const Image& preview) { asked.on_preview(EncodePng(preview)); };
  bool resumed = false;
  hooks.on_progress = [&](const Progress& progress) {
    if (progress.resumed > 0 && !std::exchange(resumed, true) && asked.on_resumed)
      asked.on_resumed(progress.resumed);
    asked.on_progress(meter.Update(progress));
    const bool watched = asked.watched();
    if (watched == static_cast<bool>(hooks.on_preview)) return;
    if (watched)
      hooks.on_preview = on_preview;
    else
      hooks.on_preview = nullptr;
  };
  hooks.cancel = asked.cancel;
  hooks.on_note = asked.on_note;
  meter.BeginPicture(index);
  return pipeline.Generate(request, hooks);
}

PictureText TextOf(const Pipeline& pipeline, const Picture& picture, const Request& job,
                   const std::string& model_name, draw::SourceMark mark) {
  GenerateRequest request = job.request;
  request.seed = picture.seed;
  Json record = draw::DrawnRecord(picture, request, model_name, draw::ModelOf(pipeline));
  draw::NameSources(request, "uploaded", record);  // what came by a request has no name of its own
  return draw::FileText(record, mark);
}

void AddPicture(const Picture& picture, const Request& drawn, Job& job) {
  const bool first = job.images.empty();
  job.images.push_back({picture.width, picture.height, picture.seed, picture.channels});
  if (!first) return;
  job.settings.width = picture.width;
  job.settings.height = picture.height;
  job.settings.negative_prompt = picture.negative_prompt;
  job.settings.steps = picture.steps;
  job.settings.cfg = picture.cfg;
  job.settings.strength = picture.strength;
  if (picture.prompt_truncated)
    job.notes.push_back(
        fmt::format("the prompt has {} tokens, of which the first {} are used; the rest had no effect",
                    picture.prompt_tokens, drawn.request.max_sequence_length));
}

}  // namespace qwen_image::jobs
