#include "families/vocabulary.h"

#include <algorithm>

#include "families/weight_names.h"

namespace qwen_image {

#define FAMILY(vocabulary, family) extern const Vocabulary vocabulary;
#include "families/table.def"
#undef FAMILY

namespace {

std::vector<const Vocabulary*>& All() {
  static std::vector<const Vocabulary*> all = {
#define FAMILY(vocabulary, family) &vocabulary,
#include "families/table.def"
#undef FAMILY
  };
  return all;
}

}  // namespace

std::span<const Vocabulary* const> Vocabularies() { return All(); }

bool EditsPictures(std::string_view pipeline_class) {
  return std::any_of(Vocabularies().begin(), Vocabularies().end(), [&](const Vocabulary* family) {
    const auto& classes = family->weights->edit_classes;
    return std::find(classes.begin(), classes.end(), pipeline_class) != classes.end();
  });
}

std::vector<std::string> KnownVariants() {
  std::vector<std::string> names;
  for (const Vocabulary* vocabulary : Vocabularies()) {
    if (!vocabulary->variants) continue;
    const std::vector<std::string>& own = vocabulary->variants();
    names.insert(names.end(), own.begin(), own.end());
  }
  return names;
}

ScopedVocabulary::ScopedVocabulary(const Vocabulary& vocabulary) {
  if (std::find(All().begin(), All().end(), &vocabulary) != All().end()) return;
  All().push_back(&vocabulary);
  added_ = &vocabulary;
}

ScopedVocabulary::~ScopedVocabulary() { std::erase(All(), added_); }

}  // namespace qwen_image
