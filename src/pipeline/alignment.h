// Did an edit move or zoom the picture? Measures the shift and the scale between two pictures by what stayed:
// edges.
#pragma once

#include "core/rgb_image.h"
#include "core/threads.h"

namespace qwen_image {

// Where things of the input are in the output, if the input is first resized to the output's size: a point at
// (x, y) from the centre is at (x · (1 + scale_x / 100) + shift_x, y · (1 + scale_y / 100) + shift_y).
struct Alignment {
  // False if too little of the input is in the output to tell (a picture drawn anew), or if it has no edges
  // that would show a shift. The numbers below mean nothing then.
  bool measurable = false;
  double shift_x = 0, shift_y = 0;  // pixels of the output; positive: to the right, down
  double scale_x = 0, scale_y = 0;  // per cent; positive: larger in the output
  double confidence = 0;            // correlation of the edges after all this is undone, 0 … 1
  // How far two halves of the picture, measured alone, disagree about where things went: pixels of the
  // output.
  double uncertainty = 0;
};

Alignment MeasureAlignment(const RgbImage& input, const RgbImage& output, ThreadPool& pool);

}  // namespace qwen_image
