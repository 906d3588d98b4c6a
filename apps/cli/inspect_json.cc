#include <fmt/format.h>

#include <cmath>

#include "inspect_report.h"

namespace qwen_image::cli {
namespace {

Json NumberOrText(double value) {  // JSON has no NaN and no infinity
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
}

const char* Word(Severity severity) {
  return severity == Severity::kBroken ? "broken" : severity == Severity::kWarning ? "warning" : "note";
}

Json ToJson(const std::vector<Finding>& findings) {
  Json list = Json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"severity", Word(finding.severity)},
                    {"kind", finding.kind},
                    {"subject", finding.subject},
                    {"text", finding.text},
                    {"tensors", finding.tensors}});
  }
  return list;
}

Json ToJson(const inspect::InspectedTensor& tensor) {
  Json json = {{"name", tensor.name},
               {"file", tensor.file->path().filename().string()},
               {"shape", tensor.shape},
               {"dtype", NameOf(tensor.stored->dtype)},
               {"format", tensor.format},
               {"bytes", tensor.bytes()},
               {"parameters", tensor.parameters()}};
  if (!tensor.part_of.empty()) json["part_of"] = tensor.part_of;
  if (tensor.quantized()) {
    json["stored_shape"] = tensor.stored->shape;
    json["parts"] = tensor.parts;
    json["possible_quantizations"] = Json::array();
    for (const MlxQuantization& q : tensor.weight->possible()) {
      json["possible_quantizations"].push_back({{"bits", q.bits}, {"group_size", q.group_size}});
    }
  }
  if (!tensor.chunks.empty())
    json["checksum"] = fmt::format("{:016x}{:016x}", tensor.checksum.high, tensor.checksum.low);
  if (tensor.statistics) {
    const inspect::ValueStatistics& s = *tensor.statistics;
    json["nan"] = s.nan;
    json["inf"] = s.inf;
    json["zero_share"] = s.zero_share();
    if (s.finite() > 0) {
      json["mean"] = s.mean;
      json["std"] = s.std();
      json["min"] = s.min;
      json["max"] = s.max;
    }
  }
  return json;
}

}  // namespace

Json InspectionJson(const inspect::Inspection& inspection) {
  Json components = Json::array();
  for (const inspect::InspectedComponent& component : inspection.components) {
    Json tensors = Json::array();
    for (const inspect::InspectedTensor& tensor : component.tensors) tensors.push_back(ToJson(tensor));
    components.push_back({{"name", component.name},
                          {"path", component.path.string()},
                          {"parameters", component.parameters()},
                          {"bytes", component.bytes()},
                          {"findings", ToJson(component.findings)},
                          {"tensors", std::move(tensors)}});
  }
  Json json = {
      {"path", inspection.path.string()}, {"broken", inspection.broken()}, {"components", components}};
  if (inspection.second_reading) {
    json["read_twice"] = {{"bytes", inspection.second_reading->bytes},
                          {"total_bytes", inspection.second_reading->total_bytes},
                          {"differences", inspection.second_reading->differences}};
  }
  return json;
}

Json WeightDiffJson(const inspect::WeightDiff& diff, double tolerance) {
  Json components = Json::array();
  for (const inspect::ComponentDiff& component : diff.components) {
    Json tensors = Json::array(), roles = Json::array();
    for (const inspect::TensorDifference& d : component.tensors) {
      Json json = {{"name", d.name},         {"shape_a", d.shape_a},   {"shape_b", d.shape_b},
                   {"format_a", d.format_a}, {"format_b", d.format_b}, {"identical", d.identical()}};
      if (!d.problem.empty()) {
        json["problem"] = d.problem;
      } else {
        json["relative_error"] = NumberOrText(d.relative());
        json["max_abs"] = NumberOrText(d.max_abs);
        json["nmse"] = NumberOrText(d.nmse);
        json["cosine"] = NumberOrText(d.cosine);
        json["worst"] = {{"index", d.worst}, {"a", NumberOrText(d.worst_a)}, {"b", NumberOrText(d.worst_b)}};
      }
      tensors.push_back(std::move(json));
    }
    for (const inspect::RoleDifference& role : component.Roles()) {
      roles.push_back({{"role", role.name},
                       {"tensors", role.tensors},
                       {"mean_relative_error", NumberOrText(role.mean_relative)},
                       {"max_relative_error", NumberOrText(role.max_relative)},
                       {"max_abs", NumberOrText(role.max_abs)}});
    }
    components.push_back({{"a", component.name_a},
                          {"b", component.name_b},
                          {"only_in_a", component.only_in_a},
                          {"only_in_b", component.only_in_b},
                          {"identical", component.identical()},
                          {"tensors", std::move(tensors)},
                          {"roles", std::move(roles)}});
  }
  Json configs = Json::array();
  for (const inspect::ConfigDifference& config : diff.configs)
    configs.push_back({{"file", config.file}, {"difference", config.text}});
  return {{"a", diff.path_a.string()},
          {"b", diff.path_b.string()},
          {"equal", diff.Equal(tolerance)},
          {"tolerance", tolerance},
          {"components_only_in_a", diff.components_only_in_a},
          {"components_only_in_b", diff.components_only_in_b},
          {"configs", std::move(configs)},
          {"broken", ToJson(diff.broken)},
          {"components", std::move(components)}};
}

}  // namespace qwen_image::cli
