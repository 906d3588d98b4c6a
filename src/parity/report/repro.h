// WriteRepro: a small folder that reproduces one wrong operation. It is a reference run with only the tensors
// that the operation needs.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "parity/compare/bisect.h"
#include "parity/record/reference_run.h"

namespace qwen_image::report {

// The operation at which a search ended: the culprit, or else the first bad checkpoint.
const std::string& ReproOperation(const compare::BisectResult& result);

// The reference's tensors that are needed to run the operation again: the inputs of its component, the
// tensors before it in its block, the inputs of the block, and its expected output.
std::vector<std::string> ReproTensors(const record::ReferenceRun& reference,
                                      const compare::BisectResult& result);

// Writes `folder`/ref (a run as --debug reads it), `folder`/repro.json and `folder`/README.md. Throws Error
// kCannotWrite.
void WriteRepro(const std::filesystem::path& folder, const record::ReferenceRun& reference,
                const compare::BisectResult& result, const std::vector<std::string>& weights,
                const std::string& command);

}  // namespace qwen_image::report
