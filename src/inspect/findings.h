// What is unusual about the tensors of a component. Each kind of finding is described in docs/inspect.md.
#pragma once

#include "inspect/finding_collector.h"
#include "inspect/inspected.h"

namespace qwen_image::inspect {

// From names, shapes and types alone: blocks missing in a sequence, tensors that one block lacks, a type that
// the peers in other blocks do not have.
void FindStructuralTrouble(const InspectedComponent& component, FindingCollector& findings);

// From the measured values: NaN and infinities, zeros, constants, duplicates, spreads out of line.
void FindUnusualValues(const InspectedComponent& component, FindingCollector& findings);

}  // namespace qwen_image::inspect
