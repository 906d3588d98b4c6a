#include "convert/tensor_converter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "convert/testing.h"
#include "core/fail.h"
#include "files/safetensors.h"
#include "files/testing.h"
#include "weights/parts.h"
#include "weights/quantize_mlx.h"

namespace qwen_image::convert {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Converting : public testing::Test {
 protected:
  fs::path Source(const SourceTensor& tensor) const {
    const fs::path path = folder_.path() / "source.safetensors";
    WriteSource(path, {tensor});
    return path;
  }

  // Converts the only tensor of a file and reads back what was written.
  TensorError Convert(const fs::path& path, const Encoding& encoding, int threads = 2, RowEdit edit = {},
                      const std::string& name = "x.weight") {
    const SafetensorsFile file(path);
    WeightTensor tensor(StoredIn{&file.tensors().at(name), &file});
    return ConvertTensor(tensor, encoding, threads, std::move(edit), name);
  }
  TensorError ConvertTensor(const WeightTensor& tensor, const Encoding& encoding, int threads = 2,
                            RowEdit edit = {}, const std::string& name = "x.weight", bool copied = false) {
    const TensorPlan plan{
        .name = name, .source = "", .shape = tensor.shape(), .choice = {encoding, "", ""}, .copied = copied};
    ThreadPool pool(threads);
    TensorConverter converter(pool, cancel_, std::move(edit), [this](int64_t bytes) { heard_ += bytes; });
    SafetensorsWriter writer(Output(), plan.Stored(), {});
    const TensorError error = converter.Convert(plan, tensor, writer);
    writer.Finish();
    return error;
  }
  fs::path Output() const { return folder_.path() / "out.safetensors"; }
  std::vector<float> Written() const {
    const SafetensorsFile file(Output());
    std::map<std::string, StoredIn> stored;
    for (const auto& [name, tensor] : file.tensors()) stored[name] = {&tensor, &file};
    std::map<std::string, WeightTensor> joined = JoinParts(stored);
    WeightTensor& tensor = joined.begin()->second;
    tensor.ChooseQuantization();
    return tensor.Values();
  }

