#include "files/npz.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zip.h>

#include <cstring>

#include "core/fail.h"
#include "files/npy.h"
#include "files/testing.h"

namespace qwen_image {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Npz : public testing::Test {
 protected:
  // A .npy file of floats 0, 1, 2, …
  std::string NpyOf(int64_t count) const {
    std::vector<float> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    WriteNpy(folder_.path() / "one.npy", values.data(), {count});
    return ReadBytes(folder_.path() / "one.npy");
  }

  struct Member {
    std::string name, bytes;
    int compression = ZIP_CM_STORE;
    bool encrypted = false;
  };

  std::filesystem::path Pack(const std::vector<Member>& members) const {
    const std::filesystem::path path = folder_.path() / "x.npz";
    zip_t* archive = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, nullptr);
    for (const Member& m : members) {
      zip_source_t* source = zip_source_buffer(archive, m.bytes.data(), m.bytes.size(), 0);
      const zip_int64_t index = zip_file_add(archive, m.name.c_str(), source, ZIP_FL_ENC_UTF_8);
      EXPECT_GE(index, 0);
      EXPECT_EQ(zip_set_file_compression(archive, static_cast<zip_uint64_t>(index), m.compression, 0), 0);
      if (!m.encrypted) continue;
      EXPECT_EQ(zip_file_set_encryption(archive, static_cast<zip_uint64_t>(index), ZIP_EM_AES_128, "word"),
                0);
    }
    EXPECT_EQ(zip_close(archive), 0) << zip_strerror(archive);
    return path;
  }

  // Replaces every `from` in the archive.
  void Patch(const std::string& from, const std::string& to) const {
    ASSERT_EQ(from.size(), to.size());
    std::string bytes = ReadBytes(folder_.path() / "x.npz");
    int count = 0;
    for (size_t at = 0; (at = bytes.find(from, at)) != bytes.npos; at += to.size(), ++count)
      bytes.replace(at, to.size(), to);
    ASSERT_GT(count, 0);
    folder_.Write("x.npz", bytes);
  }

  std::string Message() const {
    return MessageOf(ErrorKind::kBadInput, [&] {
      const NpzFile file(folder_.path() / "x.npz");
      for (size_t i = 0; i < file.members().size(); ++i) {
        std::vector<std::byte> all(
            static_cast<size_t>(file.members()[i].header.count * file.members()[i].header.type->bytes));
        file.Read(i, 0, all);
      }
    });
  }

  const TempFolder folder_;
};

TEST_F(Npz, ReadsStoredAndDeflatedMembersInAnyOrder) {
  const NpzFile file(
      Pack({{"a/b.npy", NpyOf(1000)}, {"c.npy", NpyOf(70000), ZIP_CM_DEFLATE}, {"empty.npy", NpyOf(0)}}));
  ASSERT_EQ(file.members().size(), 3u);
  EXPECT_EQ(file.members()[0].name, "a/b");
  EXPECT_EQ(file.members()[1].header.shape, Shape{70000});
  EXPECT_EQ(file.members()[2].header.count, 0);
  const auto at = [&](size_t member, uint64_t index) {
    float value;
    file.Read(member, index * 4, std::as_writable_bytes(std::span(&value, 1)));
    return value;
  };
  EXPECT_EQ(at(1, 69999), 69999);
  EXPECT_EQ(at(1, 5), 5);  // back
  EXPECT_EQ(at(0, 999), 999);
  EXPECT_EQ(at(1, 40000), 40000);
}

TEST_F(Npz, RefusesNamesThatLeadOut) {
  for (const char* name : {"../x.npy", "/x.npy", "a/../../x.npy", "a\\x.npy"}) {
    Pack({{name, NpyOf(1)}});
    EXPECT_THAT(Message(), AllOf(HasSubstr("x.npz"), HasSubstr("leads out"))) << name;
  }
}

