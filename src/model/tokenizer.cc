#include "model/tokenizer.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "core/fail.h"
#include "files/text.h"
#include "model/bpe.h"
#include "model/text_split.h"
#include "model/tokenizer_files.h"

namespace qwen_image {
namespace {

// The byte-level alphabet of GPT-2 and all its heirs: printable bytes stand for themselves, the others get
// the code points from U+0100 on.
class ByteAlphabet {
 public:
  ByteAlphabet() {
    uint32_t next = 0x100;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool is_printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
      const uint32_t c = is_printable ? byte : next++;
      letters_[byte] =
          c < 0x80 ? std::string(1, static_cast<char>(c))
                   : std::string{static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
      bytes_[letters_[byte]] = static_cast<char>(byte);
    }
  }

  const std::string& letter(size_t byte) const { return letters_[byte]; }

  // The bytes of a token. One that is not all letters of this alphabet stands for itself, as officially.
  std::string BytesOf(const std::string& token) const {
    std::string bytes;
    for (size_t i = 0; i < token.size();) {
      const size_t size = static_cast<unsigned char>(token[i]) < 0x80 ? 1 : 2;
      const auto found = bytes_.find(token.substr(i, size));
      if (found == bytes_.end()) return token;
      bytes.push_back(found->second);
      i += size;
    }
    return bytes;
  }

 private:
  std::array<std::string, 256> letters_;
  std::unordered_map<std::string, char> bytes_;
};

// Finds added tokens in a text: the leftmost one, and the longest of those that start there.
class AddedTokenFinder {
 public:
  struct Match {
    size_t begin, end;
    uint32_t id;
  };

