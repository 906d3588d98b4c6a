#include "files/digest.h"

#include <gtest/gtest.h>

namespace qwen_image {
namespace {

std::string HashOf(Digest::Kind kind, std::string_view bytes) {
  Digest digest(kind, bytes.size());
  for (const char& byte : bytes) digest.Add({&byte, 1});
  return digest.Finish();
}

TEST(Digest, Sha256) {  // the examples of FIPS 180
  EXPECT_EQ(HashOf(Digest::Kind::kSha256, "abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256("abc"), HashOf(Digest::Kind::kSha256, "abc"));
  EXPECT_EQ(HashOf(Digest::Kind::kSha256, ""),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Digest, GitBlob) {  // as printed by git hash-object
  EXPECT_EQ(HashOf(Digest::Kind::kGitBlob, ""), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
  EXPECT_EQ(HashOf(Digest::Kind::kGitBlob, "hello\n"), "ce013625030ba8dba906f756967f9e9ca394464a");
}

TEST(Digest, RestartForgets) {
  for (const Digest::Kind kind : {Digest::Kind::kSha256, Digest::Kind::kGitBlob}) {
    Digest digest(kind, 3);
    digest.Add("xy");
    digest.Restart();
    digest.Add("abc");
    EXPECT_EQ(digest.Finish(), HashOf(kind, "abc"));
  }
}

}  // namespace
}  // namespace qwen_image
