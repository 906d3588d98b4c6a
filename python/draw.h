// Drawing for Python: without its lock, but with its callbacks and signals.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include "qwen_image/qwen_image.h"

namespace qwen_image {

using Bytes = pybind11::array_t<uint8_t, pybind11::array::c_style>;
using Floats = pybind11::array_t<float, pybind11::array::c_style>;

// Copies [height, width, 3 or 4] or [height, width]; the caller has checked the shape.
Image ImageOf(const Bytes& pixels);
GreyImage GreyOf(const Bytes& pixels);
// A copy, [height, width, channels].
Bytes ArrayOf(const Image& image);

// Other Python threads run meanwhile. Ctrl-C stops it with KeyboardInterrupt, and what a callback raises
// stops it and comes out unchanged. The callbacks may be None.
Picture Draw(const Pipeline& pipeline, const GenerateRequest& request, const pybind11::object& on_progress,
             const pybind11::object& on_preview);

// Stops the drawings of all threads, for the end of Python; returns when they have stopped.
void StopDrawings();

}  // namespace qwen_image
