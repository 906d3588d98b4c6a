#include "hub/cache.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "files/testing.h"

namespace qwen_image::hub {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kOne(40, '1'), kTwo(40, '2');

class HubCache : public testing::Test {
 protected:
  fs::path Find(const std::string& name) const { return FindSnapshot(cache_.path(), *ParseRepoId(name)); }
  std::string Refusal(const std::string& name) const {
    return MessageOf(ErrorKind::kBadInput, [&] { Find(name); });
  }
  // A file of `commit` as huggingface_hub stores it.
  void Store(const std::string& commit, const std::string& path, const std::string& bytes) const {
    const std::string hash = fmt::format("{:040x}", std::hash<std::string>()(bytes));
    cache_.Write("models--owner--model/blobs/" + hash, bytes);
    LinkBlob(repo_, commit, path, hash);
  }
  fs::path Snapshot(const std::string& commit) const { return repo_ / "snapshots" / commit; }

  const TempFolder cache_;
  const fs::path repo_ = cache_.path() / "models--owner--model";
};

TEST_F(HubCache, LinksAreRelativeAndCanBeMoved) {
  Store(kOne, "model_index.json", "{}");
  Store(kOne, "transformer/deep/x.json", "[]");
  EXPECT_TRUE(fs::read_symlink(Snapshot(kOne) / "model_index.json").string().starts_with("../../blobs/"));
  EXPECT_TRUE(fs::read_symlink(Snapshot(kOne) / "transformer/deep/x.json")
                  .string()
                  .starts_with("../../../../blobs/"));
  fs::rename(repo_, cache_.path() / "moved");
  EXPECT_EQ(ReadBytes(cache_.path() / "moved/snapshots" / kOne / "transformer/deep/x.json"), "[]");
}

TEST_F(HubCache, ALinkReplacesWhatHadItsName) {
  Store(kOne, "a.json", "old");
  Store(kOne, "a.json", "new");
  Store(kOne, "a.json", "new");
  EXPECT_EQ(ReadBytes(Snapshot(kOne) / "a.json"), "new");
  EXPECT_EQ(std::distance(fs::directory_iterator(Snapshot(kOne)), fs::directory_iterator()), 1);
}

TEST_F(HubCache, FindsTheRevision) {
  Store(kOne, "a.json", "1");
  Store(kTwo, "a.json", "2");
  WriteRef(repo_, "main", kOne);
  WriteRef(repo_, "refs/pr/7", kTwo);
  EXPECT_EQ(ReadBytes(repo_ / "refs/main"), kOne);  // no line break: huggingface_hub would not take it
  EXPECT_EQ(Find("owner/model"), Snapshot(kOne));
  EXPECT_EQ(Find("owner/model@main"), Snapshot(kOne));
  EXPECT_EQ(Find("owner/model@refs/pr/7"), Snapshot(kTwo));
  EXPECT_EQ(Find("owner/model@" + kTwo), Snapshot(kTwo));
  WriteRef(repo_, "main", kTwo);
  EXPECT_EQ(Find("owner/model"), Snapshot(kTwo));
  EXPECT_THAT(Refusal("owner/model@v2"), AllOf(HasSubstr("not its revision v2"), HasSubstr("main, refs/pr/7"),
                                               HasSubstr("qwen-image pull owner/model@v2")));
}

TEST_F(HubCache, TheOnlySnapshotNeedsNoRef) {
  Store(kOne, "a.json", "1");
  EXPECT_EQ(Find("owner/model"), Snapshot(kOne));
  EXPECT_THAT(Refusal("owner/model@main"), HasSubstr("not its revision main"));
  Store(kTwo, "a.json", "2");
  EXPECT_THAT(Refusal("owner/model"), HasSubstr("not its revision main"));
}

TEST_F(HubCache, SaysHowToGetAModel) {
  EXPECT_THAT(Refusal("owner/other"),
              AllOf(HasSubstr("Hugging Face cache"), HasSubstr(cache_.path().string()),
                    HasSubstr("qwen-image pull owner/other")));
}

TEST_F(HubCache, RefusesWhatIsNotComplete) {
  Store(kOne, "model_index.json", "{}");
  Store(kOne, "transformer/model.safetensors", "weights");
  WriteRef(repo_, "main", kOne);
  const fs::path link = Snapshot(kOne) / "transformer/model.safetensors";
  const fs::path blob = fs::canonical(link);
  fs::rename(blob, blob.string() + ".incomplete");
  EXPECT_THAT(Refusal("owner/model"),
              AllOf(HasSubstr("1 file is missing, e.g. transformer/model.safetensors"),
                    HasSubstr("qwen-image pull owner/model")));
}

TEST_F(HubCache, RefusesMissingShards) {
  Store(kOne, "transformer/x.safetensors.index.json",
        R"({"weight_map":{"a":"x-1-of-2.safetensors","b":"x-2-of-2.safetensors","c":"../../../../y"}})");
  Store(kOne, "transformer/x-1-of-2.safetensors", "weights");
  WriteRef(repo_, "main", kOne);
  EXPECT_THAT(Refusal("owner/model"), HasSubstr("e.g. x-2-of-2.safetensors"));
  Store(kOne, "transformer/x-2-of-2.safetensors", "more");
  EXPECT_EQ(Find("owner/model"), Snapshot(kOne));
}

TEST_F(HubCache, AnInterruptedFirstDownloadHasNoRef) {
  Store(kOne, "model_index.json", "{}");
  cache_.Write("models--owner--model/blobs/" + kTwo + ".incomplete", "half");
  EXPECT_THAT(Refusal("owner/model"), AllOf(HasSubstr("not finished"), HasSubstr("resumes it")));
  // With a ref, what is unfinished belongs to something else.
  WriteRef(repo_, "main", kOne);
  EXPECT_EQ(Find("owner/model"), Snapshot(kOne));
}

TEST_F(HubCache, HostileRefs) {
  Store(kOne, "a.json", "1");
  Store(kTwo, "a.json", "2");
  cache_.Write("models--owner--model/refs/main", "../../../../etc");
  EXPECT_THAT(Refusal("owner/model"), Not(HasSubstr("etc")));
  cache_.Write("models--owner--model/refs/main", kOne + "\n");
  EXPECT_EQ(Find("owner/model"), Snapshot(kOne));
}

}  // namespace
}  // namespace qwen_image::hub
