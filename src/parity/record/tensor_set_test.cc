#include "parity/record/tensor_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zip.h>

#include "files/npy.h"
#include "files/testing.h"
#include "parity/record/natural_order.h"

namespace qwen_image::record {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> NamesOf(const TensorSet& set) {
  std::vector<std::string> names;
  for (const TensorInfo& tensor : set.tensors()) names.push_back(tensor.name);
  return names;
}

class TensorSetTest : public testing::Test {
 protected:
  void WriteFloats(const std::string& file, const std::vector<float>& values) const {
    std::filesystem::create_directories((folder_.path() / file).parent_path());
    WriteNpy(folder_.path() / file, values.data(), {static_cast<int64_t>(values.size())});
  }
  std::string Message(const std::filesystem::path& path) const {
    return MessageOf(ErrorKind::kBadInput, [&] { TensorSet::Open(path); });
  }
  void WriteManifest(const Json& checkpoints) const {
    folder_.Write("manifest.json", Json{{"checkpoints", checkpoints}}.dump());
  }

  const TempFolder folder_;
};

TEST(NaturalOrder, DigitsAreNumbers) {
  EXPECT_TRUE(NaturallyBefore("step2", "step10"));
  EXPECT_FALSE(NaturallyBefore("step10", "step2"));
  EXPECT_TRUE(NaturallyBefore("step2/a10", "step2/b1"));
  EXPECT_TRUE(NaturallyBefore("step", "step0"));
  EXPECT_TRUE(NaturallyBefore("a99999999999999999999998", "a99999999999999999999999"));
  EXPECT_FALSE(NaturallyBefore("a", "a"));
  EXPECT_TRUE(NaturallyBefore("a01", "a1") != NaturallyBefore("a1", "a01"));
}

TEST_F(TensorSetTest, APlainFolderNamesTensorsByPath) {
  WriteFloats("b/step10.npy", {1});
  WriteFloats("b/step2.npy", {1, 2});
  WriteFloats("a.npy", {3});
  folder_.Write("note.txt", "not a tensor");
  folder_.Write("c.safetensors",
                SafetensorsBytes(R"({"x":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}})",
                                 std::string("\x80\x3f\x00\xc0", 4)));
  const TensorSet set = TensorSet::Open(folder_.path());
  EXPECT_THAT(NamesOf(set), ElementsAre("a", "b/step2", "b/step10", "c/x"));
  EXPECT_TRUE(set.manifest().is_null());
  EXPECT_EQ(set.Find("c/x")->dtype, "bfloat16");
  EXPECT_THAT(set.ReadAll(*set.Find("c/x")), ElementsAre(1, -2));
  EXPECT_EQ(set.Find("b/step2")->shape, Shape{2});
  EXPECT_EQ(set.Find("b"), nullptr);
}

TEST_F(TensorSetTest, OneFileIsASetToo) {
  WriteFloats("a/x.npy", {1, 2, 3});
  const TensorSet npy = TensorSet::Open(folder_.path() / "a/x.npy");
  EXPECT_THAT(NamesOf(npy), ElementsAre("x"));
  double two[2];
  npy.Read(npy.tensors()[0], 1, 2, two);
  EXPECT_THAT(two, ElementsAre(2, 3));

  const std::filesystem::path npz = folder_.path() / "x.npz";
  zip_t* archive = zip_open(npz.c_str(), ZIP_CREATE, nullptr);
  for (const char* name : {"s10.npy", "s9.npy"})
    zip_file_add(archive, name, zip_source_file(archive, (folder_.path() / "a/x.npy").c_str(), 0, 0), 0);
  ASSERT_EQ(zip_close(archive), 0);
  const TensorSet packed = TensorSet::Open(npz);
  EXPECT_THAT(NamesOf(packed), ElementsAre("s9", "s10"));
  EXPECT_THAT(packed.ReadAll(packed.tensors()[0]), ElementsAre(1, 2, 3));
}

// Columns first and the high bytes first, as Fortran on an old machine writes; read in pieces.
TEST_F(TensorSetTest, OtherOrdersOfAxesAndBytes) {
  std::string text = "{'descr': '>f4', 'fortran_order': True, 'shape': (2, 3), }";
  text.resize(128 - 10, ' ');
  std::string bytes = "\x93NUMPY";
  bytes += std::string("\x01\0\x76\0", 4) + text;
  for (const char* value : {"\x3f\x80", "\x40\x80", "\x40\0", "\x40\xa0", "\x40\x40", "\x40\xc0"})
    bytes += std::string(value, 2) + std::string(2, '\0');
  const std::filesystem::path npy = folder_.Write("x.npy", bytes), npz = folder_.path() / "x.npz";
  zip_t* archive = zip_open(npz.c_str(), ZIP_CREATE, nullptr);
  zip_file_add(archive, "x.npy", zip_source_file(archive, npy.c_str(), 0, 0), 0);
  ASSERT_EQ(zip_close(archive), 0);
  for (const auto& path : {npy, npz}) {
    const TensorSet set = TensorSet::Open(path);
    EXPECT_THAT(set.ReadAll(set.tensors()[0]), ElementsAre(1, 2, 3, 4, 5, 6)) << path;
    double two[2];
    set.Read(set.tensors()[0], 3, 2, two);
    EXPECT_THAT(two, ElementsAre(4, 5)) << path;
  }
}

TEST_F(TensorSetTest, AFileThatIsNotSortedTellsTheOrder) {
  WriteFloats("x.npy", {1});
  const auto pack = [&](const char* file, const std::vector<const char*>& names) {
    const std::filesystem::path path = folder_.path() / file;
    zip_t* archive = zip_open(path.c_str(), ZIP_CREATE, nullptr);
    for (const char* name : names)
      zip_file_add(archive, name, zip_source_file(archive, (folder_.path() / "x.npy").c_str(), 0, 0), 0);
    EXPECT_EQ(zip_close(archive), 0);
    return TensorSet::Open(path);
  };
  const TensorSet computed = pack("computed.npz", {"in.npy", "block.npy", "out.npy"});
  EXPECT_EQ(computed.order(), TensorOrder::kFile);
  EXPECT_THAT(NamesOf(computed), ElementsAre("in", "block", "out"));
  EXPECT_EQ(pack("sorted.npz", {"block.npy", "in.npy", "out.npy"}).order(), TensorOrder::kUnknown);

  EXPECT_EQ(pack("paths.npz", {"a/x.npy", "a.b/x.npy", "c.npy"}).order(), TensorOrder::kUnknown);

  // safetensors' own writer sorts by type, then by name.
  const auto offsets = [&](const std::string& header, const std::string& bytes) {
    return TensorSet::Open(folder_.Write("x.safetensors", SafetensorsBytes(header, bytes)));
  };
  const TensorSet by_offset = offsets(R"({"block":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},)"
                                      R"("in":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                                      std::string(8, '\0'));
  EXPECT_EQ(by_offset.order(), TensorOrder::kFile);
  EXPECT_THAT(NamesOf(by_offset), ElementsAre("in", "block"));
  EXPECT_EQ(offsets(R"({"in":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                    R"("block":{"dtype":"BF16","shape":[1],"data_offsets":[4,6]}})",
                    std::string(6, '\0'))
                .order(),
            TensorOrder::kUnknown);
}

TEST_F(TensorSetTest, TheManifestGivesTheOrderAndHidesWhatItDoesNotList) {
  WriteFloats("a.npy", {1});
  WriteFloats("b.npy", {2});
  WriteFloats("c.npy", {3});
  WriteManifest({{{"name", "second"}, {"file", "b.npy"}}, {{"name", "first"}, {"file", "a.npy"}}});
  const TensorSet set = TensorSet::Open(folder_.path());
  EXPECT_THAT(NamesOf(set), ElementsAre("second", "first"));
  EXPECT_TRUE(set.manifest().is_object());
}

// Larger than a piece, and larger than what may stay in memory before pages are released.
TEST_F(TensorSetTest, ReadsLargeTensorsInPieces) {
  std::vector<float> values(9'000'000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1000);
  WriteFloats("large.npy", values);
  const TensorSet set = TensorSet::Open(folder_.path());
  EXPECT_EQ(set.ReadAll(set.tensors()[0]), values);
  double last;
  set.Read(set.tensors()[0], 8'999'999, 1, &last);
  EXPECT_EQ(last, 999);
}

TEST_F(TensorSetTest, RenamesAndRefusesEqualNames) {
  WriteFloats("a.npy", {1});
  WriteFloats("b.npy", {2});
  TensorSet set = TensorSet::Open(folder_.path());
  set.Rename([](const std::string& name) { return "new/" + name; });
  EXPECT_THAT(NamesOf(set), ElementsAre("new/a", "new/b"));
  EXPECT_EQ(set.Find("new/b")->own_name, "b");
  EXPECT_THAT(set.ReadAll(*set.Find("new/b")), ElementsAre(2));
  EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [&] { set.Rename([](const std::string&) { return "x"; }); }),
              HasSubstr("twice"));
}

