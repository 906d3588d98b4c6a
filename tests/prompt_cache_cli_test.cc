// Embeddings of prompts that an earlier run computed.
#include "cli_fixture.h"
#include "files/safetensors.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class PromptCacheCli : public Cli {
 protected:
  // What --json says about a picture, which is left in drawn.png.
  Json Drawn(const Arguments& arguments, const RunOptions& options = {}) const {
    const RunResult result =
        Run(Arguments{"generate", "-q", "--json", "-o", "drawn.png"} + kQuick + arguments, options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err, "");
    return Json::parse(result.out, nullptr, false);
  }
  bool FromCache(const Arguments& arguments, const RunOptions& options = {}) const {
    return Drawn(arguments, options).value("prompt_from_cache", false);
  }
  std::vector<fs::path> Cached() const {
    std::vector<fs::path> files;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(Path("cache"), error)) files.push_back(entry.path());
    return files;
  }
  const Arguments cache_ = {"--prompt-cache", "cache"};
};

TEST_F(PromptCacheCli, TheSecondRunSkipsTheTextEncoder) {
  const Arguments request = cache_ + Arguments{"a star"};
  EXPECT_FALSE(FromCache(request));
  const Image first = ReadPng(Path("drawn.png"));
  EXPECT_EQ(Cached().size(), 2u) << "the prompt and the negative one";
  EXPECT_TRUE(FromCache(request));
  EXPECT_EQ(ReadPng(Path("drawn.png")).pixels, first.pixels);
  EXPECT_TRUE(FromCache(request + Arguments{"--seed", "7"}));
  EXPECT_TRUE(FromCache(request + Arguments{"--cfg", "1"}));
  EXPECT_FALSE(FromCache(cache_ + Arguments{"a ring"}));
  EXPECT_FALSE(FromCache(request + Arguments{"--negative-prompt", "dark"}));
  EXPECT_FALSE(FromCache(request + Arguments{"--max-sequence-length", "2"}));
}

// The files have the same size, header and time; a part in the middle of one tensor differs.
TEST_F(PromptCacheCli, ASwappedTextEncoderIsNoticed) {
  const ModelCopy model(Path("model"));
  const std::string file = "text_encoder/model.safetensors";
  const fs::path path = model.path() / file;
  model.Truncate(file, static_cast<int64_t>(fs::file_size(path)));  // a copy of its own
  const Arguments request = cache_ + Arguments{"a star", "-m", "model"};
  EXPECT_FALSE(FromCache(request));
  EXPECT_TRUE(FromCache(request));
  const Image first = ReadPng(Path("drawn.png"));

  const auto time = fs::last_write_time(path);
  std::string bytes = ReadBytes(path);
  const SafetensorsFile stored(path);
  size_t offset = 0;
  for (const auto& [name, tensor] : stored.tensors()) {
    if (name.ends_with("layers.0.mlp.down_proj.weight"))
      offset = static_cast<size_t>(tensor.bytes.data() - stored.file().bytes().data());
  }
  ASSERT_GT(offset, 0u);
  // Between two of the 256 places that are looked at.
  const size_t stride = bytes.size() / 256, begin = (offset / stride + 2) * stride + stride / 2;
  for (size_t i = 0; i < stride / 4; ++i) bytes[begin + i] ^= static_cast<char>(0x80);
  folder_.Write("other", bytes);
  fs::last_write_time(Path("other"), time);
  fs::rename(Path("other"), path);
  EXPECT_FALSE(FromCache(request));
  EXPECT_NE(ReadPng(Path("drawn.png")).pixels, first.pixels);
}

TEST_F(PromptCacheCli, ADamagedFileIsReplaced) {
  const Arguments request = cache_ + Arguments{"a star", "--cfg", "1"};
  EXPECT_FALSE(FromCache(request));
  const Image first = ReadPng(Path("drawn.png"));
  ASSERT_EQ(Cached().size(), 1u);
  const fs::path file = Cached().front();
  const std::string whole = ReadBytes(file);
  std::string flipped = whole;
  flipped[flipped.size() - 3] ^= 1;
  for (const std::string& bytes : {flipped, whole.substr(0, 100), std::string(), std::string(5 << 20, '{')}) {
    folder_.Write("cache/" + file.filename().string(), bytes);
    EXPECT_FALSE(FromCache(request));
    EXPECT_EQ(ReadPng(Path("drawn.png")).pixels, first.pixels);
    EXPECT_EQ(ReadBytes(file), whole) << "not replaced";
  }
  EXPECT_TRUE(FromCache(request));
}

TEST_F(PromptCacheCli, IsInTheUsersCacheFolder) {
  const RunOptions xdg = {.environment = {{"XDG_CACHE_HOME", Path("xdg").string()}}};
  EXPECT_FALSE(FromCache({"a star"}, xdg));
  EXPECT_TRUE(FromCache({"a star"}, xdg));
  EXPECT_TRUE(fs::exists(Path("xdg/qwen-image/prompts")));
  EXPECT_FALSE(FromCache({"a star", "--no-prompt-cache"}, xdg));
  const RunOptions home = {.environment = {{"XDG_CACHE_HOME", "relative"}, {"HOME", Path("home").string()}}};
  EXPECT_FALSE(FromCache({"a star"}, home));
  EXPECT_TRUE(FromCache({"a star"}, home));
  EXPECT_TRUE(fs::exists(Path("home/.cache/qwen-image/prompts")));
  EXPECT_FALSE(fs::exists(Path("relative")));
  EXPECT_FALSE(
      FromCache({"a star"}, {.environment = {{"XDG_CACHE_HOME", std::nullopt}, {"HOME", std::nullopt}}}));
}

TEST_F(PromptCacheCli, CannotFailARun) {
  folder_.Write("file", "");
  const RunResult result =
      Run(Arguments{"generate", "x", "-o", "out.png", "--prompt-cache", "file/cache"} + kQuick);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("note: prompts are not kept: cannot write file/cache"));
  ExpectRefused({"generate", "x", "--prompt-cache", "cache", "--no-prompt-cache"}, kUsage,
                "--no-prompt-cache");
}

TEST_F(PromptCacheCli, WatchedRunsDoNotUseIt) {
  const Arguments request = Arguments{"generate", "a star", "-o", "out.png"} + kQuick + cache_;
  ASSERT_EQ(Run(request).exit_code, 0);
  EXPECT_THAT(Run(request).out, HasSubstr("s (cached) + denoise"));
  const RunResult watched = Run(Arguments{"--trace=trace.json"} + request);
  EXPECT_EQ(watched.exit_code, 0);
  EXPECT_THAT(watched.out, Not(HasSubstr("cached")));
  EXPECT_THAT(ReadBytes(Path("trace.json")), HasSubstr("text_encoder"));
}

// Also without a folder.
TEST_F(PromptCacheCli, EveryPromptOfABatchIsEncodedOnce) {
  folder_.Write("prompts.txt", "a star\na ring\na star\n");
  const RunResult result = Run(Arguments{"generate", "--prompts", "prompts.txt", "--count", "2", "-q",
                                         "--json", "-o", "out.png", "--no-prompt-cache"} +
                               kQuick);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::vector<bool> cached;
  for (const std::string& line : Lines(result.out))
    cached.push_back(Json::parse(line).at("prompt_from_cache"));
  EXPECT_EQ(cached, (std::vector<bool>{false, true, false, true, true, true}));
  EXPECT_EQ(ReadPng(Path("out-005.png")).pixels, ReadPng(Path("out-001.png")).pixels);
}

}  // namespace
}  // namespace qwen_image
