// MLX as a device: the copies of a component's weights that it holds, and what is compiled for them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "mlx/layers.h"
#include "ops/interface.h"

namespace qwen_image::on_mlx {

struct Placement {
  mx::Device device;
  bool keep_weights = false;  // on the device from picture to picture, not from use to use
  // Whether parts of a pass are compiled into fewer kernels. MLX compiles for a CPU by calling a C++ compiler
  // when it runs, so that is for GPUs, and for the tests.
  bool compile = false;
};

class MlxBackend : public Backend {
 public:
  explicit MlxBackend(const Placement& placement) : placement_(placement) {}

  std::unique_ptr<Ops> Start(const Compute& compute) override;
  bool copies_weights() const override { return true; }
  void Release() override;

  const Placement& placement() const { return placement_; }
  // The device's copy, made when it is first asked for.
  Linear& Get(const qwen_image::Linear& layer);
  array& Get(const std::vector<float>& vector);  // float32

  using Compiled = std::function<std::vector<array>(const std::vector<array>&)>;
  Compiled& compiled(const std::string& form) { return compiled_[form]; }
  size_t compiled_forms() const { return compiled_.size(); }  // parts of one form share a function

 private:
  const Placement placement_;
  // By the address of the component's own table of weights.
  std::unordered_map<const qwen_image::Linear*, Linear> layers_;
  std::unordered_map<const std::vector<float>*, array> vectors_;
  std::map<std::string, Compiled> compiled_;
};

}  // namespace qwen_image::on_mlx
