#include "prove/privacy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "files/testing.h"

namespace qwen_image::prove {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class Privacy : public testing::Test {
 protected:
  Privacy() {
    fs::create_directories(model_ / "transformer");
    lora_.path = Write("Jane Doe/my loras/style.safetensors");
  }
  std::string Clean(const std::string& text) const {
    ModelFiles files = model_;
    files.loras = {lora_};
    return Cleaner(files, {root_ / "Jane Doe/report"}).Clean(text);
  }

  // Without the doubled slash of gtest's folders, as the library names files.
  fs::path Write(const std::string& name) const { return folder_.Write(name, "").lexically_normal(); }

  const TempFolder folder_;
  const fs::path root_ = folder_.path().lexically_normal();
  const fs::path model_ = root_ / "Jane Doe/secret model";
  LoraFile lora_;
};

TEST_F(Privacy, ThePathsOfTheUserGo) {
  EXPECT_EQ(Clean((model_ / "transformer/model.safetensors").string() + ": is 3 bytes long"),
            "MODEL/transformer/model.safetensors: is 3 bytes long");
  EXPECT_EQ(Clean("cannot open \"" + model_.string() + "\"."), "cannot open \"MODEL\".");
  EXPECT_EQ(Clean(lora_.path.string() + " does not fit"), "style.safetensors does not fit");
  EXPECT_EQ(Clean("wrote " + (root_ / "Jane Doe/report").string()), "wrote [path]");
}

TEST_F(Privacy, PathsThatNobodyNamedGo) {
  EXPECT_EQ(Clean("see /home/jane/.cache, (/etc/x) and '/root': ~/models/a"),
            "see [path], ([path]) and '[path]': [path]");
  EXPECT_EQ(Clean("{/home/jane/x} [/etc/x]"), "{[path]} [[path]]");
  EXPECT_EQ(Clean("HOME=/home/jane"), "HOME=[path]");
  EXPECT_EQ(Clean("//home/jane is file:///home/jane"), "[path] is file:[path]");
  EXPECT_EQ(Clean("/home/jane"), "[path]");
  EXPECT_THAT(Clean(model_.string() + "2/weights"), Not(HasSubstr("Jane")));
}

TEST_F(Privacy, OtherTextStays) {
  for (const char* text :
       {"transformer/step000/transformer_blocks.7:img", "1.5 s/step", "8 / 2", "a // b",
        "text_encoder/model.safetensors", "[1, 24, 64]", "~5 %", "https://example.org/a", ""})
    EXPECT_EQ(Clean(text), text);
}

TEST_F(Privacy, AFileAsTheModelKeepsItsName) {
  const fs::path file = Write("Jane Doe/qwen-image-Q4_K.gguf");
  EXPECT_EQ(Cleaner(file, {}).Clean(file.string() + ": not GGUF"), "qwen-image-Q4_K.gguf: not GGUF");
}

TEST_F(Privacy, LinksAreFollowed) {
  const fs::path link = root_ / "link";
  fs::create_directory_symlink(model_, link);
  const Cleaner cleaner(link, {});
  EXPECT_EQ(cleaner.Clean((model_ / "x").string() + " and " + (link / "x").string()), "MODEL/x and MODEL/x");
}

TEST_F(Privacy, EveryTextOfADocument) {
  Json json = {{"a", {"/home/jane/x", 1, {{"b", "is in " + model_.string()}}}}, {"c", nullptr}};
  Cleaner(model_, {}).Clean(json);
  EXPECT_EQ(json, Json({{"a", {"[path]", 1, {{"b", "is in MODEL"}}}}, {"c", nullptr}}));
}

TEST_F(Privacy, NamesBecomeAbsolute) {
  ModelFiles files("models/tiny/");
  files.vae = "vae.safetensors";
  const ModelFiles absolute = AbsoluteFiles(files);
  EXPECT_EQ(absolute.model, fs::current_path() / "models/tiny");
  EXPECT_EQ(absolute.vae, fs::current_path() / "vae.safetensors");
  EXPECT_EQ(absolute.transformer, "");
}

}  // namespace
}  // namespace qwen_image::prove
