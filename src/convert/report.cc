#include "convert/report.h"

#include <algorithm>
#include <map>

#include "core/fail.h"

namespace qwen_image::convert {
namespace {

double BitsPerWeight(int64_t bytes, int64_t count) {
  return count > 0 ? 8.0 * static_cast<double>(bytes) / static_cast<double>(count) : 0;
}

void AddTo(RoleTotal& total, const ConvertedTensor& tensor) {
  ++total.tensors;
  total.bytes += tensor.bytes;
  total.error.Add(tensor.error);
}

Json TotalJson(const RoleTotal& total) {
  return {{"tensors", total.tensors},
          {"parameters", total.error.count},
          {"bytes", total.bytes},
          {"bits_per_weight", BitsPerWeight(total.bytes, total.error.count)},
          {"max_abs_error", total.error.max_abs},
          {"relative_rmse", total.error.relative_rmse()}};
}

}  // namespace

double ConvertedTensor::bits_per_weight() const { return BitsPerWeight(bytes, error.count); }

ConvertedTensor Converted(Component component, const TensorPlan& plan, const TensorError& error) {
  return {.component = std::string(NameOf(component)),
          .name = plan.name,
          .role = std::string(plan.choice.role),
          .shape = plan.shape,
          .from = plan.source,
          .to = plan.choice.encoding.Name(),
          .note = plan.choice.note,
          .bytes = plan.bytes(),
          .error = error};
}

// The sums are there so that totals of a continued conversion are those of an uninterrupted one, bit for bit.
Json ConvertedTensorJson(const ConvertedTensor& tensor) {
  Json json = {{"component", tensor.component},
               {"name", tensor.name},
               {"role", tensor.role},
               {"shape", tensor.shape},
               {"from", tensor.from},
               {"to", tensor.to},
               {"bytes", tensor.bytes},
               {"bits_per_weight", tensor.bits_per_weight()},
               {"parameters", tensor.error.count},
               {"max_abs_error", tensor.error.max_abs},
               {"relative_rmse", tensor.error.relative_rmse()},
               {"squared_error", tensor.error.squared_error},
               {"squared_source", tensor.error.squared_source}};
  if (!tensor.note.empty()) json["note"] = tensor.note;
  return json;
}

ConvertedTensor ConvertedTensorFromJson(const Json& json) {
  try {
    return {.component = json.at("component"),
            .name = json.at("name"),
            .role = json.at("role"),
            .shape = json.at("shape").get<Shape>(),
            .from = json.at("from"),
            .to = json.at("to"),
            .note = json.value("note", ""),
            .bytes = json.at("bytes"),
            .error = {.count = json.at("parameters"),
                      .max_abs = json.at("max_abs_error"),
                      .squared_error = json.at("squared_error"),
                      .squared_source = json.at("squared_source")}};
  } catch (const Json::exception&) {
    Fail(ErrorKind::kBadInput, "a note about a converted tensor cannot be read");
  }
}

std::vector<RoleTotal> TotalsByRole(std::span<const ConvertedTensor> tensors) {
  std::map<std::pair<std::string, std::string>, RoleTotal> totals;
  for (const ConvertedTensor& tensor : tensors) {
    RoleTotal& total = totals[{tensor.component, tensor.role}];
    total.component = tensor.component;
    total.role = tensor.role;
    AddTo(total, tensor);
  }
  std::vector<RoleTotal> list;
  for (auto& [key, total] : totals) list.push_back(std::move(total));
  return list;
}

RoleTotal TotalOf(std::span<const ConvertedTensor> tensors) {
  RoleTotal total;
  for (const ConvertedTensor& tensor : tensors) AddTo(total, tensor);
  return total;
}

std::vector<ConvertedTensor> WorstTensors(std::span<const ConvertedTensor> tensors, size_t count) {
  std::vector<ConvertedTensor> worst;
  std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(worst),
               [](const ConvertedTensor& tensor) { return tensor.error.squared_error > 0; });
  std::stable_sort(worst.begin(), worst.end(), [](const ConvertedTensor& a, const ConvertedTensor& b) {
    return a.error.relative_rmse() > b.error.relative_rmse();
  });
  worst.resize(std::min(worst.size(), count));
  return worst;
}

Json ConversionJson(std::span<const ConvertedTensor> tensors, const std::vector<std::string>& notes) {
  Json list = Json::array(), roles = Json::array();
  for (const ConvertedTensor& tensor : tensors) list.push_back(ConvertedTensorJson(tensor));
  for (const RoleTotal& total : TotalsByRole(tensors)) {
    Json json = TotalJson(total);
    json["component"] = total.component;
    json["role"] = total.role;
    roles.push_back(std::move(json));
  }
  return {{"total", TotalJson(TotalOf(tensors))}, {"roles", roles}, {"tensors", list}, {"notes", notes}};
}

}  // namespace qwen_image::convert