  void Add(std::string content, uint32_t id) {
    auto& same_start = by_first_byte_[static_cast<unsigned char>(content[0])];
    same_start.emplace_back(std::move(content), id);
    std::sort(same_start.begin(), same_start.end(),
              [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  }

  // The first match at or after `from`; its begin is text.size() if there is none.
  Match Find(std::string_view text, size_t from) const {
    for (size_t i = from; i < text.size(); ++i) {
      for (const auto& [content, id] : by_first_byte_[static_cast<unsigned char>(text[i])]) {
        if (text.substr(i).starts_with(content)) return {i, i + content.size(), id};
      }
    }
    return {text.size(), text.size(), 0};
  }

 private:
  std::array<std::vector<std::pair<std::string, uint32_t>>, 256> by_first_byte_;
};

// Appends the ids of the added tokens in `text` to `ids` and calls encode(piece) for what lies between them.
template <typename EncodePiece>
void ForEachPiece(const AddedTokenFinder& finder, std::string_view text, std::vector<int64_t>& ids,
                  EncodePiece encode) {
  for (size_t begin = 0; begin < text.size();) {
    const AddedTokenFinder::Match match = finder.Find(text, begin);
    if (match.begin > begin) encode(text.substr(begin, match.begin - begin));
    if (match.end > match.begin) ids.push_back(match.id);
    begin = match.end;
  }
}

uint32_t Require(const TokenizerFiles& files, const std::string& token, size_t merge) {
  const auto found = files.vocabulary.find(token);
  if (found == files.vocabulary.end()) {
    Fail(ErrorKind::kBadInput, "{}: merge {} ({} + {}) needs the token {}, which is not in the vocabulary",
         files.where, merge, Quoted(files.merges[merge].first), Quoted(files.merges[merge].second),
         Quoted(token));
  }
  return found->second;
}

BytePairEncoder MakeEncoder(const TokenizerFiles& files, const ByteAlphabet& alphabet) {
  std::array<uint32_t, 256> byte_tokens{};
  std::string missing;
  for (size_t byte = 0; byte < byte_tokens.size(); ++byte) {
    const auto found = files.vocabulary.find(alphabet.letter(byte));
    const bool is_in_utf8 = byte < 0xF5 && byte != 0xC0 && byte != 0xC1;
    if (found != files.vocabulary.end()) {
      byte_tokens[byte] = found->second;
    } else if (is_in_utf8) {
      missing += fmt::format(" 0x{:02X}", byte);
    }
  }
  // The official tokenizer drops such bytes from the prompt without a word.
  if (!missing.empty()) Fail(ErrorKind::kBadInput, "{}: no tokens for the bytes{}", files.where, missing);

  BytePairEncoder encoder(byte_tokens);
  encoder.ReserveMerges(files.merges.size());
  for (size_t rank = 0; rank < files.merges.size(); ++rank) {
    const auto& [left, right] = files.merges[rank];
    encoder.AddMerge(Require(files, left, rank), Require(files, right, rank), static_cast<uint32_t>(rank),
                     Require(files, left + right, rank));
  }
  return encoder;
}

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(const std::filesystem::path& folder) : Impl(ReadTokenizerFiles(folder), ByteAlphabet()) {}
  Impl(const TokenizerFiles& files, const ByteAlphabet& alphabet);

  void AddBytes(uint32_t id, std::string token_bytes, const TokenizerFiles& files);
  void EncodeNormalized(std::string_view text, BytePairEncoder::Scratch& scratch,
                        std::vector<int64_t>& ids) const;

  BytePairEncoder encoder;
  AddedTokenFinder added;             // searched before NFC
  AddedTokenFinder normalized_added;  // searched after NFC
  std::unordered_map<std::string, uint32_t> added_ids;
  std::unordered_map<uint32_t, std::string> bytes_of;  // not a list: a broken file may hold any id
  int64_t vocabulary_size = 0;
};

Tokenizer::Impl::Impl(const TokenizerFiles& files, const ByteAlphabet& alphabet)
    : encoder(MakeEncoder(files, alphabet)) {
  bytes_of.reserve(files.vocabulary.size() + files.added.size());
  for (const auto& [token, id] : files.vocabulary) AddBytes(id, alphabet.BytesOf(token), files);
  for (const AddedToken& token : files.added) {
    const auto in_vocabulary = files.vocabulary.find(token.content);
    if (in_vocabulary == files.vocabulary.end()) AddBytes(token.id, token.content, files);
    added_ids.emplace(token.content, token.id);
    if (token.normalized) {
      normalized_added.Add(NormalizeNfc(token.content), token.id);
    } else {
      added.Add(token.content, token.id);
    }
  }
}

void Tokenizer::Impl::AddBytes(uint32_t id, std::string token_bytes, const TokenizerFiles& files) {
  const auto [entry, is_new] = bytes_of.emplace(id, std::move(token_bytes));
  if (!is_new) {
    Fail(ErrorKind::kBadInput, "{}: an added token has the id {}, which is that of {}", files.where, id,
         Quoted(entry->second));
  }
  vocabulary_size = std::max(vocabulary_size, int64_t{id} + 1);
}

void Tokenizer::Impl::EncodeNormalized(std::string_view text, BytePairEncoder::Scratch& scratch,
                                       std::vector<int64_t>& ids) const {
  while (!text.empty()) {
    const size_t word = NextWord(text);
    encoder.Encode(text.substr(0, word), scratch, ids);
    text.remove_prefix(word);
  }
}

Tokenizer::Tokenizer(const std::filesystem::path& folder) : impl_(std::make_unique<Impl>(folder)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;

std::vector<int64_t> Tokenizer::Encode(std::string_view text, SpecialTokens special) const {
  CheckUtf8(text);
  std::vector<int64_t> ids;
  BytePairEncoder::Scratch scratch;
  if (special == SpecialTokens::kLiteral) {
    impl_->EncodeNormalized(NormalizeNfc(text), scratch, ids);
    return ids;
  }
  // Added tokens cut the text into pieces, and no word and no NFC goes across a cut.
  ForEachPiece(impl_->added, text, ids, [&](std::string_view piece) {
    ForEachPiece(impl_->normalized_added, NormalizeNfc(piece), ids,
                 [&](std::string_view normalized) { impl_->EncodeNormalized(normalized, scratch, ids); });
  });
  return ids;
}

std::string Tokenizer::Decode(const std::vector<int64_t>& ids) const {
  std::string bytes;
  for (const int64_t id : ids) {
    const bool fits = id >= 0 && id < impl_->vocabulary_size;
    const auto found = fits ? impl_->bytes_of.find(static_cast<uint32_t>(id)) : impl_->bytes_of.end();
    if (found == impl_->bytes_of.end())
      Fail(ErrorKind::kUsage, "the tokenizer has no token with the id {}", id);
    bytes += found->second;
  }
  return ReplaceInvalidUtf8(bytes);
}

int64_t Tokenizer::TokenId(std::string_view special_token) const {
  const auto found = impl_->added_ids.find(std::string(special_token));
  if (found == impl_->added_ids.end()) {
    Fail(ErrorKind::kBadInput, "the tokenizer has no special token {}; is it a Qwen2 tokenizer?",
         Quoted(special_token));
  }
  return found->second;
}

int64_t Tokenizer::vocabulary_size() const { return impl_->vocabulary_size; }

}  // namespace qwen_image
