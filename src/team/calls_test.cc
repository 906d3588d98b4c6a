#include "team/calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "team/facts.h"

namespace qwen_image::team {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Messages, ComeBackAsTheyWere) {
  Tensor tensor({1, 2, 3});
  for (int64_t i = 0; i < tensor.size(); ++i) tensor[i] = static_cast<float>(i) / 3;
  Writer to;
  to.Put(tensor);
  to.Put(std::string("text"));
  to.PutAll(std::span<const int64_t>());
  to.Put(2.5);
  Reader from(to.bytes());
  const Tensor back = from.GetTensor();
  EXPECT_EQ(back.shape(), tensor.shape());
  EXPECT_TRUE(std::equal(tensor.data(), tensor.data() + tensor.size(), back.data()));
  EXPECT_EQ(from.GetText(), "text");
  EXPECT_THAT(from.GetAll<int64_t>(), IsEmpty());
  EXPECT_EQ(from.Get<double>(), 2.5);
  EXPECT_THROW(from.Get<char>(), Error) << "there is no more";
}

TEST(Messages, ThatAreTooShortAreRefusedBeforeMemoryIsTaken) {
  Writer to;
  to.PutAll(std::span<const int64_t>(std::vector<int64_t>{int64_t{1} << 40, int64_t{1} << 40}));
  EXPECT_THROW(Reader(to.bytes()).GetTensor(), Error);
  Writer count;
  count.Put(~uint64_t{0});
  EXPECT_THROW(Reader(count.bytes()).GetText(), Error);
}

TEST(Calls, CarryTheModel) {
  ModelCall call;
  call.files.model = "/models/a";
  call.files.variant = "2.1";
  call.files.loras = {{"/loras/b", 0.5}};
  call.options.precision = Precision::kExact;
  call.threads = 3;
  call.instruction_set = "avx2";
  call.split = Split::kLayers;
  const ModelCall back = ModelCall::Read(call.Write().bytes());
  EXPECT_EQ(back.files.model, call.files.model);
  EXPECT_EQ(back.files.vae, "");
  EXPECT_EQ(back.files.variant, "2.1");
  ASSERT_EQ(back.files.loras.size(), 1u);
  EXPECT_EQ(back.files.loras[0].path, "/loras/b");
  EXPECT_EQ(back.files.loras[0].scale, 0.5);
  EXPECT_EQ(back.options.precision, Precision::kExact);
  EXPECT_EQ(back.threads, 3);
  EXPECT_EQ(back.instruction_set, "avx2");
  EXPECT_EQ(back.split, Split::kLayers);
}

TEST(Calls, CarryConditions) {
  Tensor embeds({1, 2, 2}), references({1, 1, 4});
  std::fill_n(embeds.data(), embeds.size(), 0.5f);
  std::fill_n(references.data(), references.size(), 2.0f);
  const std::vector<int64_t> ids = {7, 8};
  Conditions conditions{.prompts = {{&embeds, ids}, {&embeds}}, .drawn = {4, 6}};
  conditions.references = &references;
  conditions.reference_grids = {{1, 1}};
  conditions.available_memory = 1000;
  const OwnedConditions owned(OwnedConditions::Write(conditions).bytes());
  const Conditions& back = owned.view();
  ASSERT_EQ(back.prompts.size(), 2u);
  EXPECT_THAT(back.prompts[0].ids, ElementsAre(7, 8));
  EXPECT_THAT(back.prompts[1].ids, IsEmpty());
  EXPECT_EQ(back.prompts[1].embeds->shape(), embeds.shape());
  EXPECT_EQ((*back.references)[3], 2.0f);
  EXPECT_EQ(back.reference_grids.at(0).tokens(), 1);
  EXPECT_EQ(back.drawn.tokens(), 24);
  EXPECT_EQ(back.available_memory, 1000);
}

TEST(Facts, ADifferenceIsNamed) {
  const Report first{.error = "", .facts = {{"the program and its kernels", "one"}, {"the weights", "same"}}};
  Report other = first;
  EXPECT_EQ(DifferenceOf(first, other), "");
  other.facts[0].second = "two";
  EXPECT_THAT(DifferenceOf(first, other),
              AllOf(HasSubstr("the program and its kernels"), HasSubstr("two there"), HasSubstr("one here")));
  other.facts.pop_back();
  EXPECT_THAT(DifferenceOf(first, other), HasSubstr("LoRAs"));
}

}  // namespace
}  // namespace qwen_image::team
