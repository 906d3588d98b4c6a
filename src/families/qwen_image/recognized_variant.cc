#include "families/qwen_image/recognized_variant.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "core/fail.h"
#include "files/text.h"

namespace qwen_image {
namespace {

RecognizedVariant TellFromFiles(const ModelParts& parts, bool zero_cond_t) {
  if (zero_cond_t) return {Variant::kEdit2511, "the transformer's zero_cond_t"};
  // The index speaks for the folder's own transformer only.
  const bool own = parts.transformer.parent_path() == parts.root;
  const std::string pipeline = own ? parts.pipeline_class : "";
  if (pipeline.empty())
    return {Variant::kUnknown,
            "no model_index.json speaks for this transformer, and the tensors of Qwen-Image, Edit and "
            "Edit-2509 are alike"};
  return {VariantOfPipelineClass(pipeline), "model_index.json: " + pipeline};
}

}  // namespace

RecognizedVariant RecognizeVariant(const ModelParts& parts, bool zero_cond_t, const std::string& asked,
                                   const std::vector<std::string>& pipelines) {
  const std::optional<Variant> wanted = ParseVariant(asked);
  if (!asked.empty() && !wanted)
    Fail(ErrorKind::kUsage, "{} is not a variant; there are {}", Quoted(asked),
         fmt::join(VariantNames(), ", "));
  RecognizedVariant found = TellFromFiles(parts, zero_cond_t);
  if (wanted && *wanted != found.variant) {
    // Only zero_cond_t tells Edit-2511 from Edit-2509, and some copies have lost it.
    const bool may_be = found.variant == Variant::kUnknown ||
                        std::find(pipelines.begin(), pipelines.end(), asked) != pipelines.end() ||
                        (found.variant == Variant::kEdit2509 && *wanted == Variant::kEdit2511);
    if (!may_be) {
      Fail(ErrorKind::kUsage, "the variant {} contradicts the model's files, which say {} ({})", asked,
           NameOf(found.variant), found.how);
    }
    found = {*wanted, "the variant that was given"};
  }
  if (Edits(found.variant)) {
    found.edit = found.variant;
  } else if (!wanted) {
    for (const std::string& name : pipelines) {
      const Variant variant = ParseVariant(name).value_or(Variant::kUnknown);
      if (Edits(variant)) found.edit = variant;
    }
  }
  return found;
}

}  // namespace qwen_image