  const TempFolder folder_;
  CancelFlag cancel_;
  int64_t heard_ = 0;
};

const Encoding kQ4 = {.dtype = DType::kBF16, .mlx = {4, 64}};

// More than one piece, with a last one that is not full.
SourceTensor Large() { return {"x.weight", DType::kBF16, {2100, 2048}, {}}; }

TEST_F(Converting, PiecesMakeTheWhole) {
  const fs::path path = Source(Large());
  const TensorError error = Convert(path, kQ4);
  const SafetensorsFile source(path), written(Output());
  std::vector<float> values(2100 * 2048);
  ConvertToFloat(source.tensors().at("x.weight").bytes.data(), DType::kBF16, 2100 * 2048, values.data());
  std::vector<std::byte> packed(values.size() / 2), scales(values.size() / 32), biases(scales.size());
  QuantizeMlx(values.data(), static_cast<int64_t>(values.size() / 64), kQ4.mlx, DType::kBF16,
              {packed.data(), scales.data(), biases.data()});
  const auto same = [&](const char* name, const std::vector<std::byte>& bytes) {
    const auto found = written.tensors().at(name).bytes;
    return std::equal(found.begin(), found.end(), bytes.begin(), bytes.end());
  };
  EXPECT_TRUE(same("x.weight", packed));
  EXPECT_TRUE(same("x.scales", scales));
  EXPECT_TRUE(same("x.biases", biases));

  const std::vector<float> back = Written();
  double squared = 0, largest = 0;
  for (size_t i = 0; i < back.size(); ++i) {
    const double difference = static_cast<double>(back[i]) - values[i];
    squared += difference * difference;
    largest = std::max(largest, std::abs(difference));
  }
  EXPECT_EQ(error.count, 2100 * 2048);
  EXPECT_EQ(error.max_abs, largest);
  EXPECT_NEAR(error.squared_error, squared, 1e-9 * squared);
  EXPECT_EQ(heard_, 2100 * 2048 * 2);
}

TEST_F(Converting, DoesNotDependOnThreads) {
  const fs::path path = Source(Large());
  const TensorError one = Convert(path, kQ4, 1);
  const std::string bytes = ReadBytes(Output());
  const TensorError three = Convert(path, kQ4, 3);
  EXPECT_TRUE(bytes == ReadBytes(Output()));
  EXPECT_EQ(one.squared_error, three.squared_error);
  EXPECT_EQ(one.squared_source, three.squared_source);
}

TEST_F(Converting, PlainNumbers) {
  const fs::path path = Source({"x.weight", DType::kF32, {7, 30}, {}});
  const TensorError f32 = Convert(path, {.dtype = DType::kF32});
  EXPECT_EQ(f32.squared_error, 0);
  EXPECT_EQ(f32.max_abs, 0);
  const std::vector<float> values = Written();
  EXPECT_EQ(values, RandomValues(7 * 30, 1));
  const TensorError bf16 = Convert(path, {.dtype = DType::kBF16}),
                    f16 = Convert(path, {.dtype = DType::kF16});
  EXPECT_GT(bf16.relative_rmse(), 0);
  EXPECT_LT(bf16.relative_rmse(), 0x1p-9);
  EXPECT_GT(f16.relative_rmse(), 0);
  EXPECT_LT(f16.relative_rmse(), 0x1p-12);
}

TEST_F(Converting, QuantizesWhatBfloat16Holds) {
  const SourceTensor f32 = {"x.weight", DType::kF32, {8, 64}, {}};
  Convert(Source(f32), kQ4);
  const std::string direct = ReadBytes(Output());
  SourceTensor rounded = f32;
  rounded.dtype = DType::kBF16;
  Convert(Source(rounded), kQ4);
  EXPECT_TRUE(direct == ReadBytes(Output()));
}

TEST_F(Converting, EditsRowsOnTheirWay) {
  const fs::path path = Source({"x.weight", DType::kF32, {300, 600}, std::vector<float>(300 * 600, 0.0f)});
  Convert(path, {.dtype = DType::kF32}, 2,
          [](const std::string& name, int64_t first, int64_t rows, float* values) {
            EXPECT_EQ(name, "x.weight");
            for (int64_t r = 0; r < rows; ++r) {
              for (int64_t c = 0; c < 600; ++c) values[r * 600 + c] += static_cast<float>(first + r);
            }
          });
  const std::vector<float> written = Written();
  for (size_t i = 0; i < written.size(); ++i) ASSERT_EQ(written[i], static_cast<float>(i / 600)) << i;
}

TEST_F(Converting, CopiesWhatIsPackedAlike) {
  const SafetensorsFile file(fs::path(QWEN_IMAGE_SOURCE_DIR) / "tests/goldens/mlx/quantized.safetensors");
  std::map<std::string, StoredIn> stored;
  for (const auto& [name, tensor] : file.tensors()) stored[name] = {&tensor, &file};
  const auto joined = JoinParts(stored);
  WeightTensor tensor = joined.at("layers.0.proj.weight");
  tensor.ChooseQuantization();
  const TensorError error = ConvertTensor(tensor, kQ4, 1, {}, "layers.0.proj.weight", /*copied=*/true);
  EXPECT_EQ(error.squared_error, 0);
  EXPECT_EQ(error.count, ElementCount(tensor.shape()));
  EXPECT_EQ(heard_, tensor.bytes());
  EXPECT_EQ(Written(), tensor.Values());
}

TEST_F(Converting, ChannelsLastBecomesTorchsOrder) {
  const SafetensorsFile file(Source({"x.weight", DType::kF32, {2, 3, 3, 5}, {}}));
  WeightTensor tensor(StoredIn{&file.tensors().at("x.weight"), &file});
  tensor.SetChannelsLast();
  EXPECT_EQ(ConvertTensor(tensor, {.dtype = DType::kF32}).squared_error, 0);
  EXPECT_EQ(Written(), tensor.Values());
  EXPECT_EQ(SafetensorsFile(Output()).tensors().at("x.weight").shape, Shape({2, 5, 3, 3}));
}

TEST_F(Converting, RefusesValuesThatAreNoNumbers) {
  for (const float wrong : {NAN, INFINITY, -INFINITY}) {
    std::vector<float> values(128, 1.0f);
    values[100] = wrong;
    const fs::path path = Source({"x.weight", DType::kF32, {2, 64}, values});
    for (const Encoding& encoding : {kQ4, Encoding{.dtype = DType::kF16}, Encoding{.dtype = DType::kF32}}) {
      EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [&] { Convert(path, encoding); }),
                  HasSubstr("\"x.weight\" holds NaN or infinite values"));
    }
  }
  EXPECT_FALSE(fs::exists(Output()));
}

TEST_F(Converting, RefusesValuesThatTheTypeCannotHold) {
  const fs::path path = Source({"x.weight", DType::kF32, {1, 2}, {1.0f, 1e5f}});
  EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [&] { Convert(path, {.dtype = DType::kF16}); }),
              AllOf(HasSubstr("holds values that F16 cannot"), HasSubstr("--rule 'x.weight=f32'")));
  EXPECT_NO_THROW(Convert(path, {.dtype = DType::kBF16}));
}

TEST_F(Converting, StopsWhenAsked) {
  const fs::path path = Source({"x.weight", DType::kF32, {1, 2}, {}});
  cancel_.Cancel();
  MessageOf(ErrorKind::kInterrupted, [&] { Convert(path, {.dtype = DType::kF16}); });
  EXPECT_EQ(folder_.FileCount(), 1u);  // the source
}

}  // namespace
}  // namespace qwen_image::convert
