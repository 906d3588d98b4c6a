// A model as a pipeline opened it. Nothing in it changes afterwards.
#pragma once

#include <memory>
#include <string>

#include "draw/settings.h"
#include "families/model.h"
#include "qwen_image/qwen_image.h"
#include "weights/model_parts.h"

namespace qwen_image::draw {

struct OpenedModel {
  OpenedModel(const ModelParts& parts, const ModelFiles& files, const PipelineOptions& options);

  Settings Resolve(const GenerateRequest& request) const { return ResolveSettings(request, model->traits()); }
  const Geometry& geometry() const { return model->traits().geometry; }

  std::string name;  // for records
  bool check_memory;
  Precision precision;
  Device device;                       // never kAuto
  std::shared_ptr<Machines> machines;  // null: there is only this one
  std::unique_ptr<const Model> model;
};

// The model of a pipeline, for the library's own rooms and its programs.
const OpenedModel& ModelOf(const Pipeline& pipeline);

}  // namespace qwen_image::draw
