#include "mlx/arrays.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace qwen_image::on_mlx {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

std::vector<float> ValuesOf(const Tensor& x) { return {x.data(), x.data() + x.size()}; }

class Recorder : public CheckpointSink {
 public:
  bool Wants(std::string_view name) const override { return name == "seen"; }
  void OnCheckpoint(const std::string&, const CheckpointView& view) override {
    shape = view.shape;
    float* data = std::get<float*>(view.data);
    values.assign(data, data + ElementCount(shape));
    if (replace_first) data[0] = *replace_first;
  }

  Shape shape;
  std::vector<float> values;
  std::optional<float> replace_first;
};

// A view that is read as if its values were neighbours repeats or shuffles parts of a picture.
TEST(Arrays, ViewsReachTheHostInTheOrderOfTheirShape) {
  std::vector<float> counting(2 * 3 * 4);
  std::iota(counting.begin(), counting.end(), 0.0f);
  const array x = ToDevice(counting.data(), {2, 3, 4});

  const Tensor turned = ToHost(mx::transpose(x, {2, 0, 1}));
  EXPECT_THAT(turned.shape(), ElementsAre(4, 2, 3));
  std::vector<float> expected;
  for (int k = 0; k < 4; ++k)
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < 3; ++j) expected.push_back(static_cast<float>(i * 12 + j * 4 + k));
  EXPECT_THAT(ValuesOf(turned), ElementsAreArray(expected));

  const array every_second = mx::slice(x, {0, 0, 1}, {2, 3, 4}, {1, 2, 2});
  EXPECT_THAT(ValuesOf(ToHost(every_second)), ElementsAre(1, 3, 9, 11, 13, 15, 21, 23));
  EXPECT_THAT(ValuesOf(ToHost(mx::broadcast_to(array({5.0f, 7.0f}), {2, 2}))), ElementsAre(5, 7, 5, 7));
}

TEST(Arrays, AnyTypeReachesTheHostAsFloats) {
  EXPECT_THAT(ValuesOf(ToHost(array({1.5f, -2.0f}, mx::bfloat16))), ElementsAre(1.5f, -2.0f));
  EXPECT_THAT(ValuesOf(ToHost(array({3, 4}, mx::int32))), ElementsAre(3, 4));
}

TEST(Arrays, ATapSeesAndReplacesValuesOfAView) {
  Recorder recorder;
  recorder.replace_first = 100.0f;
  array x = mx::transpose(mx::reshape(mx::arange(6, mx::float32), {2, 3}));
  TapArray(Tap(&recorder), "seen", x);
  EXPECT_THAT(recorder.shape, ElementsAre(3, 2));
  EXPECT_THAT(recorder.values, ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(ShapeOf(x), ElementsAre(3, 2));
  EXPECT_THAT(ValuesOf(ToHost(x)), ElementsAre(100, 3, 1, 4, 2, 5));
}

TEST(Arrays, ATapThatNobodyWantsChangesNothing) {
  Recorder recorder;
  array x = mx::arange(3, mx::float32);
  const auto id = x.id();
  TapArray(Tap(&recorder), "other", x);
  EXPECT_EQ(x.id(), id);
  EXPECT_TRUE(recorder.values.empty());
}

TEST(Arrays, WhatMlxThrowsBecomesAnError) {
  const auto bad_shapes = [] { return ToHost(mx::matmul(mx::zeros({2, 3}), mx::zeros({2, 3}))); };
  try {
    RunOn(mx::Device::cpu, bad_shapes);
    FAIL() << "expected an Error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInternal);
    EXPECT_THAT(error.message(), testing::HasSubstr("MLX: "));
  }
}

}  // namespace
}  // namespace qwen_image::on_mlx
