// A small folder that shows one wrong operation again: a reference run with the tensors it needs and no
// others.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "parity/bisect.h"
#include "parity/reference_run.h"

namespace qwen_image {

// The operation a search ended at: the culprit, or else where the run leaves the reference.
const std::string& ReproOperation(const BisectResult& result);

// The reference's tensors that are needed to run it again: the inputs of its component, what stands before it
// in its block, what enters the block, and its expected output.
std::vector<std::string> ReproTensors(const ReferenceRun& reference, const BisectResult& result);

// Writes `folder`/ref (a run as --debug reads it), `folder`/repro.json and `folder`/README.md. Throws Error
// kCannotWrite.
void WriteRepro(const std::filesystem::path& folder, const ReferenceRun& reference,
                const BisectResult& result, const std::vector<std::string>& weights,
                const std::string& command);

}  // namespace qwen_image
