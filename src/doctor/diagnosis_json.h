// A diagnosis for other programs.
#pragma once

#include "doctor/diagnosis.h"
#include "files/json.h"

namespace qwen_image::doctor {

Json DiagnosisJson(const Diagnosis& found);

}  // namespace qwen_image::doctor
