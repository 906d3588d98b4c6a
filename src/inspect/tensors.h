// Lists the tensors of a set of files as the reader of weights has them.
#pragma once

#include "inspect/inspected.h"

namespace qwen_image::inspect {

// Fills in the tensors, and adds findings for parts of quantized ones that are missing, left over or do not
// fit, and for what a loader cannot read.
void ListTensors(InspectedComponent& component);

}  // namespace qwen_image::inspect
