#include "files/safetensors_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "core/fail.h"
#include "files/json.h"
#include "files/safetensors.h"
#include "files/testing.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

const std::vector<PlannedTensor> kPlan = {{"z.weight", DType::kF32, {2, 1}},
                                          {"a.weight", DType::kU8, {3}},
                                          {"none", DType::kBF16, {0, 5}},
                                          {"scalar", DType::kBF16, {}}};
constexpr std::string_view kValues = "aaaabbbbcccdd";

TEST(SafetensorsWriter, WritesWhatTheReaderReads) {
  const TempFolder folder;
  const fs::path path = folder.path() / "x.safetensors";
  SafetensorsWriter writer(path, kPlan, {{"format", "pt"}});
  writer.Append(Bytes(kValues.substr(0, 6)));  // pieces need not end where tensors do
  writer.Append({});
  writer.Append(Bytes(kValues.substr(6)));
  EXPECT_FALSE(fs::exists(path));
  writer.Finish();

  const SafetensorsFile file(path);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  ASSERT_EQ(file.tensors().size(), kPlan.size());
  std::string values;
  for (const PlannedTensor& planned : kPlan) {
    const StoredTensor& stored = file.tensors().at(planned.name);
    EXPECT_EQ(stored.dtype, planned.dtype);
    EXPECT_EQ(stored.shape, planned.shape);
    values.append(reinterpret_cast<const char*>(stored.bytes.data()), stored.bytes.size());
  }
  EXPECT_EQ(values, kValues);
  EXPECT_EQ(folder.FileCount(), 1u);
}

TEST(SafetensorsWriter, ValuesBeginAtAMultipleOfEight) {
  for (size_t length = 1; length <= 16; ++length) {
    const TempFolder folder;
    const fs::path path = folder.path() / "x.safetensors";
    const std::vector<PlannedTensor> plan = {{std::string(length, 'n'), DType::kU8, {1}}};
    SafetensorsWriter writer(path, plan, {});
    writer.Append(Bytes("x"));
    writer.Finish();
    EXPECT_EQ(fs::file_size(path) % 8, 1u);
    EXPECT_EQ(fs::file_size(path), SafetensorsWriter::FileBytes(plan, {}));
    EXPECT_NO_THROW(SafetensorsFile{path});
  }
}

TEST(SafetensorsWriter, LeavesNothingUnlessFinished) {
  const TempFolder folder;
  { SafetensorsWriter writer(folder.path() / "x.safetensors", kPlan, {}); }
  EXPECT_EQ(folder.FileCount(), 0u);
}

TEST(SafetensorsWriter, RefusesWhatWasNotPlanned) {
  const TempFolder folder;
  const fs::path path = folder.path() / "x.safetensors";
  SafetensorsWriter writer(path, kPlan, {});
  EXPECT_THAT(MessageOf(ErrorKind::kInternal, [&] { writer.Finish(); }), HasSubstr("lacks 13 planned bytes"));
  EXPECT_THAT(MessageOf(ErrorKind::kInternal, [&] { writer.Append(Bytes(std::string(14, 'x'))); }),
              HasSubstr("1 bytes more than planned"));
  const auto refused = [&](const std::vector<PlannedTensor>& plan) {
    return MessageOf(ErrorKind::kBadInput, [&] { SafetensorsWriter(path, plan, {}); });
  };
  EXPECT_THAT(refused({{"a", DType::kU8, {1}}, {"a", DType::kU8, {1}}}), HasSubstr("two tensors"));
  EXPECT_THAT(refused({{"a\xff", DType::kU8, {1}}}), HasSubstr("a\\xff\" is not UTF-8"));
  EXPECT_EQ(folder.FileCount(), 1u);  // the unfinished one
}

TEST(SafetensorsWriter, SaysWhereItCannotWrite) {
  const TempFolder folder;
  EXPECT_THAT(MessageOf(ErrorKind::kCannotWrite,
                        [&] { SafetensorsWriter(folder.path() / "no/x.safetensors", kPlan, {}); }),
              HasSubstr("no/x.safetensors"));
}

}  // namespace
}  // namespace qwen_image