TEST_F(Npz, RefusesOtherMembers) {
  Pack({{"a.npy", NpyOf(1)}, {"readme.txt", "hello"}});
  EXPECT_THAT(Message(), AllOf(HasSubstr("readme.txt"), HasSubstr("not a .npy file")));
  Pack({{"a.npy", "no array at all"}});
  EXPECT_THAT(Message(), AllOf(HasSubstr("\"a.npy\""), HasSubstr("not a .npy file")));
}

TEST_F(Npz, RefusesEncryptedMembers) {
  Pack({{"a.npy", NpyOf(10), ZIP_CM_DEFLATE, true}});
  EXPECT_THAT(Message(), HasSubstr("encrypted"));
}

TEST_F(Npz, RefusesOtherCompressions) {
  if (!zip_compression_method_supported(ZIP_CM_BZIP2, 1)) GTEST_SKIP() << "libzip without bzip2";
  Pack({{"a.npy", NpyOf(10), ZIP_CM_BZIP2}});
  EXPECT_THAT(Message(), HasSubstr("compressed in another way"));
}

TEST_F(Npz, RefusesANameThatIsThereTwice) {
  Pack({{"a.npy", NpyOf(1)}, {"b.npy", NpyOf(1)}});
  Patch("b.npy", "a.npy");
  EXPECT_THAT(Message(), HasSubstr("twice"));
}

TEST_F(Npz, RefusesSizesThatAreNotTrue) {
  const std::string bytes = NpyOf(1000);
  Pack({{"a.npy", bytes, ZIP_CM_DEFLATE}});
  // A thousand times as much as is there: more than deflate can pack.
  Patch(LittleEndian(bytes.size(), 4), LittleEndian(0x7fff0000, 4));
  EXPECT_THAT(Message(), HasSubstr("claims more bytes"));
  // Somewhat more: known only at the end of the data, or by the header.
  Pack({{"a.npy", bytes, ZIP_CM_DEFLATE}});
  Patch(LittleEndian(bytes.size(), 4), LittleEndian(bytes.size() + 4, 4));
  EXPECT_THAT(Message(), HasSubstr("\"a.npy\""));
  Pack({{"a.npy", bytes, ZIP_CM_DEFLATE}});
  Patch(LittleEndian(bytes.size(), 4), LittleEndian(bytes.size() - 4, 4));
  EXPECT_THAT(Message(), HasSubstr("\"a.npy\""));
}

TEST_F(Npz, RefusesDamagedData) {
  const std::string bytes = NpyOf(1000);
  Pack({{"a.npy", bytes}});
  Patch(bytes.substr(2000, 8), "damaged!");  // stored: only the checksum tells
  EXPECT_THAT(Message(), AllOf(HasSubstr("\"a.npy\""), HasSubstr("damaged")));
}

TEST_F(Npz, RefusesWhatIsNoArchive) {
  const std::string whole = ReadBytes(Pack({{"a.npy", NpyOf(1000)}}));
  for (const std::string& bytes :
       {std::string(), std::string("PK\x03\x04"), whole.substr(0, whole.size() / 2),
        whole.substr(0, whole.size() - 1), std::string(100, 'x')}) {
    folder_.Write("x.npz", bytes);
    EXPECT_THAT(Message(), HasSubstr("x.npz")) << bytes.size();
  }
}

// Every byte of the directory and of the local header in turn.
TEST_F(Npz, NoDamageCrashes) {
  const std::string whole = ReadBytes(Pack({{"a.npy", NpyOf(3), ZIP_CM_DEFLATE}}));
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 0xff);
    folder_.Write("x.npz", bytes);
    try {
      const NpzFile file(folder_.path() / "x.npz");
      for (size_t i = 0; i < file.members().size(); ++i) {
        std::vector<std::byte> all(
            static_cast<size_t>(file.members()[i].header.count * file.members()[i].header.type->bytes));
        file.Read(i, 0, all);
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadInput) << at;
    }
  }
}

}  // namespace
}  // namespace qwen_image
