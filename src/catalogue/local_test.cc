#include "catalogue/local.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "catalogue/testing.h"

namespace qwen_image::catalogue {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class LocalModels : public testing::Test {
 protected:
  Choice Chosen(const std::string& name, const Machine& machine) const {
    return Choose(catalogue_.Find(name), name, cache_.path(), machine);
  }

  const Catalogue catalogue_ = Catalogue::Parse(SmallCatalogue(), "data");
  const Entry &large_ = catalogue_.entries()[0], &small_ = catalogue_.entries()[1],
              &whole_ = catalogue_.entries()[2];
  const CacheFolder cache_{};
};

TEST_F(LocalModels, WhatIsMissing) {
  const Machine machine{.memory = 5'000, .disk = 10'000};
  Status status = StatusOf(small_, cache_.path(), machine);
  EXPECT_FALSE(status.here);
  EXPECT_EQ(status.missing_bytes, small_.Bytes());
  EXPECT_TRUE(status.Fits());
  cache_.Store(*small_.text_encoder);
  status = StatusOf(small_, cache_.path(), machine);
  EXPECT_EQ(status.missing_bytes, small_.Bytes() - small_.text_encoder->bytes);
  EXPECT_FALSE(StatusOf(large_, cache_.path(), machine).fits_memory);
  EXPECT_FALSE(StatusOf(large_, cache_.path(), {.memory = 9'000, .disk = 100}).fits_disk);
  cache_.Store(small_);
  EXPECT_TRUE(StatusOf(small_, cache_.path(), machine).here);
}

TEST_F(LocalModels, WhatAnInterruptedDownloadLeft) {
  const Machine machine{.memory = 8'000, .disk = 10'000};
  const auto leave = [&](const std::string& repo, size_t bytes) {
    fs::create_directories(cache_.Repo(repo) / "blobs");
    std::ofstream(cache_.Repo(repo) / "blobs/0123.incomplete") << std::string(bytes, 'x');
  };
  EXPECT_EQ(Chosen("fox", {.memory = 8'000, .disk = 5'000}).entry, &small_);  // the large one needs 5,320
  leave("owner/encoder", 400);
  const Status status = StatusOf(large_, cache_.path(), machine);
  EXPECT_FALSE(status.begun);
  EXPECT_EQ(status.missing_bytes, large_.Bytes() - 400);
  EXPECT_EQ(Chosen("fox", {.memory = 8'000, .disk = 5'000}).entry, &large_);
  leave("owner/model", 9'000);  // of another file, too: no more counts than there is
  EXPECT_TRUE(StatusOf(large_, cache_.path(), machine).begun);
  EXPECT_EQ(StatusOf(large_, cache_.path(), machine).missing_bytes,
            large_.Bytes() - 400 - large_.transformer->bytes);
  EXPECT_THAT(Chosen("fox", machine).why, HasSubstr("taking large, whose download was begun"));
}

TEST_F(LocalModels, AFolderIsThereWhenAllOfItsFilesAre) {
  cache_.Store("owner/parts", "tokenizer/vocab.json", "{}");
  EXPECT_EQ(PathOf(*large_.tokenizer, cache_.path()), std::nullopt);
  cache_.Store("owner/parts", "tokenizer/merges.txt", "a b");
  EXPECT_EQ(PathOf(*large_.tokenizer, cache_.path()), cache_.Snapshot("owner/parts") / "tokenizer");
  fs::remove(fs::canonical(cache_.Snapshot("owner/parts") / "tokenizer/merges.txt"));  // its contents
  EXPECT_EQ(PathOf(*large_.tokenizer, cache_.path()), std::nullopt);
}

TEST_F(LocalModels, TheBestThatFitsIsChosen) {
  EXPECT_EQ(Chosen("fox", {.memory = 8'000, .disk = 10'000}).entry, &large_);
  const Choice choice = Chosen("fox", {.memory = 7'999, .disk = 10'000});
  EXPECT_EQ(choice.entry, &small_);
  EXPECT_THAT(choice.why, AllOf(HasSubstr("fox: taking small ("), HasSubstr("to download, needs"),
                                HasSubstr("this machine has")));
  EXPECT_EQ(Chosen("fox", {.memory = 8'000, .disk = 4'000}).entry, &small_);  // the disk decides, too
}

TEST_F(LocalModels, WhatIsDownloadedComesFirst) {
  cache_.Store(small_);
  const Choice choice = Chosen("fox", {.memory = 8'000, .disk = 10'000});
  EXPECT_EQ(choice.entry, &small_);
  EXPECT_EQ(choice.why, "fox: taking small, which is downloaded");
  EXPECT_EQ(Chosen("fox", {.memory = 1, .disk = 0}).entry, &small_);
  cache_.Store(large_);
  EXPECT_EQ(Chosen("fox", {.memory = 5'000, .disk = 0}).entry, &small_);  // the other does not fit
  EXPECT_EQ(Chosen("fox", {.memory = 9'000, .disk = 0}).entry, &large_);
}

TEST_F(LocalModels, NothingFits) {
  EXPECT_THAT(
      MessageOf(ErrorKind::kOutOfMemory, [&] { Chosen("fox", {.memory = 1'000, .disk = 10'000}); }),
      AllOf(HasSubstr("no model of fox fits"), HasSubstr("\n  fox:large: "), HasSubstr("\n  fox:small: ")));
  const Choice named = Chosen("fox:large", {.memory = 1, .disk = 1});
  EXPECT_EQ(named.entry, &large_);
  EXPECT_EQ(named.why, "");
}

TEST_F(LocalModels, TheFilesOfAnEntry) {
  EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [&] { Resolve(small_, "fox:small", cache_.path()); }),
              AllOf(HasSubstr("fox:small is not downloaded"), HasSubstr("qwen-image pull fox:small")));
  cache_.Store(small_);
  cache_.Store(large_);
  cache_.Store(whole_);
  const ModelFiles files = Resolve(small_, "fox:small", cache_.path());
  EXPECT_EQ(files.model, "");
  EXPECT_EQ(files.transformer, cache_.Snapshot("owner/model") / "small.gguf");
  EXPECT_EQ(files.text_encoder, cache_.Snapshot("owner/encoder") / "encoder.gguf");
  EXPECT_EQ(files.vae, cache_.Snapshot("owner/parts") / "vae/vae.safetensors");
  EXPECT_EQ(files.tokenizer, "");
  ASSERT_THAT(files.loras, SizeIs(1));
  EXPECT_EQ(files.loras[0].path, cache_.Snapshot("owner/loras") / "Lightning-4steps.safetensors");
  EXPECT_EQ(files.loras[0].scale, 0.5);
  EXPECT_EQ(Resolve(large_, "fox:large", cache_.path()).variant, "2.1-turbo");
  EXPECT_EQ(Resolve(whole_, "owl:whole", cache_.path()).model, cache_.Snapshot("other/whole"));
}

TEST_F(LocalModels, WhatTheUserSaysWins) {
  cache_.Store(small_);
  cache_.Store(large_);
  ModelFiles named = "fox:small";
  named.vae = "mine.safetensors";
  named.loras = {{"style.safetensors", 1.0}};
  ModelFiles files = Resolve(small_, named, cache_.path());
  EXPECT_EQ(files.vae, "mine.safetensors");
  ASSERT_THAT(files.loras, SizeIs(2));  // the model's own stays: its few steps depend on it
  EXPECT_EQ(files.loras[1].path, "style.safetensors");
  named.loras = {{"elsewhere/Lightning-4steps.safetensors", 0.9}};
  files = Resolve(small_, named, cache_.path());
  ASSERT_THAT(files.loras, SizeIs(1));
  EXPECT_EQ(files.loras[0].scale, 0.9);

  ModelFiles variant = "fox:large";
  variant.variant = "2.1";
  EXPECT_EQ(Resolve(large_, variant, cache_.path()).variant, "2.1");
  ModelFiles transformer = "fox:small";
  transformer.transformer = "mine.gguf";
  files = Resolve(small_, transformer, cache_.path());
  EXPECT_EQ(files.transformer, "mine.gguf");
  EXPECT_THAT(files.loras, SizeIs(0));
  transformer.model = "fox:large";
  EXPECT_EQ(Resolve(large_, transformer, cache_.path()).variant, "");
}

TEST(Gigabytes, AreShort) {
  EXPECT_EQ(Gigabytes(9'100'000'000), "9.1 GB");
  EXPECT_EQ(Gigabytes(23'400'000'000), "23 GB");
  EXPECT_EQ(Gigabytes(17'000'000), "17 MB");
  EXPECT_EQ(Gigabytes(UINT64_MAX), "an unknown amount");
}

}  // namespace
}  // namespace qwen_image::catalogue
