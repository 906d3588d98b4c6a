// One run: from a request to a picture. The methods are the run's numbered steps, to be called once each and
// in this order. Text alone is the plain case: whatever has to do with input pictures is empty then.
#pragma once

#include <optional>
#include <span>

#include "core/rng.h"
#include "draw/input_pictures.h"
#include "draw/resume.h"
#include "draw/run.h"
#include "draw/run_report.h"
#include "draw/source.h"
#include "draw/stages.h"
#include "draw/step_cache.h"
#include "draw/workbench.h"

namespace qwen_image::draw {

class Drawing {
 public:
  // 1. Checks the request, fills in the defaults, and waits until no other run uses the workbench. All that
  // is given must outlive the drawing.
  Drawing(const OpenedModel& opened, Workbench& bench, const GenerateRequest& asked,
          const GenerateHooks& hooks);
  ~Drawing();  // gives the pages of the weights back, also where the run was stopped or failed
  Drawing(const Drawing&) = delete;
  Drawing& operator=(const Drawing&) = delete;

  void EncodePrompts();   // 2. turns the prompts into embeddings; those of an edit see the pictures, too
  void EncodePictures();  // 3. turns the input pictures into latents
  void Begin();           // 4. draws the noise, 5. lays out the noise levels; or takes up an earlier run
  void Denoise();         // 6. goes step by step from noise to latents
  void Decode();          // 7. turns the latents into pixels
  // 8. Brings the result to the size of what it was made from, lays it over that and on its background.
  Picture Finish();

 private:
  // The request as it is drawn: its settings are filled in, and its pictures have the model's channels.
  struct Asked {
    Asked(const OpenedModel& opened, const GenerateRequest& asked, const GenerateHooks& hooks);
    const Settings settings;
    const std::optional<GenerateRequest> suited;  // only if a picture had other channels
    const GenerateRequest& request;
  };
  struct Prompts {
    EncodedText positive;
    std::optional<EncodedText> negative;  // with guidance
  };

  void DenoiseStep(Denoising& denoising, int64_t step);
  std::span<const Image> InputImages() const;
  SourceReport ReportSource(const Image& original, const Image& sized_original, const Image& result) const;

  const OpenedModel& opened_;
  Workbench& bench_;
  const Asked asked_;
  RunReport report_;
  const Turns::Turn turn_;
  const Compute compute_;
  const Run run_;
  Picture picture_;

  // What a step leaves to the next ones.
  std::optional<Source> source_;
  Prompts prompts_;
  TorchGenerator generator_;
  PictureLatents pictures_;
  Schedule schedule_;
  Tensor noise_, latents_;
  std::optional<StepCache> step_cache_;
  std::optional<ResumableRun> resumable_;
  Image drawn_;
};

}  // namespace qwen_image::draw
