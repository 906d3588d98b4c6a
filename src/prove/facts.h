// Facts of the machine and of a loaded model that make two reports comparable, and tell nothing of the user.
#pragma once

#include "files/json.h"
#include "qwen_image/qwen_image.h"

namespace qwen_image::prove {

Json MachineJson(int threads);

// The files of each component: name, size, and a hash of what is in them.
Json FilesJson(const Pipeline& pipeline);

// Lets the peak of MemoryInUse() begin anew; false where the system cannot.
bool ForgetPeakMemory();

}  // namespace qwen_image::prove
