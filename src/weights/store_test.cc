#include "weights/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/fail.h"
#include "files/testing.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A file with one tensor of one byte.
std::string Shard(const std::string& tensor) {
  return SafetensorsBytes("{\"" + tensor + R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x");
}

void WriteIndex(const TempFolder& folder, const std::string& weight_map) {
  folder.Write("model.safetensors.index.json", "{\"metadata\": {}, \"weight_map\": " + weight_map + "}");
}

std::string MessageFor(const TempFolder& folder) {
  return MessageOf(ErrorKind::kBadInput, [&] { WeightStore(folder.path(), Component::kTransformer); });
}

TEST(WeightStore, OpensTheTinyModel) {
  const fs::path tiny = fs::path(QWEN_IMAGE_SOURCE_DIR) / "models/tiny";
  const WeightStore transformer = WeightStore(tiny / "transformer", Component::kTransformer);
  EXPECT_TRUE(transformer.tensors().contains("img_in.weight"));
  EXPECT_EQ(transformer.total_bytes(),
            static_cast<int64_t>(fs::file_size(tiny / "transformer/diffusion_pytorch_model.safetensors")));
  transformer.ReleasePages();
  EXPECT_FALSE(WeightStore(tiny / "text_encoder", Component::kTextEncoder).tensors().empty());
}

TEST(WeightStore, OpensShards) {
  const TempFolder folder;
  WriteIndex(folder, R"({"a": "1.safetensors", "b": "2.safetensors"})");
  folder.Write("1.safetensors", Shard("a"));
  folder.Write("2.safetensors", Shard("b"));
  folder.Write("3.safetensors", "not named by the index: not opened");
  folder.Write("model.safetensors", "an index goes first, as in diffusers");
  const WeightStore store = WeightStore(folder.path(), Component::kTransformer);
  EXPECT_EQ(store.tensors().size(), 2u);
  EXPECT_EQ(store.total_bytes(), static_cast<int64_t>(Shard("a").size() + Shard("b").size()));
  EXPECT_EQ(store.path(), folder.path());
}

TEST(WeightStore, FindsTheOnlyFileOfAnotherName) {
  const TempFolder single;
  single.Write("diffusion_pytorch_model.fp16.safetensors", Shard("a"));
  single.Write("config.json", "{}");
  single.Write("._hidden.safetensors", "a file of another system");
  EXPECT_TRUE(WeightStore(single.path(), Component::kTransformer).tensors().contains("a"));
  const TempFolder sharded;
  sharded.Write("w.fp16.safetensors.index.json", R"({"weight_map": {"a": "1.safetensors"}})");
  sharded.Write("1.safetensors", Shard("a"));
  sharded.Write("2.safetensors", Shard("b"));
  EXPECT_TRUE(WeightStore(sharded.path(), Component::kTransformer).tensors().contains("a"));
}

TEST(WeightStore, SeveralCandidatesAreAnError) {
  const TempFolder folder;
  folder.Write("x.safetensors", Shard("a"));
  folder.Write("y.safetensors", Shard("a"));
  EXPECT_THAT(MessageFor(folder), AllOf(HasSubstr("unclear"), HasSubstr("x.safetensors, y.safetensors")));
  folder.Write("model.safetensors", Shard("a"));
  EXPECT_NO_THROW(WeightStore(folder.path(), Component::kTransformer));  // the usual name decides
  folder.Write("diffusion_pytorch_model.safetensors", Shard("a"));
  EXPECT_THAT(MessageFor(folder), HasSubstr("diffusion_pytorch_model.safetensors, model.safetensors"));
}

TEST(WeightStore, NoWeights) {
  const TempFolder folder;
  EXPECT_THAT(MessageFor(folder), AllOf(HasSubstr("holds no weights"), HasSubstr("incomplete")));
  EXPECT_THAT(MessageOf(ErrorKind::kBadInput,
                        [&] { WeightStore(folder.path() / "absent", Component::kTransformer); }),
              HasSubstr("absent; a file with the weights of the transformer"));
  folder.Write("diffusion_pytorch_model.bin", "");
  EXPECT_THAT(MessageFor(folder), AllOf(HasSubstr("diffusion_pytorch_model.bin"),
                                        HasSubstr("safetensors or GGUF files are needed")));
}

TEST(WeightStore, ShardsWithoutIndex) {
  const TempFolder folder;
  folder.Write("model-00001-of-00002.safetensors", Shard("a"));
  EXPECT_THAT(MessageFor(folder), HasSubstr("no *.safetensors.index.json"));
}

TEST(WeightStoreIndex, AllMissingShardsAreListed) {
  const TempFolder folder;
  WriteIndex(folder,
             R"({"a": "1.safetensors", "b": "2.safetensors", "c": "3.safetensors", "d": "3.safetensors"})");
  folder.Write("2.safetensors", Shard("b"));
  EXPECT_THAT(MessageFor(folder),
              AllOf(HasSubstr("2 of 3 shards are missing: \"1.safetensors\", \"3.safetensors\""),
                    HasSubstr("incomplete")));
}

TEST(WeightStoreIndex, AllTruncatedShardsAreListed) {
  const TempFolder folder;
  WriteIndex(folder, R"({"a": "1.safetensors", "b": "2.safetensors", "c": "3.safetensors"})");
  folder.Write("1.safetensors", Shard("a").substr(0, 20));
  folder.Write("2.safetensors", Shard("b"));
  std::string cut = Shard("c");
  cut.pop_back();
  folder.Write("3.safetensors", cut);
  EXPECT_THAT(MessageFor(folder),
              AllOf(HasSubstr("/1.safetensors"), Not(HasSubstr("/2.safetensors")),
                    HasSubstr("/3.safetensors: tensor \"c\" ends at byte 1"), HasSubstr("incomplete")));
}

TEST(WeightStoreIndex, ShardNamesThatLeaveTheFolder) {
  const TempFolder folder;
  for (const char* name :
       {"../x.safetensors", "/etc/passwd", "a/b.safetensors", "..", ".", "", "a\\\\b", "a\\u0000b"}) {
    WriteIndex(folder, fmt::format(R"({{"t": "{}"}})", name));
    EXPECT_THAT(MessageFor(folder),
                AllOf(HasSubstr("index.json: tensor \"t\""), HasSubstr("plain name of a file")))
        << name;
  }
  WriteIndex(folder, R"({"t": 3})");
  EXPECT_THAT(MessageFor(folder), HasSubstr("is said to be in number"));
}

TEST(WeightStoreIndex, AShardThatIsADevice) {
  const TempFolder folder;
  WriteIndex(folder, R"({"t": "1.safetensors"})");
  fs::create_symlink("/dev/zero", folder.path() / "1.safetensors");
  EXPECT_THAT(MessageFor(folder), HasSubstr("not a regular file"));
}

TEST(WeightStoreIndex, ATensorThatIsNotInItsShard) {
  const TempFolder folder;
  WriteIndex(folder, R"({"a": "1.safetensors", "b": "1.safetensors", "c": "1.safetensors"})");
  folder.Write("1.safetensors", Shard("a"));
  EXPECT_THAT(MessageFor(folder),
              AllOf(HasSubstr("tensor \"b\" is in \"1.safetensors\", but it is not"), HasSubstr("\"c\"")));
}

TEST(WeightStoreIndex, ATensorInTwoShards) {
  const TempFolder folder;
  WriteIndex(folder, R"({"a": "1.safetensors", "b": "2.safetensors"})");
  folder.Write("1.safetensors", Shard("a"));
  folder.Write("2.safetensors", Shard("a"));
  EXPECT_THAT(MessageFor(folder),
              AllOf(HasSubstr("\"a\" is in two shards"), HasSubstr("/1.safe"), HasSubstr("/2.safe")));
}

TEST(WeightStoreIndex, WithoutWeightMap) {
  const TempFolder folder;
  for (const char* text : {"{}", "[]", R"({"weight_map": []})", R"({"weight_map": {}})"}) {
    folder.Write("model.safetensors.index.json", text);
    EXPECT_THAT(MessageFor(folder), HasSubstr("no \"weight_map\"")) << text;
  }
}

TEST(WeightStore, TwoTensorsOfOneNameAreAnError) {
  const TempFolder folder;
  WriteIndex(folder, R"({"img_in.weight": "1.safetensors", "transformer.img_in.weight": "2.safetensors"})");
  folder.Write("1.safetensors", Shard("img_in.weight"));
  folder.Write("2.safetensors", Shard("transformer.img_in.weight"));
  EXPECT_THAT(MessageFor(folder), HasSubstr("\"img_in.weight\" is there twice"));
}

}  // namespace
}  // namespace qwen_image
