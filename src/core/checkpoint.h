// Checkpoints: the named tensors of a run. `tap("name", data, shape)` is always compiled in and costs one
// null test without a listener. The view is mutable, so that saving, comparing and substituting are one
// hook.
//
// Names are `<component>/<diffusers module path>`; what no module returns has a suffix after ':'.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "core/tensor.h"

namespace qwen_image {

struct CheckpointView {
  Shape shape;                                // torch's order
  std::variant<float*, const int64_t*> data;  // floats may be overwritten by the listener
};

class CheckpointSink {
 public:
  virtual ~CheckpointSink() = default;
  virtual bool Wants(std::string_view name) const = 0;
  virtual void OnCheckpoint(const std::string& name, const CheckpointView& view) = 0;
};

// A sink and the prefix of the names below it. Copies are cheap when the tap is off.
class Tap {
 public:
  Tap() = default;
  explicit Tap(CheckpointSink* sink, std::string prefix = {}) : sink_(sink), prefix_(std::move(prefix)) {}

  explicit operator bool() const { return sink_ != nullptr; }

  // The tap for what lies below `part` (and `index`, and `rest`): Under("layers.", 3, ".") taps "layers.3.…".
  Tap Under(std::string_view part) const { return sink_ ? Tap(sink_, prefix_ + std::string(part)) : Tap(); }
  Tap Under(std::string_view part, int64_t index, std::string_view rest) const {
    return sink_ ? Tap(sink_, prefix_ + std::string(part) + std::to_string(index) + std::string(rest))
                 : Tap();
  }

  bool Wants(std::string_view name) const { return sink_ && sink_->Wants(prefix_ + std::string(name)); }

  void operator()(std::string_view name, float* data, const Shape& shape) const {
    if (sink_) Call(name, {shape, data});
  }
  void operator()(std::string_view name, const int64_t* data, const Shape& shape) const {
    if (sink_) Call(name, {shape, data});
  }
  void operator()(std::string_view name, Tensor& tensor) const {
    if (sink_) Call(name, {tensor.shape(), tensor.data()});
  }

 private:
  void Call(std::string_view name, const CheckpointView& view) const {
    const std::string full = prefix_ + std::string(name);
    if (sink_->Wants(full)) sink_->OnCheckpoint(full, view);
  }

  CheckpointSink* sink_ = nullptr;
  std::string prefix_;
};

}  // namespace qwen_image
