// What `selftest` found, for people and for tools.
#pragma once

#include <string>
#include <vector>

#include "device/available.h"
#include "parity/compare/result.h"
#include "text_style.h"

namespace qwen_image::cli {

// All tensors of a stage, each computed from the CPU's inputs.
struct SelftestStage {
  std::string name;
  size_t tensors = 0, failed = 0;
  double max_abs = 0;               // the largest error of all
  compare::TensorComparison worst;  // the one nearest to its limit, or the first that is beyond it
};

// A picture that the device drew by itself from beginning to end.
struct SelftestPicture {
  std::string name;
  compare::ImageComparison difference;  // from the CPU's
  double cpu_seconds = 0, device_seconds = 0;
};

struct SelftestResult {
  device::DeviceInfo device;
  std::string model;
  Precision precision = Precision::kExact;
  std::vector<SelftestStage> stages;
  std::vector<SelftestPicture> pictures;
  std::vector<std::string> missing;  // tensors that only one of the two computed
  std::string weights_note;
  Json weights;

  // Puts the tensors of a comparison to their stages and judges them.
  void Add(const compare::Comparison& comparison);
  void Add(SelftestPicture picture);  // judges it
  bool passed() const;
};

std::string SelftestText(const SelftestResult& result, const TextStyle& style);
Json SelftestJson(const SelftestResult& result);

}  // namespace qwen_image::cli
