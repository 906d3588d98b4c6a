// What a family of models calls its parts, as plain data: loaders, tools and reports that serve every family
// ask here instead of spelling names. The library of these files knows nothing of arithmetic, so that the
// reader of weights and the comparison of runs can use it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qwen_image {

struct WeightNames;      // families/weight_names.h
struct CheckpointNames;  // families/checkpoint_names.h

struct Vocabulary {
  std::string_view name;  // of the family: "qwen-image"
  const WeightNames* weights = nullptr;
  const CheckpointNames* checkpoints = nullptr;
  const std::vector<std::string>& (*variants)() = nullptr;  // their names; null: there is one kind only
};

// All families that this program knows: those of table.def, and those of tests. Never empty.
std::span<const Vocabulary* const> Vocabularies();

// Whether a diffusers class edits the pictures that it is given, in any family.
bool EditsPictures(std::string_view pipeline_class);

// What users may call a variant: the names of all families.
std::vector<std::string> KnownVariants();

// A family that is known as long as this object lives, if it is not anyway: for tests, which have one thread
// then.
class ScopedVocabulary {
 public:
  explicit ScopedVocabulary(const Vocabulary& vocabulary);
  ~ScopedVocabulary();
  ScopedVocabulary(const ScopedVocabulary&) = delete;
  ScopedVocabulary& operator=(const ScopedVocabulary&) = delete;

 private:
  const Vocabulary* added_ = nullptr;
};

}  // namespace qwen_image
