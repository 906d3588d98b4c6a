#include "weights/variant.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "core/fail.h"
#include "files/text.h"

namespace qwen_image {
namespace {

Variant TellFromFiles(const ModelParts& parts, bool zero_cond_t) {
  if (zero_cond_t) return {"edit-2511", "the transformer's zero_cond_t"};
  // The index speaks for the folder's own transformer only.
  const bool own = parts.transformer.parent_path() == parts.root;
  const std::string pipeline = own ? parts.pipeline_class : "";
  if (pipeline.empty())
    return {"",
            "no model_index.json speaks for this transformer, and the tensors of Qwen-Image, Edit and "
            "Edit-2509 are alike"};
  const std::string how = "model_index.json: " + pipeline;
  if (pipeline == "QwenImageEditPlusPipeline") return {"edit-2509", how};
  if (pipeline.starts_with("QwenImageEdit")) return {"edit", how};
  return {"qwen-image", how};
}

}  // namespace

Variant RecognizeVariant(const ModelParts& parts, bool zero_cond_t, const std::string& asked,
                         const std::vector<std::string>& pipelines) {
  if (!asked.empty() && std::find(kVariantNames.begin(), kVariantNames.end(), asked) == kVariantNames.end())
    Fail(ErrorKind::kUsage, "{} is not a variant; there are {}", Quoted(asked),
         fmt::join(kVariantNames, ", "));
  Variant found = TellFromFiles(parts, zero_cond_t);
  const auto serves = [&](const std::string& name) {
    return std::find(pipelines.begin(), pipelines.end(), name) != pipelines.end();
  };
  if (!asked.empty() && asked != found.name) {
    // Only zero_cond_t tells Edit-2511 from Edit-2509, and some copies have lost it.
    const bool may_be =
        found.name.empty() || serves(asked) || (found.name == "edit-2509" && asked == "edit-2511");
    if (!may_be) {
      Fail(ErrorKind::kUsage, "the variant {} contradicts the model's files, which say {} ({})", asked,
           found.name, found.how);
    }
    found = {asked, "the variant that was given"};
  }
  if (found.name.starts_with("edit")) {
    found.edit = found.name;
  } else if (asked.empty()) {
    for (const std::string& name : pipelines) {
      if (name.starts_with("edit")) found.edit = name;
    }
  }
  return found;
}

}  // namespace qwen_image
