// The source of a conversion: its components, checked against their models, and the files around them.
#pragma once

#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "families/qwen_image/text_encoder.h"
#include "families/qwen_image/transformer.h"
#include "families/qwen_image/vae.h"
#include "files/json.h"
#include "weights/component.h"
#include "weights/convert/conversion_plan.h"
#include "weights/model_parts.h"
#include "weights/variant.h"

namespace qwen_image {

// Of a whole model, or what is there if single components will do. Throws Error kBadInput for what is missing
// or cannot be copied.
ModelParts FindSourceParts(const ModelFiles& source, const std::vector<Component>& only);

// A component whose names and shapes are all those of its model, which also settles how packed tensors are
// to be read. Throws Error kBadInput.
class BoundComponent {
 public:
  BoundComponent(const ModelParts& parts, Component component);

  const WeightStore& store() const;
  // The source's config.json, or what it would be; with what `plan` changes about it.
  Json ConfigJson(const ComponentPlan& plan) const;

  template <typename Model>
  const Model& as() const {
    return std::get<Model>(model_);
  }

 private:
  std::variant<Transformer, TextEncoder, Vae> model_;
};

// Path, size and time of a file, or of every file with weights: what tells an unchanged source from a changed
// one.
Json FileJson(const std::filesystem::path& path);
Json FilesJson(const WeightStore& store);

// Everything of a model but its weights: tokenizer, scheduler, defaults, index. Throws Error kBadInput or
// kCannotWrite.
void CopyOtherFiles(const ModelParts& parts, Variant variant, const std::filesystem::path& to);

}  // namespace qwen_image
