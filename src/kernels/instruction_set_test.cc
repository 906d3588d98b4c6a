#include "qwen_image/instruction_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/int8/tile.h"
#include "kernels/interface.h"
#include "qwen_image/error.h"

namespace qwen_image {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class InstructionSetChoice : public testing::Test {
 protected:
  ~InstructionSetChoice() override { UseInstructionSet("auto"); }
};

TEST_F(InstructionSetChoice, EveryNameChoosesKernelsOfItsOwn) {
  std::vector<std::string> seen;
  for (const std::string& name : InstructionSets()) {
    UseInstructionSet(name);
    const std::string kernels = InstructionSet() + ", " + ChosenInt8Kernel().name;
    EXPECT_THAT(seen, Not(Contains(kernels))) << name;
    seen.push_back(kernels);
  }
  EXPECT_GE(seen.size(), 2u);
}

TEST_F(InstructionSetChoice, AutoGoesBackToTheBest) {
  const std::string best = InstructionSet(), best_int8 = ChosenInt8Kernel().name;
  UseInstructionSet(InstructionSets().back());
  EXPECT_NE(ChosenInt8Kernel().name, best_int8);  // floats have one set of instructions alone on Arm
  EXPECT_STREQ(ChosenInt8Kernel().name, kInt8Portable.name);
  UseInstructionSet("auto");
  EXPECT_EQ(InstructionSet(), best);
  EXPECT_EQ(ChosenInt8Kernel().name, best_int8);
}

TEST_F(InstructionSetChoice, WhatCannotRunIsRefusedWithWhatCan) {
  UseInstructionSet(InstructionSets().back());
  for (const char* name : {"", "AVX2", "avx1024"}) {
    try {
      UseInstructionSet(name);
      ADD_FAILURE() << name << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      for (const std::string& there : InstructionSets()) EXPECT_THAT(error.message(), HasSubstr(there));
    }
  }
  EXPECT_STREQ(ChosenInt8Kernel().name, kInt8Portable.name) << "a refusal changed the choice";
}

#if defined(__x86_64__)
TEST_F(InstructionSetChoice, Avx2MeansAvx2Everywhere) {
  if (!testing::Value(InstructionSets(), Contains("avx2"))) GTEST_SKIP() << "not on this machine";
  UseInstructionSet("avx2");
  EXPECT_EQ(InstructionSet(), "AVX2");
  EXPECT_STREQ(ChosenInt8Kernel().name, "AVX2");
}
#endif

}  // namespace
}  // namespace qwen_image
