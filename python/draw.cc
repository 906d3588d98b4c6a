#include "draw.h"

#include <algorithm>
#include <utility>

namespace py = pybind11;

namespace qwen_image {
namespace {

// Only the main thread sees signals; on others this does nothing.
void RaiseSignals() {
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

}  // namespace

RgbImage RgbOf(const Bytes& pixels) {
  return {pixels.shape(1), pixels.shape(0), {pixels.data(), pixels.data() + pixels.size()}};
}

GreyImage GreyOf(const Bytes& pixels) {
  return {pixels.shape(1), pixels.shape(0), {pixels.data(), pixels.data() + pixels.size()}};
}

Bytes ArrayOf(const RgbImage& image) {
  Bytes array({image.height, image.width, int64_t{3}});
  std::copy(image.pixels.begin(), image.pixels.end(), array.mutable_data());
  return array;
}

Picture Draw(const Pipeline& pipeline, const GenerateRequest& request, const py::object& on_progress,
             const py::object& on_preview) {
  // Exceptions of Python pass through Generate as any other would: it holds nothing that needs more than
  // unwinding.
  GenerateHooks hooks;
  hooks.on_progress = [&](const Progress& progress) {
    const py::gil_scoped_acquire lock;
    RaiseSignals();
    if (!on_progress.is_none()) on_progress(progress);
  };
  if (!on_preview.is_none()) {
    hooks.on_preview = [&](const RgbImage& image) {
      const py::gil_scoped_acquire lock;
      on_preview(ArrayOf(image));
    };
  }
  const py::gil_scoped_release unlocked;
  return pipeline.Generate(request, hooks);
}

}  // namespace qwen_image
