#include "families/qwen_image_21/variant_of_files.h"

#include <fmt/ranges.h>

#include "core/fail.h"
#include "files/json.h"
#include "files/text.h"

namespace qwen_image::qwen_image_21 {
namespace {

// Of a model_index.json; empty where it has none.
std::vector<double> SampleSigmas(const std::filesystem::path& path) {
  const Json index = ReadJsonFile(path, size_t{1} << 20);
  const auto found = index.is_object() ? index.find("sample_sigmas") : index.end();
  if (!index.is_object() || found == index.end() || found->is_null()) return {};
  std::vector<double> sigmas;
  if (found->is_array()) {
    for (const Json& value : *found) {
      if (!value.is_number()) break;
      sigmas.push_back(value.get<double>());
    }
  }
  const std::string why = !found->is_array() || sigmas.size() != found->size()
                              ? std::string("it is not a list of numbers")
                              : WhyNotSigmas(sigmas);
  if (!why.empty()) Fail(ErrorKind::kBadInput, "{}: sample_sigmas: {}", path.string(), why);
  return sigmas;
}

RecognizedVariant TellFromFiles(const ModelParts& parts) {
  std::vector<double> sigmas;
  if (!parts.pipeline_class.empty()) sigmas = SampleSigmas(parts.root / "model_index.json");
  // The index speaks for the folder's own transformer only.
  if (parts.pipeline_class.empty() || parts.transformer.parent_path() != parts.root)
    return {.how = "no model_index.json speaks for this transformer, and the tensors of Turbo are alike",
            .in_turbo_folder = !sigmas.empty()};
  if (sigmas.empty())
    return {.variant = Variant::kBase, .certain = true, .how = "model_index.json: " + parts.pipeline_class};
  const size_t steps = sigmas.size();
  return {.variant = Variant::kTurbo,
          .certain = true,
          .how = fmt::format("model_index.json: sample_sigmas of {} steps", steps),
          .sigmas = std::move(sigmas),
          .from_index = true};
}

}  // namespace

std::vector<double> TurboSigmas() {
  return {1.0, 0.978453, 0.95418, 0.926626, 0.89508, 0.845148, 0.704534, 0.414568};
}

SchedulerConfig TurboScheduler() { return {.shift = 1.0, .use_dynamic_shifting = false}; }

RecognizedVariant RecognizeVariant(const ModelParts& parts, const std::string& asked) {
  const std::optional<Variant> wanted = ParseVariant(asked);
  if (!asked.empty() && !wanted)
    Fail(ErrorKind::kUsage, "{} is not a variant of this model; there are {}", Quoted(asked),
         fmt::join(VariantNames(), ", "));
  const RecognizedVariant found = TellFromFiles(parts);
  if (!wanted || (found.certain && *wanted == found.variant)) return found;
  if (found.certain)
    Fail(ErrorKind::kUsage, "the variant {} contradicts the model's files, which say {} ({})", asked,
         NameOf(found.variant), found.how);
  return {.variant = *wanted,
          .certain = true,
          .how = "the variant that was given",
          .sigmas = *wanted == Variant::kTurbo ? TurboSigmas() : std::vector<double>(),
          .given = true,
          .in_turbo_folder = found.in_turbo_folder};
}

}  // namespace qwen_image::qwen_image_21
