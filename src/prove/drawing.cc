#include "prove/drawing.h"

#include <algorithm>
#include <chrono>

#include "core/memory.h"
#include "draw/opened_model.h"
#include "draw/record.h"
#include "prove/facts.h"

namespace qwen_image::prove {
namespace {

constexpr int64_t kSmallSide = 256;

const char* NameOf(Progress::Stage stage) {
  switch (stage) {
    case Progress::Stage::kEncodePrompt:
      return "encode_prompt";
    case Progress::Stage::kEncodePictures:
      return "encode_pictures";
    case Progress::Stage::kDenoise:
      return "denoise";
    default:
      return "decode";
  }
}

// The most memory that the process held during each stage.
class StageMemory {
 public:
  void Update(Progress::Stage stage) {
    if (stage_ == stage) return;
    Finish();
    stage_ = stage;
    each_ = ForgetPeakMemory() && each_;
  }
  void Finish() {
    if (stage_) peaks_[NameOf(*stage_)] = MemoryInUse().peak;
  }
  // Where the peak cannot be reset, a stage's figure is the most until its end.
  Json ToJson() const { return {{"peak", peaks_}, {"peak_of_each_stage", each_}}; }

 private:
  std::optional<Progress::Stage> stage_;
  std::map<std::string, int64_t> peaks_;
  bool each_ = true;
};

Json FactsOf(const Picture& p, double seconds) {
  const StageSeconds& s = p.seconds;
  return {{"prompt", p.prompt},
          {"width", p.width},
          {"height", p.height},
          {"steps", p.steps},
          {"cfg", p.cfg},
          {"seed", p.seed},
          {"prompt_tokens", p.prompt_tokens},
          {"seconds",
           {{"encode_prompt", s.encode_prompt},
            {"encode_pictures", s.encode_pictures},
            {"denoise", s.denoise},
            {"decode", s.decode},
            {"all", seconds}}},
          {"seconds_per_step", s.denoise / static_cast<double>(std::max<int64_t>(p.steps_run, 1))}};
}

}  // namespace

Drawn Draw(const Pipeline& pipeline, const GenerateRequest& request, const std::string& what,
           const Watch& watch, CheckpointSink* sink) {
  if (watch.on_drawing) watch.on_drawing(what);
  StageMemory memory;
  const auto start = std::chrono::steady_clock::now();
  Drawn drawn;
  drawn.picture = pipeline.Generate(request, {.on_progress =
                                                  [&](const Progress& progress) {
                                                    memory.Update(progress.stage);
                                                    if (watch.on_progress) watch.on_progress(progress);
                                                  },
                                              .cancel = &watch.cancel,
                                              .checkpoints = sink});
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  memory.Finish();
  drawn.facts = FactsOf(drawn.picture, seconds.count());
  drawn.facts["memory"] = memory.ToJson();
  return drawn;
}

ReportPicture ForReport(std::string file, const Drawn& drawn, const GenerateRequest& request,
                        const Pipeline& pipeline) {
  const draw::OpenedModel& model = draw::ModelOf(pipeline);
  Json record = draw::DrawnRecord(drawn.picture, request, model.model->id(), model);
  draw::NameSources(request, "report", record);
  return {std::move(file), drawn.picture.image(), draw::FileText(record)};
}

std::pair<int64_t, int64_t> SmallSize(const Pipeline& pipeline) {
  const auto side = [&](int64_t own) {
    const int64_t multiple = pipeline.side_multiple();
    return std::max(multiple, std::min(own, kSmallSide) / multiple * multiple);
  };
  return {side(pipeline.defaults().width), side(pipeline.defaults().height)};
}

std::optional<int64_t> StepsFor(const Pipeline& pipeline, int64_t most) {
  const bool fixed = !draw::ModelOf(pipeline).model->traits().sigmas.empty();
  if (fixed) return std::nullopt;
  return std::min(most, pipeline.defaults().steps);
}

}  // namespace qwen_image::prove
