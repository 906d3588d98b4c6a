// The source of a conversion: its components, checked against their models, and the files around them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "convert/plan.h"
#include "families/component.h"
#include "families/family.h"
#include "files/json.h"
#include "weights/model_parts.h"

namespace qwen_image::convert {

// Of a whole model, or what is there if single components will do. Throws Error kBadInput for what is missing
// or cannot be copied.
ModelParts FindSourceParts(const ModelFiles& source, const std::vector<Component>& only);

// The source's config.json, or what it would be; with what `plan` changes about it.
Json ConfigJson(const ModelPart& part, const ComponentPlan& plan);

// Path, size and time of a file, or of every file with weights: what tells an unchanged source from a changed
// one.
Json FileJson(const std::filesystem::path& path);
Json FilesJson(const WeightStore& store);

// Everything of a model but its weights: tokenizer, scheduler, defaults, index. Throws Error kBadInput or
// kCannotWrite.
void CopyOtherFiles(const ModelParts& parts, const Family& family, const VariantInfo& variant,
                    const std::filesystem::path& to);

}  // namespace qwen_image::convert
