#include "server/http/multipart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "qwen_image/error.h"

namespace qwen_image::http {
namespace {

using testing::HasSubstr;

constexpr const char* kType = "multipart/form-data; boundary=XX";

std::string Part(const std::string& disposition, const std::string& contents) {
  return "--XX\r\nContent-Disposition: " + disposition + "\r\n\r\n" + contents + "\r\n";
}
std::string Named(const std::string& name, const std::string& contents) {
  return Part("form-data; name=\"" + name + "\"", contents);
}
const std::string kEnd = "--XX--\r\n";

std::string Refusal(const std::string& body, const std::string& type = kType) {
  try {
    ParseMultipart(type, body);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    return error.message();
  }
  ADD_FAILURE() << "not refused: " << body.substr(0, 200);
  return "";
}

// As Python's httpx and curl send them.
TEST(Multipart, AForm) {
  const std::string body =
      "--XX\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\na red circle\r\n"
      "--XX\r\nContent-Disposition: form-data; name=\"image\"; filename=\"a \\\"b\\\".png\"\r\n"
      "Content-Type: image/png\r\n\r\n\x89PNG\r\n--X\r\n\r\n--XX\r\ncontent-disposition: form-data; "
      "name=n\r\n\r\n\r\n--XX--\r\n";
  const auto parts = ParseMultipart(kType, body);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].name, "prompt");
  EXPECT_EQ(parts[0].contents, "a red circle");
  EXPECT_FALSE(parts[0].is_file);
  EXPECT_EQ(parts[1].name, "image");
  EXPECT_EQ(parts[1].contents, "\x89PNG\r\n--X\r\n");
  EXPECT_TRUE(parts[1].is_file);
  EXPECT_EQ(parts[2].name, "n");
  EXPECT_EQ(parts[2].contents, "");
}

