#include "keep/tensor_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "files/testing.h"

namespace qwen_image::keep {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kRows = 5, kCols = 7;

TensorFile Example() {
  TensorFile kept{.metadata = {{"format", "example"}, {"step", "3"}}, .tensors = {}};
  Tensor tensor({1, kRows, kCols});
  for (int64_t i = 0; i < tensor.size(); ++i) tensor[i] = std::sin(static_cast<float>(i));
  kept.tensors.emplace("values", std::move(tensor));
  return kept;
}

const ExpectedTensors kExpected = {.metadata = {{"format", "example"}},
                                   .shapes = {{"values", {1, kRows, kCols}}}};

std::string Refusal(const std::filesystem::path& path, const ExpectedTensors& expected = kExpected) {
  return MessageOf(ErrorKind::kBadInput, [&] { ReadTensorFile(path, expected); });
}

TEST(TensorFile, ComeBackBitForBit) {
  const TempFolder folder;
  const TensorFile kept = Example();
  WriteTensorFile(folder.path() / "kept", kept);
  EXPECT_EQ(folder.FileCount(), 1u);
  const TensorFile read = ReadTensorFile(folder.path() / "kept", kExpected);
  EXPECT_EQ(read.metadata.at("step"), "3");
  const Tensor &a = kept.tensors.at("values"), &b = read.tensors.at("values");
  ASSERT_EQ(a.shape(), b.shape());
  for (int64_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i], b[i]);
}

TEST(TensorFile, OfOthersAreRefused) {
  const TempFolder folder;
  const auto path = folder.path() / "kept";
  WriteTensorFile(path, Example());
  ExpectedTensors other = kExpected;
  other.metadata["format"] = "another";
  EXPECT_THAT(Refusal(path, other), HasSubstr("its format is \"example\", expected \"another\""));
  other = kExpected;
  other.metadata["seed"] = "1";
  EXPECT_THAT(Refusal(path, other), HasSubstr("its seed is missing"));
  other = kExpected;
  other.shapes["values"] = {1, kCols, kRows};
  EXPECT_THAT(Refusal(path, other), HasSubstr("with the shape [1, 7, 5]"));
  other = kExpected;
  other.shapes["more"] = {0};
  EXPECT_THAT(Refusal(path, other), HasSubstr("holds 1 tensors, expected 2"));
  EXPECT_THAT(Refusal(folder.path() / "absent"), HasSubstr("absent"));
}

TEST(TensorFile, ThatAreDamagedAreRefused) {
  const TempFolder folder;
  WriteTensorFile(folder.path() / "kept", Example());
  const std::string whole = ReadBytes(folder.path() / "kept");
  const size_t at_step = whole.find("\"step\":\"3\"") + 8;
  ASSERT_EQ(whole[at_step], '3');
  const std::function<void(std::string&)> damages[] = {
      [](std::string& bytes) { bytes.back() ^= 1; },           // a value
      [&](std::string& bytes) { bytes[at_step] = '4'; },       // metadata that cannot be known beforehand
      [](std::string& bytes) { bytes.pop_back(); },            // the end is missing
      [](std::string& bytes) { bytes.resize(4); },             //
      [](std::string& bytes) { bytes.clear(); },               //
      [](std::string& bytes) { bytes.append(2 << 20, ' '); },  // much too large
      [](std::string& bytes) { bytes[5] = 0x7f; },             // an endless header
  };
  for (const auto& damage : damages) {
    std::string bytes = whole;
    damage(bytes);
    Refusal(folder.Write("damaged", bytes));
  }
}

TEST(TensorFile, ThatAreNotFiniteAreRefused) {
  const TempFolder folder;
  TensorFile kept = Example();
  kept.tensors.at("values")[4] = NAN;
  WriteTensorFile(folder.path() / "kept", kept);
  EXPECT_THAT(Refusal(folder.path() / "kept"), HasSubstr("NaN"));
}

}  // namespace
}  // namespace qwen_image::keep
