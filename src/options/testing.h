// For tests: a setting that is declared for a while.
#pragma once

#include <vector>

#include "options/field.h"

namespace qwen_image::options {

std::vector<Field>& MutableFields();

class ScopedField {
 public:
  explicit ScopedField(const Field& field) { MutableFields().push_back(field); }
  ~ScopedField() { MutableFields().pop_back(); }
  ScopedField(const ScopedField&) = delete;
  ScopedField& operator=(const ScopedField&) = delete;
};

}  // namespace qwen_image::options
