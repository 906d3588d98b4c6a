#include "parity/record/name_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "files/testing.h"

namespace qwen_image::record {
namespace {

using ::testing::HasSubstr;

TEST(NameMap, CarriesWhatTheStarsMatch) {
  const NameMap map({{"latents", "packed_latents_step0"},
                     {"block_*_q", "transformer/step000/transformer_blocks.*.attn.to_q"},
                     {"s*/b*/img", "transformer/step*/transformer_blocks.*:img"},
                     {"*", "other/*"}},
                    "map.json");
  EXPECT_EQ(map("latents"), "packed_latents_step0");
  EXPECT_EQ(map("block_12_q"), "transformer/step000/transformer_blocks.12.attn.to_q");
  EXPECT_EQ(map("s003.neg/b7/img"), "transformer/step003.neg/transformer_blocks.7:img");
  EXPECT_EQ(map("something"), "other/something");
  EXPECT_EQ(map("block__q"), "transformer/step000/transformer_blocks..attn.to_q");
}

TEST(NameMap, StarsAreAsShortAsPossible) {
  const NameMap map({{"a.*.*", "*|*"}}, "map.json");
  EXPECT_EQ(map("a.1.b.c"), "1|b.c");
  EXPECT_EQ(NameMap({{"*b*b", "*|*"}}, "map.json")("abbb"), "a|b");
}

TEST(NameMap, OtherNamesStay) {
  EXPECT_EQ(NameMap({{"a*", "b*"}}, "map.json")("x"), "x");
  EXPECT_EQ(NameMap(Json::object(), "map.json")("x"), "x");
}

TEST(NameMap, RefusesWhatIsNoMap) {
  const auto message = [](const Json& json) {
    return MessageOf(ErrorKind::kBadInput, [&] { NameMap(json, "map.json"); });
  };
  EXPECT_THAT(message(Json::array()), HasSubstr("map.json"));
  EXPECT_THAT(message({{"a", 1}}), HasSubstr("a name is expected"));
  EXPECT_THAT(message({{"a", {{"name", "b"}}}}), HasSubstr("import_run.py"));
  EXPECT_THAT(message({{"a*", "b"}}), HasSubstr("equally many"));
  EXPECT_THAT(MessageOf(ErrorKind::kBadInput,
                        [] {
                          NameMap({{"a*", "1*"}, {"*a", "2*"}}, "map.json")("aa");
                        }),
              HasSubstr("fits both"));
}

}  // namespace
}  // namespace qwen_image::record
