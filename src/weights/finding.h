// What the reader of weights found to be unusual or wrong. The loader throws what keeps it from loading;
// `inspect` reports all of it. Each kind is described in docs/inspect.md.
#pragma once

#include <string>
#include <vector>

namespace qwen_image {

enum class Severity {
  kNote,     // worth knowing, often intended
  kWarning,  // unusual
  kBroken,   // such a model cannot work
};

struct Finding {
  Severity severity = Severity::kNote;
  std::string kind;     // "all_zero", "missing_blocks", …: for tools
  std::string subject;  // the tensors, folded: "transformer_blocks.{0…59}.attn.to_q.bias"; or a file
  std::string text;     // what is unusual, and why that may be
  std::vector<std::string> tensors;
  // What the loader says of it, as lines of its error. Empty: the file still loads, or the error comes when
  // the tensors are bound.
  std::vector<std::string> errors = {};
};

// Throws Error kBadInput with the errors of all findings, up to a readable number; returns if there are none.
void ThrowErrorsOf(const std::vector<Finding>& findings);

}  // namespace qwen_image
