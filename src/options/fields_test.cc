// Every member of GenerateRequest is declared, in order, and each declaration says what every surface needs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <set>
#include <utility>

#include "options/field.h"
#include "options/testing.h"

namespace qwen_image::options {
namespace {

using testing::HasSubstr;

// Takes the place of any member.
struct Anything {
  template <typename Member>
  operator Member() const;  // NOLINT(google-explicit-constructor): it must convert by itself
};

template <typename Aggregate, size_t... kIndex>
constexpr bool HasMembers(std::index_sequence<kIndex...>) {
  return requires { Aggregate{((void)kIndex, Anything{})...}; };
}

// How many members an aggregate has: with one value more it cannot be made.
template <typename Aggregate, size_t kCount = 0>
constexpr size_t MemberCount() {
  if constexpr (HasMembers<Aggregate>(std::make_index_sequence<kCount + 1>())) {
    return MemberCount<Aggregate, kCount + 1>();
  } else {
    return kCount;
  }
}

size_t OffsetOf(const Field& field) {
  static const GenerateRequest request;
  return std::visit(
      [](auto member) {
        return static_cast<size_t>(reinterpret_cast<const char*>(&(request.*member)) -
                                   reinterpret_cast<const char*>(&request));
      },
      field.member);
}

TEST(Fields, EveryMemberOfARequestIsDeclared) {
  EXPECT_EQ(Fields().size(), MemberCount<GenerateRequest>())
      << "a member of GenerateRequest has no declaration in src/options/fields.cc, or one that is gone has";
  std::vector<size_t> offsets;
  for (const Field& field : Fields()) offsets.push_back(OffsetOf(field));
  for (size_t i = 1; i < offsets.size(); ++i)
    EXPECT_LT(offsets[i - 1], offsets[i])
        << Fields()[i].name << " is not in the order of GenerateRequest's members";
}

TEST(Fields, NamesAndFlagsAreUnique) {
  std::set<std::string> names, flags;
  for (const Field& field : Fields()) {
    EXPECT_TRUE(names.insert(field.name).second) << field.name;
    EXPECT_TRUE(flags.insert(FlagOf(field)).second) << field.name;
    EXPECT_EQ(FindField(field.name), &field);
  }
  EXPECT_EQ(FindField("stpes"), nullptr);
  EXPECT_EQ(FlagOf(*FindField("negative_prompt")), "--negative-prompt");
  EXPECT_EQ(FlagOf(*FindField("blend")), "--no-blend");
  EXPECT_EQ(FlagOf(*FindField("resume_folder")), "--resume-dir");
}

TEST(Fields, DeclarationsAreWhole) {
  for (const Field& field : Fields()) {
    SCOPED_TRACE(field.name);
    EXPECT_NE(std::string(field.help), "");
    EXPECT_EQ(field.least.has_value(), field.most.has_value());
    EXPECT_EQ(field.recorded == Recorded::kNever, field.not_in.record != nullptr) << "a reason, or a place";
    EXPECT_EQ(field.recorded == Recorded::kAsName, IsData(field));
    EXPECT_EQ(IsOnByDefault(field), field.command_line.off_help != nullptr);
    EXPECT_FALSE(field.command_line.not_in_generate && field.command_line.not_in_edit);
    EXPECT_TRUE(IsDefault(field, GenerateRequest()));
  }
}

TEST(Fields, ResetAndCopy) {
  GenerateRequest request;
  request.prompt = "x";
  request.init_image = Image{1, 1, {1, 2, 3}};
  request.outpaint = {1, 0, 0, 0};
  request.blend = false;
  for (const char* name : {"prompt", "init_image", "outpaint", "blend"})
    EXPECT_FALSE(IsDefault(*FindField(name), request)) << name;
  EXPECT_FALSE(WithoutData(request).init_image);
  EXPECT_EQ(WithoutData(request).outpaint.left, 1);
  for (const Field& field : Fields()) {
    Reset(field, request);
    EXPECT_TRUE(IsDefault(field, request)) << field.name;
  }
}

TEST(Fields, RangesAreThoseThatAreDeclared) {
  const auto refusal = [](const GenerateRequest& request) {
    try {
      CheckRanges(request);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      return error.message();
    }
    return std::string();
  };
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({.steps = 1001}), "steps must be from 1 to 1000, not 1001");
  EXPECT_EQ(refusal({.steps = -1}), "steps must be from 1 to 1000, not -1");
  EXPECT_EQ(refusal({.steps = 1000}), "");
  EXPECT_EQ(refusal({.cfg = -0.5}), "cfg must be a number from 0 to 1000, not -0.5");
  EXPECT_THAT(refusal({.cfg = NAN}), HasSubstr("cfg must be a number from 0 to 1000"));
  EXPECT_EQ(refusal({.strength = 2}), "the strength must be a number from 0 to 1, not 2");
  EXPECT_EQ(refusal({.step_cache = 1.5}),
            "the threshold of the step cache must be a number from 0 (off) to 1, not 1.5");
  // No setting declares a range for a plain whole number today; one may.
  const ScopedField trial({.name = "trial",
                           .member = &GenerateRequest::max_sequence_length,
                           .decides = Decides::kLatents,
                           .recorded = Recorded::kIfSet,
                           .help = "A trial",
                           .least = 100,
                           .most = 600});
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({.max_sequence_length = 5}), "trial must be from 100 to 600, not 5");
}

TEST(Fields, ATestMayDeclareOne) {
  const size_t declared = Fields().size();
  {
    const ScopedField trial({.name = "trial",
                             .member = &GenerateRequest::step_cache,
                             .decides = Decides::kLatents,
                             .recorded = Recorded::kIfSet,
                             .help = "A trial"});
    EXPECT_EQ(Fields().size(), declared + 1);
    EXPECT_NE(FindField("trial"), nullptr);
  }
  EXPECT_EQ(FindField("trial"), nullptr);
}

}  // namespace
}  // namespace qwen_image::options
