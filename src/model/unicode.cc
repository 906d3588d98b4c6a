#include "model/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <iterator>

namespace qwen_image {
namespace {

struct Range {
  uint32_t first, last;
};

// Letters and numbers of Unicode 15.1 and 16.
constexpr Range kNewLetters[] = {
    {0x1C89, 0x1C8A},    // Cyrillic Extended-C
    {0xA7CB, 0xA7CD},    // Latin Extended-D
    {0xA7DA, 0xA7DC},    //
    {0x105C0, 0x105F3},  // Todhri
    {0x10D4A, 0x10D65},  // Garay
    {0x10D6F, 0x10D85},  //
    {0x10EC2, 0x10EC4},  // Arabic Extended-C
    {0x11380, 0x11389},  // Tulu-Tigalari
    {0x1138B, 0x1138B},  //
    {0x1138E, 0x1138E},  //
    {0x11390, 0x113B5},  //
    {0x113B7, 0x113B7},  //
    {0x113D1, 0x113D1},  //
    {0x113D3, 0x113D3},  //
    {0x11BC0, 0x11BE0},  // Sunuwar
    {0x13460, 0x143FA},  // Egyptian Hieroglyphs Extended-A
    {0x16100, 0x1611D},  // Gurung Khema
    {0x16D40, 0x16D6C},  // Kirat Rai
    {0x18CFF, 0x18CFF},  // Khitan Small Script
    {0x1E5D0, 0x1E5ED},  // Ol Onal
    {0x1E5F0, 0x1E5F0},  //
    {0x2EBF0, 0x2EE5D},  // CJK Unified Ideographs Extension I
};
constexpr Range kNewNumbers[] = {
    {0x10D40, 0x10D49},  // Garay
    {0x116D0, 0x116E3},  // Myanmar Extended-C
    {0x11BF0, 0x11BF9},  // Sunuwar
    {0x16130, 0x16139},  // Gurung Khema
    {0x16D70, 0x16D79},  // Kirat Rai
    {0x1CCF0, 0x1CCF9},  // Symbols for Legacy Computing Supplement
    {0x1E5F1, 0x1E5FA},  // Ol Onal
};

// White_Space of Unicode, which has not changed for years.
constexpr Range kSpaces[] = {
    {0x9, 0xD},       {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
    {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000},
};

// Marks with a combining class, and blocks with composing letters, that came after Unicode 9.
constexpr Range kAfterOfficialNfc[] = {
    {0x5C8, 0x5C9},     {0x7FD, 0x7FD},     {0x897, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},
    {0xC3C, 0xC3C},     {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x1ABF, 0x1AF0},
    {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},   {0x105C0, 0x105FF}, {0x10D24, 0x10D27}, {0x10D69, 0x10D6D},
    {0x10EAB, 0x10EAC}, {0x10ECB, 0x10ECF}, {0x10EF0, 0x10EFB}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50},
    {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x11380, 0x113FF}, {0x1145E, 0x1145E},
    {0x11839, 0x1183A}, {0x11900, 0x1195F}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47},
    {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97}, {0x11F41, 0x11F42},
    {0x16100, 0x1613F}, {0x16D40, 0x16D7F}, {0x16FF0, 0x16FF1}, {0x1D127, 0x1D128}, {0x1D250, 0x1D252},
    {0x1D25B, 0x1D25C}, {0x1D25F, 0x1D25F}, {0x1D280, 0x1D281}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136},
    {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}, {0x1E5EE, 0x1E5EF}, {0x1E6E3, 0x1E6E3},
    {0x1E6E6, 0x1E6E6}, {0x1E6EE, 0x1E6EF}, {0x1E6F5, 0x1E6F5},
};

template <size_t kCount>
bool Contains(const Range (&table)[kCount], uint32_t code_point) {
  const auto* range = std::partition_point(std::begin(table), std::end(table),
                                           [&](const Range& r) { return r.last < code_point; });
  return range != std::end(table) && range->first <= code_point;
}

CharacterClass Lookup(uint32_t code_point) {
  if (code_point == '\r' || code_point == '\n') return CharacterClass::kNewline;
  if (Contains(kSpaces, code_point)) return CharacterClass::kSpace;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code_point))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return CharacterClass::kLetter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return CharacterClass::kNumber;
    default:
      break;
  }
  if (Contains(kNewLetters, code_point)) return CharacterClass::kLetter;
  if (Contains(kNewNumbers, code_point)) return CharacterClass::kNumber;
  return CharacterClass::kOther;
}

}  // namespace

CharacterClass ClassOf(uint32_t code_point) {
  static const auto kAscii = [] {
    std::array<CharacterClass, 128> classes;
    for (uint32_t c = 0; c < classes.size(); ++c) classes[c] = Lookup(c);
    return classes;
  }();
  return code_point < kAscii.size() ? kAscii[code_point] : Lookup(code_point);
}

bool IsNewerThanOfficialNfc(uint32_t code_point) { return Contains(kAfterOfficialNfc, code_point); }

}  // namespace qwen_image
