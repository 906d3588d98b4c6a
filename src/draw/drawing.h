// One run: from a request to a picture. The methods are the run's numbered steps, to be called once each and
// in this order. Text alone is the plain case: whatever has to do with input pictures is empty then.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "core/rng.h"
#include "draw/input_pictures.h"
#include "draw/resume.h"
#include "draw/run.h"
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
  void Note(const std::string& text);
  void ReportFraction(double fraction);
  void Report(Progress::Stage stage, int64_t step);  // throws if the run is cancelled
  void DenoiseStep(Denoising& denoising, int64_t step);
  std::span<const Image> InputImages() const;
  SourceReport ReportSource(const Image& original, const Image& sized_original, const Image& result) const;

  const OpenedModel& opened_;
  const Model& model_;
  const GenerateHooks& hooks_;
  const Settings settings_;
  const std::optional<GenerateRequest> suited_;  // the request with pictures of the model's channels
  const GenerateRequest& request_;
  Workbench& bench_;
  const Turns::Turn turn_;
  const CancelFlag never_;
  const Compute compute_;
  const Run run_;
  const std::function<void(const std::string&)> note_;
  Progress progress_;
  Picture picture_;

  // What a step leaves to the next ones.
  std::optional<Source> source_;
  EncodedText text_;
  std::optional<EncodedText> negative_;
  TorchGenerator generator_;
  PictureLatents pictures_;
  Schedule schedule_;
  Tensor noise_, latents_;
  std::optional<StepCache> step_cache_;
  std::optional<KeptRun> kept_;
  Image drawn_;
};

}  // namespace qwen_image::draw
