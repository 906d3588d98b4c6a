#include "families/vocabulary.h"

#include "families/qwen_image/vocabulary.h"

namespace qwen_image {

std::span<const Vocabulary* const> Vocabularies() {
  static constexpr const Vocabulary* kAll[] = {&kQwenImageVocabulary};
  return kAll;
}

}  // namespace qwen_image
