#include "convert/plan.h"

#include <algorithm>

#include "core/fail.h"
#include "files/text.h"
#include "weights/files.h"

namespace qwen_image::convert {
namespace {

// The names that diffusers and transformers look for.
std::string_view StemOf(Component component) {
  return component == Component::kTextEncoder ? "model" : "diffusion_pytorch_model";
}

bool IsCopied(const WeightTensor& tensor, EncodingChoice& choice) {
  const Encoding& wanted = choice.encoding;
  if (!wanted.quantized() || tensor.Format() != wanted.Name() || tensor.parts().size() != 2) return false;
  const DType dtype = tensor.parts()[0].tensor->dtype;
  if (!IsComputeType(dtype) || tensor.parts()[1].tensor->dtype != dtype) return false;
  choice.encoding.dtype = dtype;
  return true;
}

// Numbers of 4 bytes first, pairs of scales and biases behind their words, numbers of 2 bytes last: so every
// tensor begins at a multiple of its element, which some readers need.
int Place(const TensorPlan& tensor) {
  const Encoding& encoding = tensor.choice.encoding;
  return encoding.quantized() ? 1 : encoding.dtype == DType::kF32 ? 0 : 2;
}

void NameShards(ComponentPlan& plan) {
  const size_t count = plan.shards.size();
  for (size_t i = 0; i < count; ++i) {
    plan.shards[i].file =
        count == 1 ? fmt::format("{}{}", StemOf(plan.component), kWeightsEnding)
                   : fmt::format("{}-{:05}-of-{:05}{}", StemOf(plan.component), i + 1, count, kWeightsEnding);
  }
}

// A tensor that no model binds has the shape that its file gives it, which GGUF may have folded.
void FitUnbound(const WeightStore& store, const std::string& name, WeightTensor& tensor) {
  const auto rows_of = [&](const std::string& other) { return store.Rows(other); };
  const Shape shape = store.family().unbound_shape(name, ElementCount(tensor.shape()), rows_of);
  if (!shape.empty()) tensor.FitTo(shape);
}

}  // namespace

int64_t TensorPlan::bytes() const {
  int64_t total = 0;
  for (const PlannedTensor& stored : Stored()) total += stored.bytes();
  return total;
}

std::vector<PlannedTensor> ShardPlan::Stored() const {
  std::vector<PlannedTensor> stored;
  for (const TensorPlan& tensor : tensors) {
    for (PlannedTensor& part : tensor.Stored()) stored.push_back(std::move(part));
  }
  return stored;
}

SafetensorsWriter::Metadata ShardPlan::Metadata() const {
  const bool quantized = std::any_of(tensors.begin(), tensors.end(),
                                     [](const TensorPlan& t) { return t.choice.encoding.quantized(); });
  return {{"format", quantized ? "mlx" : "pt"}};
}

std::string ComponentPlan::IndexName() const {
  return shards.size() == 1 ? "" : fmt::format("{}{}", StemOf(component), kShardIndexEnding);
}

Json ComponentPlan::Index() const {
  Json weight_map = Json::object();
  int64_t total = 0;
  for (const ShardPlan& shard : shards) {
    for (const PlannedTensor& stored : shard.Stored()) {
      weight_map[stored.name] = shard.file;
      total += stored.bytes();
    }
  }
  return {{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}};
}

Json ComponentPlan::Quantization() const {
  std::map<std::pair<int, int>, int> counts;
  for (const ShardPlan& shard : shards) {
    for (const TensorPlan& tensor : shard.tensors) {
      const MlxQuantization mlx = tensor.choice.encoding.mlx;
      if (mlx.bits != 0) ++counts[{mlx.bits, mlx.group_size}];
    }
  }
  if (counts.empty()) return nullptr;
  const auto [usual, count] = *std::max_element(
      counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto describe = [](std::pair<int, int> mlx) {
    return Json{{"bits", mlx.first}, {"group_size", mlx.second}};
  };
  Json note = describe(usual);
  for (const ShardPlan& shard : shards) {
    for (const TensorPlan& tensor : shard.tensors) {
      const std::pair<int, int> mlx = {tensor.choice.encoding.mlx.bits,
                                       tensor.choice.encoding.mlx.group_size};
      if (mlx.first != 0 && mlx != usual) note[tensor.name.substr(0, tensor.name.rfind('.'))] = describe(mlx);
    }
  }
  return note;
}

WeightTensor ReadableTensor(const WeightStore& store, const std::string& name) {
  const WeightTensor* found = store.Find(name);
  if (!found) Fail(ErrorKind::kInternal, "{} has no tensor {}", store.path().string(), Quoted(name));
  WeightTensor tensor = *found;
  tensor.ChooseQuantization();
  FitUnbound(store, name, tensor);
  const std::string problem = !tensor.problem().empty() ? tensor.problem()
                              : tensor.Format() == "packed"
                                  ? "is packed in a way that neither its shape nor its values tell"
                                  : "";
  if (!problem.empty()) Fail(ErrorKind::kBadInput, "{}: {} {}", store.path().string(), Quoted(name), problem);
  return tensor;
}

ComponentPlan PlanComponent(Component component, const WeightStore& store, EncodingRules& rules,
                            int64_t max_shard_bytes) {
  ComponentPlan plan{.component = component, .shards = {}, .source_bytes = 0};
  int64_t shard_bytes = 0;
  for (const auto& [name, unsettled] : store.tensors()) {
    const WeightTensor tensor = ReadableTensor(store, name);
    TensorPlan planned{.name = name,
                       .source = tensor.Format(),
                       .shape = tensor.shape(),
                       .choice = rules.Choose(component, name, tensor)};
    planned.copied = IsCopied(tensor, planned.choice);
    const int64_t bytes = planned.bytes();
    if (plan.shards.empty() || shard_bytes + bytes > max_shard_bytes) {
      plan.shards.emplace_back();
      shard_bytes = 0;
    }
    shard_bytes += bytes;
    plan.source_bytes += tensor.bytes();
    plan.shards.back().tensors.push_back(std::move(planned));
  }
  for (ShardPlan& shard : plan.shards) {
    std::stable_sort(shard.tensors.begin(), shard.tensors.end(),
                     [](const TensorPlan& a, const TensorPlan& b) { return Place(a) < Place(b); });
  }
  NameShards(plan);
  return plan;
}

}  // namespace qwen_image::convert
