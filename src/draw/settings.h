// A request with every default filled in and every value checked.
#pragma once

#include <string>
#include <vector>

#include "families/model.h"
#include "files/colour.h"
#include "model/scheduler.h"
#include "qwen_image/qwen_image.h"

namespace qwen_image::draw {

struct Settings {
  std::string negative_prompt;
  int64_t width = 0, height = 0;  // as drawn
  int64_t output_width = 0, output_height = 0;
  int64_t steps = 0;
  std::vector<double> sigmas;  // the noise levels that were given, or that the model has; empty: by the steps
  double cfg = 1;
  TokenGrid grid;
  std::vector<EditInputSizes> references;  // of the pictures of an edit
  bool repairs = false;                    // an edit with a mask or margins
  std::optional<Colour> background;        // that the result is laid on; of a model with alpha only
  std::optional<double> strength;          // with a picture to begin with
  int64_t first_step = 0;                  // of `steps`: those before it would make that picture noise again

  bool guided() const { return cfg > 1; }  // as in diffusers: 1 and less is off
  int64_t steps_run() const { return steps - first_step; }
};

// Throws Error kUsage that says what would be possible.
Settings ResolveSettings(const GenerateRequest& request, const ModelTraits& model);

// What the user should know about sizes: a mask that is stretched, a result that is enlarged.
std::vector<std::string> SizeNotes(const GenerateRequest& request, const Settings& settings,
                                   const ModelTraits& model);

// What they should know about the background that they asked for; empty: nothing.
std::string BackgroundNote(const GenerateRequest& request, const ModelTraits& model);

// The noise levels of the steps that are run.
Schedule ScheduleOf(const SchedulerConfig& scheduler, const Settings& settings);

}  // namespace qwen_image::draw
