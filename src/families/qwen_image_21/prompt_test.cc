#include "families/qwen_image_21/prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "families/qwen_image_21/edit_sizes.h"
#include "files/json.h"
#include "files/testing.h"

namespace qwen_image::qwen_image_21 {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using SpecialTokens = Tokenizer::SpecialTokens;
using Ids = std::vector<int64_t>;

const std::filesystem::path kTiny = std::filesystem::path(QWEN_IMAGE_SOURCE_DIR) / "models/tiny/tokenizer";

Json Goldens() {
  return ReadJsonFile(QWEN_IMAGE_SOURCE_DIR "/tests/goldens/conditioner21/prompts.json")["rows"];
}

TEST(Prompt, HasTheOfficialTemplates) {
  const Json official = Goldens()[0];
  const std::string start = std::string(kSystemMessage).append(kUserRole), end(kPromptSuffix);
  EXPECT_EQ(start + "{}" + end, official["t2i"].get<std::string>());
  EXPECT_EQ(start + "<image1><|vision_start|><|image_pad|><|vision_end|>{}" + end,
            official["ti2i"].get<std::string>());
  EXPECT_EQ(DroppedTokens(Tokenizer(kTiny)), official["dropped"].get<int64_t>());
}

TEST(Prompt, GivesTheOfficialIds) {
  const Tokenizer tokenizer(kTiny);
  const Json goldens = Goldens();
  ASSERT_GE(goldens.size(), 40u);
  size_t refused = 0;
  for (size_t i = 1; i < goldens.size(); ++i) {
    const Json& row = goldens[i];
    SCOPED_TRACE(row["image_tokens"].dump() + row["prompt"].dump(-1, ' ', true).substr(0, 80));
    const auto prompt = row["prompt"].get<std::string>();
    const auto image_tokens = row["image_tokens"].get<Ids>();
    const EncodedPrompt literal = EncodePrompt(tokenizer, prompt, image_tokens);
    EXPECT_EQ(literal.ids, row["literal"].get<Ids>());
    EXPECT_EQ(literal.dropped, 28);
    EXPECT_EQ(literal.image_token, image_tokens.empty() ? -1 : tokenizer.TokenId("<|image_pad|>"));
    EXPECT_FALSE(literal.truncated);
    EXPECT_EQ(literal.embeds(), static_cast<int64_t>(literal.ids.size()) - 28);
    const auto parse = [&] {
      return EncodePrompt(tokenizer, prompt, image_tokens, SpecialTokens::kParse).ids;
    };
    if (row["parse"].is_null()) {
      ++refused;
      EXPECT_THAT(MessageOf(ErrorKind::kUsage, parse), HasSubstr("a picture that was not given"));
    } else {
      EXPECT_EQ(parse(), row["parse"].get<Ids>());
    }
  }
  EXPECT_EQ(refused, 3u);
}

TEST(Prompt, CountsItsOwnTokens) {
  const Tokenizer tokenizer(kTiny);
  for (const Ids& image_tokens : {Ids{}, Ids{3}, Ids{1, 2}}) {
    EXPECT_EQ(EncodePrompt(tokenizer, "777", image_tokens).prompt_tokens, 3);
    EXPECT_EQ(EncodePrompt(tokenizer, std::string(5000, '7'), image_tokens).prompt_tokens, 5000);
  }
}

TEST(Prompt, RefusesInvalidUtf8) {
  const Tokenizer tokenizer(kTiny);
  for (const Ids& image_tokens : {Ids{}, Ids{3}}) {
    EXPECT_THAT(MessageOf(ErrorKind::kUsage, [&] { EncodePrompt(tokenizer, "ab\xFF", image_tokens); }),
                HasSubstr("byte 2 "));
  }
}

TEST(PlanEdit, BringsEveryPictureToOneSizeForBothEncoders) {
  const std::vector<ImageSize> inputs = {{4000, 3000}, {100, 100}, {1080, 1920}};
  const std::vector<EditInputSizes> sizes = PlanEdit(inputs, 1024 * 1024);
  ASSERT_EQ(sizes.size(), 3u);
  // calculate_dimensions of the official pipeline.
  const ImageSize want[] = {{1184, 896}, {1024, 1024}, {768, 1376}};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(sizes[i].input, inputs[i]);
    EXPECT_EQ(sizes[i].vae, want[i]) << i;
    EXPECT_EQ(sizes[i].condition, want[i]) << i;
  }
  EXPECT_EQ(PlanEdit(std::vector<ImageSize>{{33, 90}}, 64 * 64)[0].vae, (ImageSize{32, 96}));
}

TEST(PlanEdit, TakesOneToTenPictures) {
  const auto message = [](size_t count, ImageSize size, ErrorKind kind) {
    return MessageOf(kind, [&] { PlanEdit(std::vector<ImageSize>(count, size), 1024 * 1024); });
  };
  EXPECT_EQ(PlanEdit(std::vector<ImageSize>(10, {64, 64}), 1024 * 1024).size(), 10u);
  EXPECT_THAT(message(11, {64, 64}, ErrorKind::kUsage),
              HasSubstr("11 input images are too many; at most 10"));
  EXPECT_THAT(message(0, {64, 64}, ErrorKind::kUsage), HasSubstr("at least one"));
  EXPECT_THAT(message(1, {64, 0}, ErrorKind::kUsage), HasSubstr("64x0 has no pixels"));
  EXPECT_THAT(message(2, {100000, 1}, ErrorKind::kBadInput),
              AllOf(HasSubstr("100000x1"), HasSubstr("less extreme")));
}

}  // namespace
}  // namespace qwen_image::qwen_image_21
