#include "weights/binder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/fail.h"
#include "files/testing.h"

namespace qwen_image {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

// A folder with one file of tensors; `data` of "x" bytes where nobody looks at them.
class Weights {
 public:
  void Add(const std::string& name, const std::string& dtype, const Shape& shape, const std::string& bytes) {
    header_ += fmt::format(R"({}"{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})",
                           header_.empty() ? "" : ",", name, dtype, ToString(shape), data_.size(),
                           data_.size() + bytes.size());
    data_ += bytes;
  }
  WeightStore Open() {
    folder_.Write("model.safetensors", SafetensorsBytes("{" + header_ + "}", data_));
    return WeightStore(folder_.path(), Component::kTransformer);
  }

 private:
  TempFolder folder_;
  std::string header_, data_;
};

std::string FinishMessage(WeightBinder& binder) {
  return MessageOf(ErrorKind::kBadInput, [&] { binder.Finish(); });
}

const std::string kBf16("\x80\x3f\x00\xc0", 4);  // 1, -2
const std::string kF16("\x00\x3c\x00\xc0", 4);   // 1, -2

TEST(WeightBinder, FloatsAreConverted) {
  Weights weights;
  weights.Add("f16", "F16", {2}, kF16);
  weights.Add("bf16", "BF16", {2, 1}, kBf16);
  weights.Add("f32", "F32", {1}, LittleEndian(0x40490fdb, 4));
  weights.Add("none", "F32", {0}, "");
  WeightStore store = weights.Open();
  WeightBinder binder(store);
  EXPECT_THAT(binder.Floats("f16", {2}), ElementsAre(1.0f, -2.0f));
  EXPECT_THAT(binder.Floats("bf16", {2, 1}), ElementsAre(1.0f, -2.0f));
  EXPECT_THAT(binder.Floats("f32", {1}), ElementsAre(3.14159274f));
  EXPECT_TRUE(binder.Floats("none", {0}).empty());
  binder.Finish();
}

TEST(WeightBinder, MatricesStayWhereTheyAre) {
  Weights weights;
  weights.Add("conv", "BF16", {2, 3, 1, 2}, std::string(24, 'x'));
  weights.Add("linear", "F32", {1, 2}, std::string(8, 'x'));
  WeightStore store = weights.Open();
  WeightBinder binder(store);
  const WeightMatrix conv = binder.Matrix("conv", {2, 3, 1, 2});
  EXPECT_EQ(conv.data, store.tensors().at("conv").stored().tensor->bytes.data());
  EXPECT_EQ(conv.dtype, DType::kBF16);
  EXPECT_EQ(conv.rows, 2);
  EXPECT_EQ(conv.cols, 6);
  EXPECT_EQ(binder.Matrix("linear", {1, 2}).cols, 2);
  binder.Finish();
}

TEST(WeightBinder, AllProblemsAreListedAtOnce) {
  Weights weights;
  weights.Add("good", "BF16", {2}, kBf16);
  weights.Add("transposed", "BF16", {1, 2}, kBf16);
  weights.Add("int8", "I8", {4}, "xxxx");
  weights.Add("surplus", "BF16", {2}, kBf16);
  WeightStore store = weights.Open();
  WeightBinder binder(store);
  binder.Floats("good", {2});
  EXPECT_EQ(binder.Matrix("transposed", {2, 1}).data, nullptr);
  EXPECT_EQ(binder.Matrix("int8", {4}).data, nullptr);
  EXPECT_TRUE(binder.Floats("absent", {int64_t{1} << 50}).empty());  // and no attempt to allocate it
  const std::string message = FinishMessage(binder);
  EXPECT_THAT(message, HasSubstr("1 missing, 1 of a wrong shape, 1 not readable, 1 not expected\n"));
  EXPECT_THAT(message, HasSubstr("\n  absent is missing, expected with shape [1125899906842624]\n"));
  EXPECT_THAT(message, HasSubstr("\n  transposed has shape [1, 2], expected [2, 1]\n"));
  EXPECT_THAT(message, HasSubstr("\n  int8 has type I8 without a scale\n"));
  EXPECT_THAT(message, HasSubstr("\n  surplus is not expected"));
  EXPECT_THAT(message, Not(HasSubstr("good")));
}

