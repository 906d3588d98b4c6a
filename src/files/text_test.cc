#include "files/text.h"

#include <gtest/gtest.h>

#include <string>

namespace qwen_image {
namespace {

TEST(IsUtf8, AcceptsWellFormedText) {
  for (const char* text : {"", "abc", "é", "\u20ac", "\U0001F600", "\xed\x9f\xbf", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(IsUtf8(text)) << text;
  }
}

TEST(IsUtf8, RefusesWhatIsNot) {
  const std::pair<const char*, const char*> cases[] = {{"a lone continuation", "\x80"},
                                                       {"an overlong slash", "\xc0\xaf"},
                                                       {"overlong in three", "\xe0\x80\xaf"},
                                                       {"overlong in four", "\xf0\x80\x80\xaf"},
                                                       {"a surrogate", "\xed\xa0\x80"},
                                                       {"above U+10FFFF", "\xf4\x90\x80\x80"},
                                                       {"cut off", "ab\xe2\x82"},
                                                       {"an invalid byte", "\xff"},
                                                       {"a wrong second byte", "\xc3("}};
  for (const auto& [name, text] : cases) EXPECT_FALSE(IsUtf8(text)) << name;
}

TEST(Printable, KeepsTextAndEscapesTheRest) {
  EXPECT_EQ(Printable("transformer_blocks.0 é€"), "transformer_blocks.0 é€");
  EXPECT_EQ(Printable("a\nb\x1b[31m\x7f"), "a\\x0ab\\x1b[31m\\x7f");
  EXPECT_EQ(Printable("\xff\xc2\x9b"), "\\xff\\xc2\\x9b");
  EXPECT_EQ(Printable("gpj.\u202eabc\u2069\u2065\u202f"),
            "gpj.\\xe2\\x80\\xaeabc\\xe2\\x81\\xa9\u2065\u202f");
  EXPECT_EQ(Printable(std::string(1000, 'x'), 10), "xxxxxxxxxx…");
  EXPECT_EQ(Quoted("a"), "\"a\"");
}

TEST(Printable, LinesOfAMessageStay) {
  EXPECT_EQ(PrintableLines("a\n  \x1b\u202e\n"), "a\n  \\x1b\\xe2\\x80\\xae\n");
  EXPECT_EQ(PrintableLines(""), "");
  EXPECT_EQ(PrintableLines(std::string(1000, 'x')), std::string(1000, 'x'));
}

}  // namespace
}  // namespace qwen_image
