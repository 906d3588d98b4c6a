#include "files/base64.h"

#include <gtest/gtest.h>

namespace qwen_image {
namespace {

TEST(Base64, VectorsOfRfc4648) {
  const std::pair<const char*, const char*> vectors[] = {{"", ""},
                                                         {"f", "Zg=="},
                                                         {"fo", "Zm8="},
                                                         {"foo", "Zm9v"},
                                                         {"foob", "Zm9vYg=="},
                                                         {"fooba", "Zm9vYmE="},
                                                         {"foobar", "Zm9vYmFy"},
                                                         {"\xfb\xff\xfe", "+//+"}};
  for (const auto& [bytes, text] : vectors) {
    EXPECT_EQ(EncodeBase64(bytes), text);
    EXPECT_EQ(DecodeBase64(text), bytes);
  }
}

TEST(Base64, BytesComeBackAcrossBlocks) {
  for (const size_t size :
       {(size_t{3} << 18) - 1, size_t{3} << 18, (size_t{3} << 18) + 1, size_t{2'000'003}}) {
    std::string bytes(size, '\0');
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 2654435761u >> 13);
    const std::string text = EncodeBase64(bytes);
    EXPECT_EQ(text.size(), (size + 2) / 3 * 4);
    EXPECT_EQ(DecodeBase64(text), bytes) << size;
  }
}

TEST(Base64, RefusesAllElse) {
  for (const std::string text : {"Z",     "Zg",      "Zg=",    "Zg===",    "=",        "====",
                                 "A===",  "Zh==",    "Zm9=",   "Zg==Zg==", "Z=g=",     " Zm9v",
                                 "Zm9v ", "Zm9v\n",  "Zm\n9v", "Zm9v====", "Zm9-",     "Zm9_",
                                 "-m9v",  "Zm9\xff", "    ",   "Zm9v    ", "    Zm9v", "Zm9vZm9-"}) {
    EXPECT_FALSE(DecodeBase64(text)) << text;
  }
  EXPECT_FALSE(DecodeBase64(std::string("Zm\0v", 4)));
}

}  // namespace
}  // namespace qwen_image