TEST(WeightBinder, LongListsAreCut) {
  Weights weights;
  weights.Add("a", "BF16", {2}, kBf16);
  WeightStore store = weights.Open();
  WeightBinder binder(store);
  binder.AllowUnused("a");
  for (int i = 0; i < 205; ++i) binder.Floats(fmt::format("t{:03}", i), {1});
  const std::string message = FinishMessage(binder);
  EXPECT_THAT(message, AllOf(HasSubstr("205 missing"), HasSubstr("t199 is missing"), Not(HasSubstr("t200"))));
  EXPECT_TRUE(message.ends_with("\n  … and 5 more")) << message;
  EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 201);
}

TEST(WeightBinder, WhatIsTheSameInAllBlocksIsALine) {
  Weights weights;
  for (const char* name : {"a.0.w", "a.1.w", "a.3.w"}) weights.Add(name, "BF16", {2}, kBf16);
  WeightStore store = weights.Open();
  WeightBinder binder(store);
  binder.Floats("a.0.w", {1});
  for (int i = 0; i < 60; ++i) binder.Floats(fmt::format("blocks.{}.to_q", i), {i == 7 ? 2 : 1});
  EXPECT_THAT(FinishMessage(binder),
              EndsWith("\n  blocks.{0…6,8…59}.to_q (59) is missing, expected with shape [1]"
                       "\n  blocks.7.to_q is missing, expected with shape [2]"
                       "\n  a.0.w has shape [2], expected [1]"
                       "\n  a.{1,3}.w (2) is not expected"));
}

TEST(WeightBinder, UnusedTensorsMayBeAllowed) {
  const std::pair<const char*, bool> patterns[] = {
      {"a.time_conv.w", true}, {"a.*", true},          {"*", true},
      {"*.time_conv.*", true}, {"*w", true},           {"a*time*w*", true},
      {"**.w", true},          {"a.", false},          {"", false},
      {"time_conv*", false},   {"*.time_conv", false}, {"a.*.x", false},
      {"*a.t*a", false}};
  for (const auto& [pattern, allowed] : patterns) {
    Weights weights;
    weights.Add("a.time_conv.w", "BF16", {2}, kBf16);
    WeightStore store = weights.Open();
    WeightBinder binder(store);
    binder.AllowUnused("other.*");
    binder.AllowUnused(pattern);
    if (allowed) {
      EXPECT_NO_THROW(binder.Finish()) << pattern;
    } else {
      EXPECT_THAT(FinishMessage(binder), HasSubstr("a.time_conv.w is not expected")) << pattern;
    }
  }
}

TEST(WeightBinder, AForeignPrefixIsNamed) {
  Weights weights;
  for (const char* name : {"net.a.w", "net.b.w", "net.c"}) {
    weights.Add(name, "BF16", {2}, kBf16);
  }
  WeightStore store = weights.Open();
  WeightBinder longer(store);
  longer.Floats("a.w", {2});
  longer.Floats("b.w", {2});
  EXPECT_THAT(FinishMessage(longer), HasSubstr("there with the prefix \"net.\"\n"));
  WeightBinder shorter(store);
  shorter.Floats("x.net.a.w", {2});
  EXPECT_THAT(FinishMessage(shorter), HasSubstr("there without the prefix \"x.\"\n"));
  WeightBinder other(store);
  other.Floats("a.w", {2});
  other.Floats("z.w", {2});
  EXPECT_THAT(FinishMessage(other), Not(HasSubstr("prefix")));
}

TEST(WeightBinder, TakingATensorTwiceIsABug) {
  Weights weights;
  weights.Add("a", "BF16", {2}, kBf16);
  WeightStore store = weights.Open();
  WeightBinder binder(store);
  binder.Floats("a", {2});
  EXPECT_THAT(MessageOf(ErrorKind::kInternal, [&] { binder.Matrix("a", {2}); }),
              HasSubstr("\"a\" is taken twice"));
}

}  // namespace
}  // namespace qwen_image
