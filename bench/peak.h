// What the machine can do at best, to judge the kernels by.
#pragma once

#include <functional>
#include <string_view>

#include "core/threads.h"

namespace qwen_image {

// Floating-point operations a second of all threads of `pool`, multiplying and adding in registers only.
// Takes some 50 ms.
double MeasurePeakFlops(ThreadPool& pool);

// The same work on the calling thread, for some milliseconds; returns the number of operations.
double MultiplyAdds();

// Multiplications and additions of 8-bit integers a second, in registers only, with the instructions that the
// 8-bit kernel of this name (see kernels/int8/tile.h) is made of: vpdpbusd, or vpmaddubsw where there is no
// such thing. 0: not known for that kernel.
double MeasurePeakInt8Ops(std::string_view kernel, ThreadPool& pool);

// Operations a second of all threads of `pool`, where `work` takes some milliseconds and returns how many it
// did.
double OperationsASecond(ThreadPool& pool, const std::function<double()>& work);

}  // namespace qwen_image
