// A device whose work several machines share.
#pragma once

#include <memory>

#include "ops/interface.h"

namespace qwen_image::split {

// Its passes are split wherever a stage has a group of machines (Compute::group).
std::shared_ptr<Backend> SplitBackend(std::shared_ptr<Backend> inner);

}  // namespace qwen_image::split
