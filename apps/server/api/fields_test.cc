#include "server/api/fields.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "qwen_image/error.h"

namespace qwen_image::api {
namespace {

using testing::HasSubstr;

// The message of the kUsage error that `call` throws.
std::string Refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage) << error.message();
    return error.message();
  }
  ADD_FAILURE() << "not refused";
  return "";
}

TEST(Fields, BodiesThatAreNoObject) {
  EXPECT_THAT(Refusal([] { ParseBody(""); }), HasSubstr("no body"));
  EXPECT_THAT(Refusal([] { ParseBody("{"); }), HasSubstr("not valid JSON"));
  EXPECT_THAT(Refusal([] { ParseBody("[1,2]"); }), HasSubstr("a list of 2; a JSON object is expected"));
  EXPECT_THAT(Refusal([] { ParseBody("\"x\""); }), HasSubstr("\"x\""));
  EXPECT_THAT(Refusal([] { ParseBody(R"({"n": 1, "n": 2})"); }), HasSubstr("\"n\" occurs twice"));
  EXPECT_THAT(Refusal([] { ParseBody(R"({"cfg": 1e999})"); }), HasSubstr("1e999"));
  EXPECT_THAT(Refusal([] { ParseBody(R"({"cfg": NaN})"); }), HasSubstr("not valid JSON"));
  EXPECT_THAT(Refusal([] { ParseBody("{\"prompt\": \"\xff\"}"); }), HasSubstr("UTF-8"));
  EXPECT_THAT(Refusal([] { ParseBody(std::string(100'000, '[')); }), HasSubstr("nested"));
}

TEST(Fields, NullIsAbsent) {
  const Json body = {{"a", nullptr}};
  const Fields fields(body);
  EXPECT_FALSE(fields.Find("a") || fields.Find("b"));
  EXPECT_FALSE(fields.Text("a", 5) || fields.Whole("a", 1, 2) || fields.Number("a") || fields.Flag("a"));
}

TEST(Fields, WholeNumbers) {
  const Json body = {{"one", 1}, {"float", 20.0}, {"most", 200}};
  const Fields fields(body);
  EXPECT_EQ(fields.Whole("one", 1, 200), 1);
  EXPECT_EQ(fields.Whole("float", 1, 200), 20);
  EXPECT_EQ(fields.Whole("most", 1, 200), 200);
  for (const Json& wrong :
       std::vector<Json>{-1, 0, 201, 1'000'000'000, 1.5, "20", true, Json::array({1}), 1e300, -1e300,
                         std::nan(""), INFINITY, 18446744073709551615ull}) {
    const Json bad = {{"steps", wrong}};
    EXPECT_THAT(Refusal([&] { Fields(bad).Whole("steps", 1, 200); }),
                HasSubstr("steps must be a whole number from 1 to 200, not "));
  }
  const Json negative = {{"steps", -1}};
  EXPECT_EQ(Refusal([&] { Fields(negative).Whole("steps", 1, 200); }),
            "steps must be a whole number from 1 to 200, not -1");
}

TEST(Fields, NumbersFlagsAndChoices) {
  const Json body = {{"x", 4}, {"y", 0.5}, {"yes", true}, {"mode", "on"}};
  const Fields fields(body);
  EXPECT_EQ(fields.Number("x"), 4.0);
  EXPECT_EQ(fields.Number("y"), 0.5);
  EXPECT_EQ(fields.Flag("yes"), true);
  EXPECT_EQ(fields.OneOf("mode", {"on", "off"}), "on");
  EXPECT_EQ(Refusal([&] { fields.OneOf("mode", {"auto", "off"}); }), "mode must be auto or off, not \"on\"");
  EXPECT_THAT(Refusal([&] { fields.OneOf("x", {"auto"}); }), HasSubstr("not 4"));
  EXPECT_EQ(Refusal([&] { fields.Number("yes"); }), "yes must be a finite number, not true");
  EXPECT_EQ(Refusal([&] { fields.Flag("x"); }), "x must be true or false, not 4");
  const Json infinite = {{"x", INFINITY}, {"y", std::nan("")}};
  Refusal([&] { Fields(infinite).Number("x"); });
  Refusal([&] { Fields(infinite).Number("y"); });
}

TEST(Fields, Text) {
  const Json body = {{"ok", "caf\xc3\xa9"},
                     {"bytes", "\xc3"},
                     {"nul", std::string("a\0b", 3)},
                     {"number", 5},
                     {"escape", std::string("\x1b[2J") + '\xff'}};
  const Fields fields(body);
  EXPECT_EQ(fields.Text("ok", 5), "caf\xc3\xa9");
  EXPECT_EQ(Refusal([&] { fields.Text("ok", 4); }), "ok has 5 bytes; at most 4 are taken");
  EXPECT_THAT(Refusal([&] { fields.Text("bytes", 9); }), HasSubstr("bytes is not valid UTF-8: \"\\xc3\""));
  EXPECT_THAT(Refusal([&] { fields.Text("nul", 9); }), HasSubstr("nul holds a NUL character, at byte 1"));
  EXPECT_EQ(Refusal([&] { fields.Text("number", 9); }), "number must be text, not 5");
  EXPECT_EQ(Refusal([&] { fields.Text("escape", 9); }).find('\x1b'), std::string::npos);
}

// Each value costs a hundred bytes once parsed: 64 MB of them would be a gigabyte and more.
TEST(Fields, ThereAreNotMillionsOfThem) {
  std::string keys, values;
  for (int i = 0; i < 10'000; ++i) {
    keys += fmt::format(R"("{}":1,)", i);
    values += "1,";
  }
  EXPECT_THAT(Refusal([&] { ParseBody('{' + keys + R"("prompt":"x"})"); }),
              HasSubstr("more than 5000 values"));
  EXPECT_THAT(Refusal([&] { ParseBody(R"({"sigmas":[)" + values + "1]}"); }),
              HasSubstr("more than 5000 values"));
}

TEST(Fields, AnUnknownOneIsNamedInPart) {
  const Json body = {{std::string(10'000'000, 'x'), 1}};  // NOLINT(bugprone-string-constructor): so large
  try {
    Fields(body).RefuseUnknown({});
    FAIL() << "not refused";
  } catch (const FieldError& error) {
    EXPECT_LT(error.message().size(), 1000u);
    EXPECT_LT(error.field().size(), 1000u);
  }
}

TEST(Fields, UnknownOnesAreNamed) {
  const Json body = {{"prompt", "x"}, {"stpes", 5}};
  EXPECT_EQ(Refusal([&] {
              Fields(body).RefuseUnknown({"prompt", "steps"});
            }),
            "the field \"stpes\" is not known; known are prompt, steps");
  Fields(body).RefuseUnknown({"prompt", "stpes"});
}

}  // namespace
}  // namespace qwen_image::api