TEST_F(TensorSetTest, RefusesWhatIsNoSet) {
  EXPECT_THAT(Message(folder_.path() / "absent"), HasSubstr("absent"));
  EXPECT_THAT(Message(folder_.path()), HasSubstr("holds no tensors"));
  EXPECT_THAT(Message(folder_.Write("x.pt", "PK")), HasSubstr("import_run.py"));
  std::filesystem::create_directory(folder_.path() / "ref");
  EXPECT_THAT(Message(folder_.path()), HasSubstr("give its folder ref or cpp"));
  folder_.Write("broken.npy", "\x93NUMPY");
  EXPECT_THAT(Message(folder_.path()), HasSubstr("broken.npy"));
}

TEST_F(TensorSetTest, RefusesBrokenManifests) {
  WriteFloats("a.npy", {1});
  folder_.Write("packed.safetensors",
                SafetensorsBytes(R"({"x":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}})", "a"));
  for (const Json& checkpoints :
       {Json(nullptr), Json("text"), Json::array(), Json::array({1}), Json::array({Json::object()}),
        Json::array({{{"name", "a"}, {"file", 7}}}), Json::array({{{"name", "a"}, {"file", "../a.npy"}}}),
        Json::array({{{"name", "a"}, {"file", "absent.npy"}}}),
        Json::array({{{"name", "a"}, {"file", "packed.safetensors"}}}),
        Json::array({{{"name", "a"}, {"file", "a.npy"}}, {{"name", "a"}, {"file", "a.npy"}}})}) {
    WriteManifest(checkpoints);
    EXPECT_THAT(Message(folder_.path()), HasSubstr(folder_.path().string())) << checkpoints;
  }
}

}  // namespace
}  // namespace qwen_image::record
