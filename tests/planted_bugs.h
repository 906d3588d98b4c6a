// The microscope's self-test: wrong builds. Each is the engine with one operation done wrong: when a run
// comes to a certain checkpoint, its tensor is replaced by what the bug would make of it, and the engine goes
// on from there, so that the error spreads as in a real port. The first divergence must be that very
// checkpoint, and the first hint must name the bug.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "core/checkpoint.h"
#include "files/json.h"
#include "files/testing.h"
#include "parity/compare/runs.h"
#include "parity/hints/testing.h"
#include "parity/record/tensor_set.h"
#include "qwen_image/qwen_image.h"

namespace qwen_image {

using hints::HintTensor;
using Tensors = hints::NamedTensors;
// `earlier`: what the same run had at the checkpoints before. May change values and shape.
using Bug = std::function<void(const Tensors& earlier, HintTensor& tensor)>;
using Bugs = std::map<std::string, Bug>;  // by checkpoint

// Puts the bugs into a run, and saves it.
class WrongBuild : public CheckpointSink {
 public:
  explicit WrongBuild(Bugs bugs) : bugs_(std::move(bugs)) {}

  bool Wants(std::string_view) const override { return true; }
  void OnCheckpoint(const std::string& name, const CheckpointView& view) override {
    const auto count = static_cast<size_t>(ElementCount(view.shape));
    if (const auto* ids = std::get_if<const int64_t*>(&view.data)) {
      Save(name, "I64", view.shape, *ids, count);
      earlier_[name] = {view.shape, {*ids, *ids + count}};
      return;
    }
    float* data = std::get<float*>(view.data);
    HintTensor tensor{view.shape, {data, data + count}};
    if (const auto bug = bugs_.find(name); bug != bugs_.end()) {
      bug->second(earlier_, tensor);
      if (tensor.values.size() == count) std::copy(tensor.values.begin(), tensor.values.end(), data);
    }
    Save(name, "F32", tensor.shape, tensor.values.data(), tensor.values.size());
    earlier_[name] = std::move(tensor);
  }

  // As a run: manifest.json and all tensors in one file.
  void Finish(const TempFolder& folder) const {
    folder.Write("tensors.safetensors", SafetensorsBytes(header_.dump(), data_));
    folder.Write("manifest.json", Json{{"checkpoints", checkpoints_}}.dump());
  }

 private:
  template <typename T>
  void Save(const std::string& name, const char* dtype, const Shape& shape, const T* values, size_t count) {
    const size_t begin = data_.size();
    data_.append(reinterpret_cast<const char*>(values), count * sizeof(T));
    header_[name] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {begin, data_.size()}}};
    checkpoints_.push_back({{"name", name}, {"file", "tensors.safetensors"}});
  }

  Bugs bugs_;
  Tensors earlier_;
  Json header_ = Json::object(), checkpoints_ = Json::array();
  std::string data_;
};

inline void RunInto(const TempFolder& folder, const Pipeline& pipeline, const GenerateRequest& request,
                    Bugs bugs) {
  WrongBuild build(std::move(bugs));
  try {
    pipeline.Generate(request, {.on_progress = {}, .cancel = nullptr, .checkpoints = &build});
  } catch (const Error& error) {  // a picture of NaN is refused, after its last checkpoint
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput) << error.message();
  }
  build.Finish(folder);
}

struct PlantedBug {
  std::string label, checkpoint, kind;
  Bug bug;
};

inline void PrintTo(const PlantedBug& b, std::ostream* out) { *out << b.label; }
inline std::string LabelOf(const testing::TestParamInfo<PlantedBug>& info) { return info.param.label; }

inline void ExpectFound(const record::TensorSet& ref, const record::TensorSet& run,
                        const std::string& checkpoint, const std::string& kind) {
  const compare::Comparison comparison = compare::CompareSets(ref, run, {});
  const compare::TensorComparison* first = comparison.first_divergence();
  ASSERT_TRUE(first);
  ASSERT_EQ(first->name, checkpoint);
  const std::vector<compare::Hint> hints = hints::FindHints(*first, hints::MakeHintContext(ref, run));
  ASSERT_FALSE(hints.empty());
  EXPECT_EQ(hints[0].kind, kind) << hints[0].text;
}

// ── Bugs of any model ──

inline size_t At(int64_t i) { return static_cast<size_t>(i); }

// tensor[i] = value(old tensor, i)
inline Bug Each(const std::function<double(const HintTensor& old, int64_t i)>& value) {
  return [value](const Tensors&, HintTensor& tensor) {
    const HintTensor old = tensor;
    for (size_t i = 0; i < old.values.size(); ++i)
      tensor.values[i] = static_cast<float>(value(old, static_cast<int64_t>(i)));
  };
}

inline Bug TakeFrom(const std::function<int64_t(const HintTensor& old, int64_t i)>& from) {
  return Each([from](const HintTensor& old, int64_t i) { return old.values[At(from(old, i))]; });
}

inline Bug Use(const std::string& other) {
  return [other](const Tensors& earlier, HintTensor& tensor) { tensor.values = earlier.at(other).values; };
}

}  // namespace qwen_image
