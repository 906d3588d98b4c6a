#include "catalogue/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "catalogue/local.h"
#include "catalogue/testing.h"
#include "families/vocabulary.h"

namespace qwen_image::catalogue {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

std::string Refusal(const Json& json) {
  return MessageOf(ErrorKind::kBadInput, [&] { Catalogue::Parse(json, "data"); });
}

// The small catalogue with another value at a place.
Json With(const char* pointer, const Json& value) {
  Json json = SmallCatalogue();
  json[Json::json_pointer(pointer)] = value;
  return json;
}
Json Without(const char* parent, const char* key) {
  Json json = SmallCatalogue();
  json[Json::json_pointer(parent)].erase(key);
  return json;
}

TEST(Catalogue, ReadsAllOfAnEntry) {
  const Catalogue catalogue = Catalogue::Parse(SmallCatalogue(), "data");
  ASSERT_THAT(catalogue.entries(), SizeIs(3));
  const Entry& small = catalogue.entries()[1];
  EXPECT_EQ(small.family, "fox");
  EXPECT_EQ(small.tag, "small");
  EXPECT_EQ(small.steps, 4);
  EXPECT_EQ(small.cfg, 1.5);
  EXPECT_EQ(small.loras.at(0).scale, 0.5);
  EXPECT_EQ(small.loras.at(0).source->path, "Lightning-4steps.safetensors");
  EXPECT_EQ(small.Bytes(), 2'000 + 1'000 + 300 + 50);
  EXPECT_EQ(small.text_encoder, catalogue.entries()[0].text_encoder);  // shared
  EXPECT_THAT(catalogue.entries()[0].tokenizer->files,
              ElementsAre("tokenizer/vocab.json", "tokenizer/merges.txt"));
  EXPECT_TRUE(small.AllSeen());
  EXPECT_FALSE(catalogue.entries()[2].AllSeen());
}

TEST(Catalogue, EveryMistakeInTheDataIsFound) {
  EXPECT_THAT(Refusal(Json::array()), HasSubstr("not an object"));
  EXPECT_THAT(Refusal(With("/more", 1)), HasSubstr("\"more\" is not a key"));
  EXPECT_THAT(Refusal(With("/files/vae/sise", 1)), AllOf(HasSubstr("file \"vae\""), HasSubstr("\"sise\"")));
  EXPECT_THAT(Refusal(With("/models/0/licens", "x")), HasSubstr("model 1: \"licens\" is not a key"));
  EXPECT_THAT(Refusal(With("/models/0/parts/unet", "large")), HasSubstr("\"unet\" is not a key"));
  EXPECT_THAT(Refusal(With("/models/1/defaults/seed", 1)), HasSubstr("\"seed\" is not a key"));
  EXPECT_THAT(Refusal(With("/models/1/loras/0/weight", 1)), HasSubstr("\"weight\" is not a key"));
  for (const char* key : {"name", "purpose", "licence", "memory", "parts"})
    EXPECT_THAT(Refusal(Without("/models/0", key)), HasSubstr(fmt::format("\"{}\" is missing", key)));
  for (const char* key : {"repository", "path", "bytes"})
    EXPECT_THAT(Refusal(Without("/files/vae", key)), HasSubstr(fmt::format("\"{}\" is missing", key)));
  for (const char* key : {"transformer", "text_encoder", "vae"})
    EXPECT_THAT(Refusal(Without("/models/0/parts", key)), HasSubstr("are needed, or a model"));
}

TEST(Catalogue, EveryWrongValueIsFound) {
  for (const Json& bytes : {Json(0), Json(-1), Json(1.5), Json("1"), Json(uint64_t{1} << 60)})
    EXPECT_THAT(Refusal(With("/files/vae/bytes", bytes)), HasSubstr("number of bytes above 0")) << bytes;
  EXPECT_THAT(Refusal(With("/models/0/memory", 0)), HasSubstr("number of bytes above 0"));
  for (const char* name :
       {"fox", "Fox:large", "fox:", ":large", "a/b:c", "fox:large:x", "fox large:x", "-fox:x"})
    EXPECT_THAT(Refusal(With("/models/0/name", name)), HasSubstr("FAMILY:TAG")) << name;
  EXPECT_THAT(Refusal(With("/models/0/name", "fox:small")), HasSubstr("\"fox:small\" occurs twice"));
  for (const char* text : {"a\x1b[31mb", "two\nlines", "\u202e",
                           "\xc2\x9b"
                           "1m"})
    EXPECT_THAT(Refusal(With("/models/0/licence", text)), HasSubstr("a terminal would obey"));
  EXPECT_THAT(Refusal(With("/models/0/variant", "3.0")), HasSubstr("not a variant"));
  EXPECT_THAT(Refusal(With("/models/0/parts/vae", "absent")), HasSubstr("there is no file \"absent\""));
  EXPECT_THAT(Refusal(With("/models/1/defaults/steps", 0)), HasSubstr("from 1 to 1000"));
  EXPECT_THAT(Refusal(With("/models/1/loras/0/scale", "1")), HasSubstr("\"scale\" is not a number"));
  EXPECT_THAT(Refusal(With("/models/1/loras/0/file", "absent")), HasSubstr("there is no file \"absent\""));
  EXPECT_THAT(Refusal(With("/files/vae/repository", "vae")), HasSubstr("not OWNER/NAME"));
  for (const char* path : {"/etc/passwd", "../x", "a//b", "*.gguf", "."})
    EXPECT_THAT(Refusal(With("/files/vae/path", path)), HasSubstr("not the name of a file")) << path;
  EXPECT_THAT(Refusal(With("/files/words/files/0", "../vocab.json")), HasSubstr("not a file of"));
  EXPECT_THAT(Refusal(With("/files/words/files/0", "elsewhere/vocab.json")), HasSubstr("not a file of"));
  EXPECT_THAT(Refusal(With("/files/vae/unseen", true)), HasSubstr("either \"seen\""));
  EXPECT_THAT(Refusal(Without("/files/vae", "seen")), HasSubstr("either \"seen\""));
  EXPECT_THAT(Refusal(With("/files/whole/unseen", false)), HasSubstr("only be true"));
  EXPECT_THAT(Refusal(With("/files/small/path", "large.gguf")), HasSubstr("the file of two names"));
  Json unused = SmallCatalogue();
  unused["files"]["nobody"] = With("/files/vae/path", "x")["files"]["vae"];
  EXPECT_THAT(Refusal(unused), HasSubstr("no model uses the file \"nobody\""));
}

TEST(Catalogue, NamesAndFamilies) {
  const Catalogue catalogue = Catalogue::Parse(SmallCatalogue(), "data");
  EXPECT_THAT(catalogue.Find("fox:small"), ElementsAre(&catalogue.entries()[1]));
  EXPECT_THAT(catalogue.Find("fox"), ElementsAre(&catalogue.entries()[0], &catalogue.entries()[1]));
  EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [&] { catalogue.Find("fox:smal"); }),
              AllOf(HasSubstr("there is no model fox:smal"), HasSubstr("nearest: fox:small, ")));
  for (const char* name : {"fox", "fox:small", "qwen-image-2.1:turbo-q4"}) EXPECT_TRUE(IsName(name)) << name;
  for (const char* name : {"", "Qwen/Qwen-Image", "./fox", "~", "fox:", "FOX", "a b", "..", "C:\\x"})
    EXPECT_FALSE(IsName(name)) << name;
}