TEST(Multipart, NamesWithQuotesAndEscapes) {
  const auto name_of = [](const std::string& disposition) {
    return ParseMultipart(kType, Part(disposition, "x") + kEnd).at(0).name;
  };
  EXPECT_EQ(name_of(R"(form-data; name="a\"b\\c\d")"), R"(a"b\c\d)");
  EXPECT_EQ(name_of(R"(form-data; name="a%22b%0D%0ac%41")"), "a\"b\r\nc%41");
  EXPECT_EQ(name_of(R"(form-data; filename="x;name=y"; name="image[]")"), "image[]");
  EXPECT_EQ(name_of(R"(FORM-DATA ; NAME = plain ;)"), "plain");
  EXPECT_EQ(name_of(R"(form-data; name= "spaced" ; x=y)"), "spaced");
  EXPECT_EQ(name_of(R"(form-data; name="")"), "");
  EXPECT_EQ(name_of("form-data; name=\"caf\xc3\xa9\""), "caf\xc3\xa9");
}

TEST(Multipart, Boundaries) {
  const auto count = [](const std::string& type, const std::string& body) {
    return ParseMultipart(type, body).size();
  };
  EXPECT_EQ(count("Multipart/Form-Data; charset=utf-8; BOUNDARY=\"XX\"", Named("a", "1") + kEnd), 1u);
  EXPECT_EQ(count(kType, "--XX--"), 0u);
  EXPECT_EQ(count(kType, Named("a", "1") + "--XX-- epilogue"), 1u);
  EXPECT_EQ(count(kType, "--XX  \t\r\n" + Named("a", "1").substr(6) + kEnd), 1u);
  // A longer line that begins like a boundary is contents.
  const std::string tricky = Named("a", "x\r\n--XXL\r\n--XX L\r\ny") + kEnd;
  EXPECT_EQ(ParseMultipart(kType, tricky).at(0).contents, "x\r\n--XXL\r\n--XX L\r\ny");
  EXPECT_THAT(Refusal("", "multipart/form-data"), HasSubstr("names no boundary"));
  EXPECT_THAT(Refusal("", "application/json"),
              HasSubstr("\"application/json\"; multipart/form-data is expected"));
  EXPECT_THAT(Refusal("", "multipart/form-data; boundary="), HasSubstr("1 to 70"));
  EXPECT_THAT(Refusal("", "multipart/form-data; boundary=" + std::string(71, 'a')), HasSubstr("1 to 70"));
  EXPECT_THAT(Refusal("", "multipart/form-data; boundary=\"a \""), HasSubstr("1 to 70"));
  EXPECT_THAT(Refusal("", "multipart/form-data; boundary=a\xff"), HasSubstr("1 to 70"));
  EXPECT_THAT(Refusal("", "multipart/form-data; boundary=a; boundary=b"), HasSubstr("\"boundary\" twice"));
  EXPECT_THAT(Refusal("", "multipart/form-data; boundary=\"a"), HasSubstr("quote without an end"));
  EXPECT_THAT(Refusal("", "multipart/form-data; boundary"), HasSubstr("without ="));
}

TEST(Multipart, FormsThatAreNotWhole) {
  const std::string whole = Named("a", "1") + Named("b", "2") + "--XX--";
  for (size_t size = 0; size < whole.size(); ++size) Refusal(whole.substr(0, size));
  EXPECT_EQ(ParseMultipart(kType, whole).size(), 2u);
  EXPECT_THAT(Refusal("hello" + whole), HasSubstr("does not begin with its boundary"));
  EXPECT_THAT(Refusal(Named("a", "1")), HasSubstr("cut off"));
  EXPECT_THAT(Refusal("--XXL\r\n"), HasSubstr("something else behind a boundary"));
}

TEST(Multipart, PartsThatAreNone) {
  EXPECT_THAT(Refusal("--XX\r\n\r\nx\r\n" + kEnd), HasSubstr("no Content-Disposition"));
  EXPECT_THAT(Refusal("--XX\r\nContent-Type: text/plain\r\n\r\nx\r\n" + kEnd),
              HasSubstr("no Content-Disposition"));
  EXPECT_THAT(Refusal(Part("attachment; name=a", "x") + kEnd),
              HasSubstr("form-data with a name is expected"));
  EXPECT_THAT(Refusal(Part("form-data", "x") + kEnd), HasSubstr("form-data with a name is expected"));
  EXPECT_THAT(Refusal(Part("form-data; name=a; name=b", "x") + kEnd), HasSubstr("\"name\" twice"));
  EXPECT_THAT(Refusal(Part("form-data; name=\"a", "x") + kEnd), HasSubstr("quote without an end"));
  EXPECT_THAT(Refusal(Part("form-data; name=\"a\"b", "x") + kEnd),
              HasSubstr("where ; or its end is expected"));
  const std::string twice = "form-data; name=a\r\nContent-Disposition: form-data; name=b";
  EXPECT_THAT(Refusal(Part(twice, "x") + kEnd), HasSubstr("one form-data"));
  EXPECT_THAT(Refusal(Part("form-data; name=a\r\n folded: x", "x") + kEnd), HasSubstr("header that is none"));
  EXPECT_THAT(Refusal(Part("form-data; name=a\nb: x", "x") + kEnd), HasSubstr("header that is none"));
  EXPECT_THAT(Refusal(Part(std::string("form-data; name=\"a\0\"", 20), "x") + kEnd),
              HasSubstr("header that is none"));
  EXPECT_THAT(Refusal(Part("form-data; name=a\r\nContent-Transfer-Encoding: base64", "x") + kEnd),
              HasSubstr("encoded as \"base64\"; send it as it is"));
}

TEST(Multipart, Limits) {
  std::string many;
  for (int i = 0; i < 64; ++i) many += Named("a", "1");
  EXPECT_EQ(ParseMultipart(kType, many + kEnd).size(), 64u);
  EXPECT_THAT(Refusal(many + Named("a", "1") + kEnd), HasSubstr("more than 64 parts"));
  EXPECT_THAT(Refusal(Named(std::string(5000, 'n'), "1") + kEnd), HasSubstr("more than 4096 bytes"));
  EXPECT_EQ(ParseMultipart(kType, Named("a", std::string(1 << 20, '\r')) + kEnd).at(0).contents.size(),
            1u << 20);
}

}  // namespace
}  // namespace qwen_image::http
