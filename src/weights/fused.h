// Tensors that are several in one: some tools store the weights of modules that read the same input as one
// matrix (WeightNames::fused). They are divided where files are opened, so that all others see the modules.
// Nothing is copied: rows lie one behind the other in every format.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "files/weight_file.h"
#include "weights/sets.h"

namespace qwen_image {

// The modules that a module of a file stands for, with the file's own prefix; none: it is one by itself.
// `flat`: underscores stand for its dots.
std::vector<std::string> PartsOfFused(std::string_view module, bool flat = false);

// What a module would be called if it were stored with others; empty: no tool does that.
std::string FusedNameOf(std::string_view module);

// The rows of a tensor cut into `count` equal parts, of which this is number `index`. CanDivide() must hold.
bool CanDivide(const StoredTensor& tensor, size_t count);
StoredTensor PartOf(const StoredTensor& tensor, size_t index, size_t count);

// Divides the weights of a set, with the scales and biases beside them; what is one for all rows (a scale of
// the whole tensor, a note on it) goes to every part. Matrices that cannot be divided become findings.
void DivideFused(WeightSet& set);

}  // namespace qwen_image
