#include "families/qwen_image_21/joint_sequence.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "qwen_image/error.h"

namespace qwen_image::qwen_image_21 {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSlot = 7;

std::string UsageError(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return error.message();
  }
  return "(no error)";
}

std::string Text(const JointSequence& sequence) {
  std::string text;
  for (const auto& s : sequence.segments)
    text += fmt::format("{}{}-{} ", s.is_text ? fmt::format("text@{} ", s.first_embed) : "picture ", s.begin,
                        s.end);
  return text;
}

TEST(JointSequence, TextAloneIsOneCausalSegmentBeforeTheTarget) {
  const JointSequence sequence = LayOut(5, {}, kSlot, {}, {2, 3});
  EXPECT_EQ(Text(sequence), "text@0 0-5 ");
  EXPECT_EQ(sequence.tokens(), 11);
  const std::vector<AttentionSpan> spans = sequence.Spans();
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_TRUE(spans[0].causal);
  EXPECT_EQ(spans[0].keys, 5);
  EXPECT_FALSE(spans[1].causal);
  EXPECT_EQ(spans[1].first_query, 5);
  EXPECT_EQ(spans[1].queries, 6);
  EXPECT_EQ(spans[1].keys, 11);
}

// Each slot is 2 × 2 tokens; pictures that follow each other stay apart.
TEST(JointSequence, PicturesTakeThePlaceOfTheirSlots) {
  const std::vector<int64_t> ids = {1, 2, kSlot, kSlot, kSlot, 3, kSlot};
  const std::vector<TokenGrid> grids = {{2, 4}, {2, 2}, {2, 2}};
  const JointSequence sequence = LayOut(7, ids, kSlot, grids, {4, 4});
  EXPECT_EQ(Text(sequence), "text@0 0-2 picture 2-10 picture 10-14 text@5 14-15 picture 15-19 ");
  EXPECT_EQ(sequence.prefix(), 19);
  EXPECT_EQ(sequence.Spans()[2].keys, 14);
  EXPECT_FALSE(sequence.Spans()[2].causal);
}

TEST(JointSequence, RefusesPromptsThatDoNotFitTheirPictures) {
  const std::vector<int64_t> two = {1, kSlot, kSlot, 2};
  const std::vector<TokenGrid> large = {{4, 4}}, small = {{2, 2}}, three = {{2, 2}, {2, 2}, {2, 2}};
  EXPECT_THAT(UsageError([&] {
                LayOut(4, two, kSlot, large, {2, 2});
              }),
              HasSubstr("has 2 tokens for picture 1"));
  EXPECT_THAT(UsageError([&] {
                LayOut(4, two, kSlot, small, {2, 2});
              }),
              HasSubstr("more pictures than the 1"));
  EXPECT_THAT(UsageError([&] { LayOut(4, two, kSlot, three, {2, 2}); }), HasSubstr("places for 2 of 3"));
  EXPECT_THAT(UsageError([&] { LayOut(4, two, kSlot, {}, {2, 2}); }), HasSubstr("no picture was given"));
  EXPECT_THAT(UsageError([&] { LayOut(4, {}, kSlot, small, {2, 2}); }), HasSubstr("0 for 4 embeddings"));
}

TEST(JointSequence, PositionsFreezeTheFrameOfAPictureAndGoOnBehindItsLongerSide) {
  const std::vector<int64_t> ids = {1, kSlot, 2};
  const std::vector<TokenGrid> grids = {{1, 4}};
  const std::vector<Position> positions = PositionsOf(LayOut(3, ids, kSlot, grids, {3, 2}));
  std::string text;
  for (const Position& p : positions) text += fmt::format("{},{},{} ", p.frame, p.height, p.width);
  EXPECT_EQ(text,
            "0,0,0 1,-1,-2 1,-1,-1 1,-1,0 1,-1,1 5,5,5 "
            "6,-2,-1 6,-2,0 6,-1,-1 6,-1,0 6,0,-1 6,0,0 ");
}

TEST(JointSequence, RefusesWhatThePositionsDoNotReach) {
  const auto positions = [](int64_t embeds, TokenGrid target) {
    return UsageError([&] { PositionsOf(LayOut(embeds, {}, kSlot, {}, target)); });
  };
  EXPECT_EQ(positions(8191, {2, 2}), "(no error)");
  EXPECT_THAT(positions(8192, {2, 2}), HasSubstr("reach position 8192"));
  EXPECT_EQ(positions(1, {2048, 1}), "(no error)");
  EXPECT_THAT(positions(1, {2049, 1}), HasSubstr("larger than this model's positions reach"));
}

}  // namespace
}  // namespace qwen_image::qwen_image_21
