#include "weights/config_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "qwen_image/error.h"

namespace qwen_image {
namespace {

const Json kConfig = {{"layers", 4},         {"whole", 2.0},           {"half", 2.5},
                      {"huge", 1e300},       {"negative", -1},         {"flag", true},
                      {"none", nullptr},     {"name", "text"},         {"list", {1, 2, 3}},
                      {"mixed", {1, "two"}}, {"flags", {true, false}}, {"inner", {{"width", 8}}}};

template <typename Call>
std::string ErrorOf(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    return error.message();
  }
  return "(no error)";
}

TEST(ConfigReader, ReadsTypedFields) {
  const ConfigReader config(kConfig, "config.json");
  EXPECT_EQ(config.Int("layers", 1, 10), 4);
  EXPECT_EQ(config.Int("whole", 1, 10), 2);
  EXPECT_EQ(config.Int("absent", 1, 10, 7), 7);
  EXPECT_EQ(config.Int("none", 1, 10, 7), 7);
  EXPECT_EQ(config.Number("half"), 2.5);
  EXPECT_TRUE(config.Bool("flag", false));
  EXPECT_EQ(config.String("name", ""), "text");
  EXPECT_EQ(config.Ints("list", 0, 9), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(config.Bools("flags"), (std::vector<bool>{true, false}));
  EXPECT_EQ(config.Object("inner").Int("width", 1, 10), 8);
  EXPECT_FALSE(config.Has("none"));
}

TEST(ConfigReader, ErrorsNameFileAndKey) {
  const ConfigReader config(kConfig, "config.json");
  using testing::AllOf;
  using testing::HasSubstr;
  EXPECT_THAT(ErrorOf([&] { config.Int("absent", 1, 10); }),
              AllOf(HasSubstr("config.json"), HasSubstr("\"absent\"")));
  for (const char* key : {"half", "huge", "negative", "flag", "name", "list"}) {
    EXPECT_THAT(ErrorOf([&] { config.Int(key, 0, 10); }), AllOf(HasSubstr("config.json"), HasSubstr(key)));
  }
  EXPECT_NE(ErrorOf([&] { config.Number("name"); }), "(no error)");
  EXPECT_NE(ErrorOf([&] { config.Bool("layers", true); }), "(no error)");
  EXPECT_NE(ErrorOf([&] { config.String("layers", ""); }), "(no error)");
  EXPECT_NE(ErrorOf([&] { config.Ints("mixed", 0, 9); }), "(no error)");
  EXPECT_NE(ErrorOf([&] { config.Ints("layers", 0, 9); }), "(no error)");
  EXPECT_NE(ErrorOf([&] { config.Object("layers"); }), "(no error)");
  EXPECT_NE(ErrorOf([&] { ConfigReader(Json::array(), "x"); }), "(no error)");
}

TEST(ConfigReader, PositiveIsWhatA32BitFloatHolds) {
  for (const Json& value : {Json(-1), Json(0), Json(1e-50), Json(1e300)}) {
    const Json json = {{"rms_norm_eps", value}};
    EXPECT_THAT(ErrorOf([&] { ConfigReader(json, "c").Positive("rms_norm_eps", 1); }),
                testing::HasSubstr("expected a number above 0"))
        << value;
  }
}

TEST(ConfigReader, AHostileValueIsShownInPart) {
  const Json json = {{"layers", "\u202e" + std::string(1'000'000, 'x')}};
  const std::string message = ErrorOf([&] { ConfigReader(json, "c").Int("layers", 1, 10); });
  EXPECT_THAT(message, testing::Not(testing::HasSubstr("\u202e")));
  EXPECT_LT(message.size(), 300u);
}

}  // namespace
}  // namespace qwen_image
