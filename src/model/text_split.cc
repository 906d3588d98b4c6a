#include "model/text_split.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "core/fail.h"
#include "model/unicode.h"

namespace qwen_image {
namespace {

struct CodePoint {
  uint32_t value;
  size_t bytes;
};

// The code point at the start of `text`, which must be valid UTF-8 and not empty.
CodePoint First(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

struct Sequence {
  size_t bytes;
  bool is_valid;
};

// The character at the start of `text`, which must not be empty; if there is none, the longest start of one,
// and at least a byte.
Sequence FirstSequence(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {1, true};
  if (lead < 0xC2 || lead > 0xF4) return {1, false};
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  for (size_t i = 1; i < length; ++i) {
    // Overlong forms, surrogates and values above U+10FFFF show in the second byte.
    const unsigned low = i == 1 && lead == 0xE0 ? 0xA0 : i == 1 && lead == 0xF0 ? 0x90 : 0x80;
    const unsigned high = i == 1 && lead == 0xED ? 0x9F : i == 1 && lead == 0xF4 ? 0x8F : 0xBF;
    if (i == text.size() || byte(i) < low || byte(i) > high) return {i, false};
  }
  return {length, true};
}

using Class = CharacterClass;

bool IsSpace(Class c) { return c == Class::kSpace || c == Class::kNewline; }

// The number of bytes at the start of `text` whose classes satisfy `wanted`.
template <typename Predicate>
size_t Run(std::string_view text, Predicate wanted) {
  size_t end = 0;
  while (end < text.size()) {
    const CodePoint c = First(text.substr(end));
    if (!wanted(ClassOf(c.value))) break;
    end += c.bytes;
  }
  return end;
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d) or 0. U+017F, the long s, is a case of "s".
size_t Contraction(std::string_view text) {
  if (text.size() < 2 || text[0] != '\'') return 0;
  if (text.substr(1, 2) == "\xC5\xBF") return 3;
  const auto lower = [&](size_t i) {
    const char c = i < text.size() ? text[i] : '\0';
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  switch (lower(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 2;
    case 'r':
    case 'v':
      return lower(2) == 'e' ? 3 : 0;
    case 'l':
      return lower(2) == 'l' ? 3 : 0;
    default:
      return 0;
  }
}

// \s*[\r\n]+|\s+(?!\S)|\s+ for a text that starts with white space.
size_t SpaceWord(std::string_view text) {
  size_t end = 0, last = 0, after_newline = 0;
  while (end < text.size()) {
    const CodePoint c = First(text.substr(end));
    const Class class_of = ClassOf(c.value);
    if (!IsSpace(class_of)) break;
    last = end;
    end += c.bytes;
    if (class_of == Class::kNewline) after_newline = end;
  }
  if (after_newline > 0) return after_newline;
  // The last space before a word belongs to the word, unless it is the only one.
  return end == text.size() || last == 0 ? end : last;
}

// Puts every run of combining marks into the order of their classes. utf8proc would do it, but in quadratic
// time.
void OrderMarks(std::vector<utf8proc_int32_t>& text) {
  const auto mark_class = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
  const auto is_mark = [&](utf8proc_int32_t c) { return mark_class(c) != 0; };
  for (auto begin = text.begin();;) {
    begin = std::find_if(begin, text.end(), is_mark);
    if (begin == text.end()) return;
    const auto end = std::find_if_not(begin, text.end(), is_mark);
    std::stable_sort(begin, end, [&](auto a, auto b) { return mark_class(a) < mark_class(b); });
    begin = end;
  }
}

void AppendUtf8(utf8proc_int32_t code_point, std::string& out) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t count = utf8proc_encode_char(code_point, bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(count));
}

// Composes the decomposed `text` into `out` and clears it.
void FlushComposed(std::vector<utf8proc_int32_t>& text, std::string& out) {
  OrderMarks(text);
  const auto count =
      utf8proc_normalize_utf32(text.data(), static_cast<utf8proc_ssize_t>(text.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  if (count < 0) Fail(ErrorKind::kInternal, "utf8proc: {}", utf8proc_errmsg(count));
  for (utf8proc_ssize_t i = 0; i < count; ++i) AppendUtf8(text[static_cast<size_t>(i)], out);
  text.clear();
}

}  // namespace

void CheckUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const Sequence sequence = FirstSequence(text.substr(i));
    if (!sequence.is_valid) {
      Fail(ErrorKind::kUsage, "the text is not valid UTF-8: byte {} (0x{:02X}) starts no valid character", i,
           static_cast<unsigned char>(text[i]));
    }
    i += sequence.bytes;
  }
}

std::string ReplaceInvalidUtf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const Sequence sequence = FirstSequence(bytes);
    text += sequence.is_valid ? bytes.substr(0, sequence.bytes) : "\xEF\xBF\xBD";
    bytes.remove_prefix(sequence.bytes);
  }
  return text;
}

std::string NormalizeNfc(std::string_view text) {
  // Everything below U+0300, whose UTF-8 starts with 0xCC, is already normalized.
  const auto may_change = [](char c) { return static_cast<unsigned char>(c) >= 0xCC; };
  if (std::none_of(text.begin(), text.end(), may_change)) return std::string(text);

  std::string out;
  out.reserve(text.size());
  std::vector<utf8proc_int32_t> decomposed;
  decomposed.reserve(text.size() / 2);
  while (!text.empty()) {
    const CodePoint c = First(text);
    text.remove_prefix(c.bytes);
    if (IsNewerThanOfficialNfc(c.value)) {
      // The official NFC leaves these alone, and nothing moves or composes across them.
      FlushComposed(decomposed, out);
      AppendUtf8(static_cast<utf8proc_int32_t>(c.value), out);
      continue;
    }
    std::array<utf8proc_int32_t, 8> parts;  // the longest canonical decomposition has 4
    const auto count = utf8proc_decompose_char(
        static_cast<utf8proc_int32_t>(c.value), parts.data(), parts.size(),
        static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE), nullptr);
    if (count < 0 || count > static_cast<utf8proc_ssize_t>(parts.size())) {
      Fail(ErrorKind::kInternal, "utf8proc cannot decompose U+{:04X}", c.value);
    }
    decomposed.insert(decomposed.end(), parts.begin(), parts.begin() + count);
  }
  FlushComposed(decomposed, out);
  return out;
}

size_t NextWord(std::string_view text) {
  const auto is_letter = [](Class c) { return c == Class::kLetter; };
  const auto is_other = [](Class c) { return c == Class::kOther; };
  const auto is_newline = [](Class c) { return c == Class::kNewline; };
  if (const size_t bytes = Contraction(text)) return bytes;

  const CodePoint first = First(text);
  const Class first_class = ClassOf(first.value);
  const std::string_view rest = text.substr(first.bytes);

  // [^\r\n\p{L}\p{N}]?\p{L}+
  if (first_class == Class::kLetter) return first.bytes + Run(rest, is_letter);
  if (first_class == Class::kOther || first_class == Class::kSpace) {
    if (const size_t letters = Run(rest, is_letter)) return first.bytes + letters;
  }
  // \p{N}
  if (first_class == Class::kNumber) return first.bytes;
  // " ?[^\s\p{L}\p{N}]+[\r\n]*"
  const size_t space = text[0] == ' ' ? 1 : 0;
  if (const size_t others = Run(text.substr(space), is_other)) {
    return space + others + Run(text.substr(space + others), is_newline);
  }
  return SpaceWord(text);
}

}  // namespace qwen_image
