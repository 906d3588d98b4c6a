// Planes of floats for the measurement of alignment, and phase correlation between two of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "qwen_image/image.h"

namespace qwen_image::image {

struct Plane {
  int64_t width = 0;
  int64_t height = 0;
  std::vector<float> values;  // [height, width]

  float at(int64_t x, int64_t y) const { return values[static_cast<size_t>(y * width + x)]; }
  float& at(int64_t x, int64_t y) { return values[static_cast<size_t>(y * width + x)]; }
};

Plane MakePlane(int64_t width, int64_t height);
Plane Blurred(const Plane& plane, double sigma);       // Gaussian; edges repeat
float Sample(const Plane& plane, double x, double y);  // bilinear; edges repeat

// How steep the picture is in any of its colours, between 0 and 1. Signs and sizes of steps are the first
// things that an edit changes: a recoloured shape keeps its outline.
Plane EdgesOf(const Image& image);

struct PhasePeak {
  double x = 0, y = 0;  // how far things of `a` have moved in `b`
  double height = 0;    // 1: nothing but a shift
};

// Both planes have the same size.
PhasePeak PhaseCorrelation(const Plane& a, const Plane& b);

}  // namespace qwen_image::image
