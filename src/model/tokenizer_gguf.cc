// The tokenizer that llama.cpp's converter puts into a text encoder's GGUF file.
#include "core/fail.h"
#include "files/gguf.h"
#include "files/text.h"
#include "model/tokenizer_files.h"

namespace qwen_image {
namespace {

// llama.cpp's kinds of tokens.
constexpr int64_t kNormal = 1, kControl = 3, kUserDefined = 4;

std::string MetadataText(const GgufFile& file, const std::string& key) {
  const auto found = file.metadata().find(key);
  return found == file.metadata().end() ? "" : found->second;
}

}  // namespace

TokenizerFiles ReadGgufTokenizer(const std::filesystem::path& path) {
  const GgufFile file(path);
  TokenizerFiles files;
  files.where = path.string();
  const std::string model = MetadataText(file, "tokenizer.ggml.model"),
                    pre = MetadataText(file, "tokenizer.ggml.pre");
  if (model != "gpt2" || pre != "qwen2") {
    Fail(ErrorKind::kBadInput,
         "{}: its tokenizer is {} with the splitting {}, but this engine tokenizes as Qwen2 does (\"gpt2\" "
         "with \"qwen2\"); name a tokenizer's folder as the tokenizer",
         files.where, Quoted(model), Quoted(pre));
  }
  const auto tokens = file.StringArray("tokenizer.ggml.tokens");
  const auto types = file.IntArray("tokenizer.ggml.token_type");
  const auto merges = file.StringArray("tokenizer.ggml.merges");
  if (!tokens || !types || !merges || tokens->size() != types->size()) {
    Fail(ErrorKind::kBadInput,
         "{}: its tokenizer is not whole: {} tokens, {} token types, {} merges; name a tokenizer's folder "
         "as the tokenizer",
         files.where, tokens ? tokens->size() : 0, types ? types->size() : 0, merges ? merges->size() : 0);
  }
  for (size_t i = 0; i < tokens->size(); ++i) {
    const std::string& token = (*tokens)[i];
    const auto id = static_cast<uint32_t>(i);
    if ((*types)[i] == kControl || (*types)[i] == kUserDefined) {
      if (token.empty()) Fail(ErrorKind::kBadInput, "{}: the control token {} is empty", files.where, id);
      files.added.push_back({token, id, /*normalized=*/false});
    } else if ((*types)[i] == kNormal && !files.vocabulary.emplace(token, id).second) {
      Fail(ErrorKind::kBadInput, "{}: the token {} has two ids, {} and {}", files.where, Quoted(token),
           files.vocabulary.at(token), id);
    }
  }
  files.merges.reserve(merges->size());
  for (const std::string& merge : *merges) {
    files.merges.push_back(SplitMerge(merge, files.where, files.merges.size()));
  }
  return files;
}

}  // namespace qwen_image
