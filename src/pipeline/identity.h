// What tells runs apart whose numbers may differ, as hashes: who computes, and with which weights. For what a
// run keeps on disk for later ones.
#pragma once

#include <string>

#include "pipeline/pipeline_impl.h"

namespace qwen_image {

// Version, sources, compiler and instruction set: another build may compute other bits.
std::string EngineIdentity();

// Of files with weights, without reading them as a whole: size, both times of the last change, everything
// before the first tensor, and 64 bytes at each of 256 places over the file. A file that was swapped for
// another shows in the time of its last change of status, which no program can set; the rest is for file
// systems without one.
std::string IdentityOf(const WeightFile& file);
// Of all files and the config that a component was loaded from.
std::string IdentityOf(const WeightStore& store);

// Whatever decides, besides its inputs, what a component of a model computes; without LoRAs. Throws Error
// kBadInput for a vision encoder that is not there.
std::string IdentityOf(const Pipeline::Impl& model, Component component);

}  // namespace qwen_image
