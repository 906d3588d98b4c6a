#include "doctor/diagnosis_json.h"

namespace qwen_image::doctor {
namespace {

std::string_view NameOf(Health health) {
  switch (health) {
    case Health::kGood:
      return "good";
    case Health::kNote:
      return "note";
    case Health::kWarning:
      return "warning";
    default:
      return "broken";
  }
}

}  // namespace

Json DiagnosisJson(const Diagnosis& found) {
  Json json = {{"usable", found.usable()},
               {"what", found.what},
               {"variant", found.variant.name.empty() ? Json() : Json(found.variant.name)},
               {"variant_told_by", found.variant.how},
               {"available_memory", found.available_memory},
               {"timed_product", found.timed_product.empty() ? Json() : Json(found.timed_product)},
               {"parts", Json::array()},
               {"findings", Json::array()},
               {"pictures", Json::array()}};
  for (const Part& part : found.parts) {
    json["parts"].push_back({{"name", part.name},
                             {"path", part.path.string()},
                             {"health", NameOf(part.health)},
                             {"formats", part.formats},
                             {"parameters", part.parameters},
                             {"bytes", part.bytes},
                             {"text", part.text}});
  }
  for (const HealthFinding& finding : found.findings) {
    json["findings"].push_back(
        {{"health", NameOf(finding.health)}, {"subject", finding.subject}, {"text", finding.text}});
  }
  for (const PictureCost& picture : found.pictures) {
    json["pictures"].push_back({{"width", picture.width},
                                {"height", picture.height},
                                {"memory", picture.memory},
                                {"fits", picture.fits},
                                {"seconds_per_step", picture.seconds_per_step}});
  }
  return json;
}

}  // namespace qwen_image::doctor