TEST(Catalogue, TheBuiltInOneIsWhole) {
  unsetenv("QWEN_IMAGE_CATALOGUE");
  const Catalogue catalogue = Catalogue::Load();
  EXPECT_THAT(catalogue.Find("qwen-image-2.1:turbo-q4"), SizeIs(1));
  EXPECT_THAT(catalogue.Find("qwen-image-2512:lightning-q4").at(0)->loras, SizeIs(1));
  for (const Entry& entry : catalogue.entries()) {
    SCOPED_TRACE(entry.name);
    EXPECT_THAT(entry.variant, Not(IsEmpty()));  // single files do not tell
    // A text encoder that is no GGUF brings no tokenizer.
    EXPECT_EQ(entry.tokenizer == nullptr, entry.text_encoder->path.ends_with(".gguf"));
    // A vision tower is needed for edits, and in a file of its own beside a GGUF.
    const bool edits = entry.variant != "qwen-image";
    EXPECT_EQ(entry.vision_encoder != nullptr, edits && entry.text_encoder->path.ends_with(".gguf"));
    // It draws with few steps because the name of its LoRA says so.
    EXPECT_EQ(!entry.loras.empty(), entry.tag.starts_with("lightning-"));
    for (const Lora& lora : entry.loras) EXPECT_THAT(lora.source->path, HasSubstr("Lightning-4steps"));
    // The largest part has to be in memory.
    for (const Source* source : entry.Sources()) EXPECT_LT(source->bytes, entry.memory);
  }
}

// docs/models.md shows the same.
TEST(Catalogue, IsTheTableOfTheDocument) {
  unsetenv("QWEN_IMAGE_CATALOGUE");
  std::ifstream document(std::string(QWEN_IMAGE_SOURCE_DIR) + "/docs/models.md");
  std::vector<std::string> shown, expected;
  for (std::string line; std::getline(document, line);) {
    const std::string first = line.starts_with("| `") ? line.substr(3, line.find('`', 3) - 3) : "";
    if (first.find(':') != first.npos && IsName(first)) shown.push_back(line);
  }
  const Catalogue catalogue = Catalogue::Load();
  for (const Entry& entry : catalogue.entries())
    expected.push_back(fmt::format("| `{}`{} | {} | {} | {} | {} |", entry.name, entry.AllSeen() ? "" : " *",
                                   entry.purpose, Gigabytes(entry.Bytes()), Gigabytes(entry.memory),
                                   entry.licence.substr(0, entry.licence.find(':'))));
  EXPECT_EQ(shown, expected) << fmt::format("{}", fmt::join(expected, "\n"));
}

}  // namespace
}  // namespace qwen_image::catalogue
