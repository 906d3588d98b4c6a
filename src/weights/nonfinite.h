// Which weights are to blame for a picture of NaN.
#pragma once

#include <chrono>
#include <initializer_list>
#include <string>

#include "weights/store.h"

namespace qwen_image {

// Names a file and a tensor in it that holds NaN or infinity: "FILE: tensor "X" holds NaN or infinity".
// Scales and small tensors are looked at first, then all others until the time is over. Empty if nothing was
// found. Stores may be null.
std::string FindNonFinite(std::initializer_list<const WeightStore*> stores, std::chrono::milliseconds time);

}  // namespace qwen_image
