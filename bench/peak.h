// What the machine can do at best, to judge the kernels by.
#pragma once

#include "core/threads.h"

namespace qwen_image {

// Floating-point operations a second of all threads of `pool`, multiplying and adding in registers only.
// Takes some 50 ms.
double MeasurePeakFlops(ThreadPool& pool);

// The same work on the calling thread, for some milliseconds; returns the number of operations.
double MultiplyAdds();

}  // namespace qwen_image
