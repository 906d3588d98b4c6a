#include <fmt/format.h>

#include <algorithm>

#include "families/family.h"
#include "model/tokenizer.h"

namespace qwen_image {

#define FAMILY(vocabulary, family) const Family& family();
#include "families/table.def"
#undef FAMILY

namespace {

std::vector<const Family*>& All() {
  static std::vector<const Family*> all = {
#define FAMILY(vocabulary, family) &family(),
#include "families/table.def"
#undef FAMILY
  };
  return all;
}

}  // namespace

std::string Family::ExamineTokenizer(const ModelParts& parts) const {
  return fmt::format("{} tokens{}", Tokenizer(parts.tokenizer).vocabulary_size(),
                     parts.tokenizer == parts.text_encoder ? ", inside the text encoder's file" : "");
}

std::span<const Family* const> Families() { return All(); }

const Family& FamilyFor(const ModelParts& parts) {
  const std::span<const Family* const> all = Families();
  if (all.size() == 1) return *all.front();
  const auto found =
      std::find_if(all.rbegin(), all.rend(), [&](const Family* family) { return family->Recognises(parts); });
  return found == all.rend() ? *all.front() : **found;
}

ScopedFamily::ScopedFamily(const Family& family) : family_(family), vocabulary_(family.vocabulary()) {
  All().push_back(&family);
}

ScopedFamily::~ScopedFamily() { std::erase(All(), &family_); }

}  // namespace qwen_image
