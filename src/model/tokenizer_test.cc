#include "model/tokenizer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "files/json.h"
#include "files/testing.h"
#include "model/text_split.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using SpecialTokens = Tokenizer::SpecialTokens;
using Ids = std::vector<int64_t>;

const fs::path kTiny = fs::path(QWEN_IMAGE_SOURCE_DIR) / "models/tiny/tokenizer";
const fs::path kGoldens = fs::path(QWEN_IMAGE_SOURCE_DIR) / "tests/goldens/tokenizer";

Json TinyJson() { return ReadJsonFile(kTiny / "tokenizer.json"); }

std::string MergesText(const Json& tokenizer, const std::string& line_end = "\n") {
  std::string text = "#version: 0.2" + line_end;
  for (const Json& merge : tokenizer["model"]["merges"]) {
    text += merge[0].get<std::string>() + " " + merge[1].get<std::string>() + line_end;
  }
  return text;
}

// The message with which a folder that holds this tokenizer.json is refused.
std::string RefusalOf(const Json& tokenizer) {
  const TempFolder folder;
  folder.Write("tokenizer.json", tokenizer.dump());
  return MessageOf(ErrorKind::kBadInput, [&] { Tokenizer{folder.path()}; });
}

std::string RefusalAfter(const std::function<void(Json&)>& change) {
  Json tokenizer = TinyJson();
  change(tokenizer);
  return RefusalOf(tokenizer);
}

// The lengths in bytes of the words of a text.
Ids WordsOf(std::string_view text) {
  const std::string normalized = NormalizeNfc(text);
  Ids lengths;
  for (std::string_view rest = normalized; !rest.empty(); rest.remove_prefix(NextWord(rest))) {
    lengths.push_back(static_cast<int64_t>(NextWord(rest)));
  }
  return lengths;
}

std::string Utf8Of(uint32_t c) {
  const auto byte = [](uint32_t value) { return static_cast<char>(value); };
  const auto tail = [&](uint32_t shift) { return byte(0x80 | (c >> shift & 0x3F)); };
  if (c < 0x80) return {byte(c)};
  if (c < 0x800) return {byte(0xC0 | c >> 6), tail(0)};
  if (c < 0x10000) return {byte(0xE0 | c >> 12), tail(6), tail(0)};
  return {byte(0xF0 | c >> 18), tail(12), tail(6), tail(0)};
}

// FNV-1a over numbers, as in tools/reference/tokenizer_goldens.py.
constexpr uint64_t kEmptyHash = 0xCBF29CE484222325;
void AddToHash(const Ids& numbers, uint64_t& hash) {
  for (const int64_t number : numbers) hash = (hash ^ static_cast<uint64_t>(number)) * 0x100000001B3;
}

void ExpectGoldens(const Tokenizer& tokenizer) {
  const Json goldens = ReadJsonFile(kGoldens / "texts.json");
  ASSERT_GE(goldens["rows"].size(), 150u);
  for (const Json& row : goldens["rows"]) {
    const auto text = row["text"].get<std::string>();
    SCOPED_TRACE(row["text"].dump(-1, ' ', true));
    const Ids ids = tokenizer.Encode(text, SpecialTokens::kParse);
    EXPECT_EQ(ids, row["parse"].get<Ids>());
    EXPECT_EQ(tokenizer.Encode(text, SpecialTokens::kLiteral), row["literal"].get<Ids>());
    EXPECT_EQ(WordsOf(text), row["words"].get<Ids>());
    EXPECT_EQ(tokenizer.Decode(ids), row["decoded"].get<std::string>());
  }
}

TEST(Tokenizer, GivesTheOfficialIds) {
  const Tokenizer tokenizer(kTiny);
  EXPECT_EQ(tokenizer.vocabulary_size(), 850);
  EXPECT_EQ(tokenizer.TokenId("<|im_start|>"), 829);
  ExpectGoldens(tokenizer);
}

// The same tokenizer as llama.cpp's converter lays it out.
TEST(Tokenizer, GivesTheOfficialIdsFromGguf) {
  const fs::path file = fs::path(QWEN_IMAGE_SOURCE_DIR) / "tests/goldens/formats/text_encoder_q8_0.gguf";
  const Tokenizer tokenizer(file);
  EXPECT_EQ(tokenizer.vocabulary_size(), 850);
  EXPECT_EQ(tokenizer.TokenId("<|im_start|>"), 829);
  ExpectGoldens(tokenizer);
}

TEST(Tokenizer, RefusesAGgufFileWithAnotherTokenizer) {
  const fs::path file = fs::path(QWEN_IMAGE_SOURCE_DIR) / "tests/goldens/formats/transformer_q8_0.gguf";
  EXPECT_THAT(
      MessageOf(ErrorKind::kBadInput, [&] { Tokenizer tokenizer(file); }),
      AllOf(HasSubstr("transformer_q8_0.gguf: its tokenizer is \"\""), HasSubstr("as the tokenizer")));
}

// Guards against the Unicode version of an installed library: see model/unicode.h.
TEST(Tokenizer, GivesTheOfficialIdsAndWordsForEveryCodePoint) {
  const Tokenizer tokenizer(kTiny);
  const Json goldens = ReadJsonFile(kGoldens / "code_points.json");
  const auto pattern = goldens["rows"][0]["text"].get<std::string>();
  for (size_t i = 1; i < goldens["rows"].size(); ++i) {
    const Json& row = goldens["rows"][i];
    const auto first = row["first"].get<uint32_t>();
    SCOPED_TRACE(fmt::format("U+{:04X} to U+{:04X}", first, first + 4095));
    uint64_t ids = kEmptyHash, words = kEmptyHash;
    for (uint32_t c = first; c < first + 4096; ++c) {
      if (c >= 0xD800 && c < 0xE000) continue;
      const std::string character = Utf8Of(c);
      std::string text;
      for (const char p : pattern) text += p == '@' ? character : std::string(1, p);
      AddToHash(tokenizer.Encode(text, SpecialTokens::kLiteral), ids);
      AddToHash(WordsOf(text), words);
    }
    EXPECT_EQ(fmt::format("{:016x}", ids), row["ids"].get<std::string>());
    EXPECT_EQ(fmt::format("{:016x}", words), row["words"].get<std::string>());
  }
}

TEST(Tokenizer, ReadsAllLayoutsOfTheSameTokenizer) {
  const Json tokenizer = TinyJson();
  const std::string config = ReadBytes(kTiny / "tokenizer_config.json");
  Json decoder, legacy;
  for (const Json& token : tokenizer["added_tokens"]) {
    Json entry = token;
    entry.erase("id");
    decoder[std::to_string(token["id"].get<int>())] = entry;
    legacy[token["content"].get<std::string>()] = token["id"];
  }
  Json config_with_decoder = {{"added_tokens_decoder", decoder}, {"model_max_length", 131072}};
  Json string_merges = tokenizer;
  for (Json& merge : string_merges["model"]["merges"]) {
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  }
  Json with_prefix_free_steps = tokenizer;
  with_prefix_free_steps["post_processor"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  with_prefix_free_steps["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}}}};

  const std::string vocabulary = tokenizer["model"]["vocab"].dump();
  const std::map<std::string, std::map<std::string, std::string>> layouts = {
      {"tokenizer.json alone", {{"tokenizer.json", tokenizer.dump()}}},
      {"merges as strings", {{"tokenizer.json", string_merges.dump()}}},
      {"as Qwen writes it", {{"tokenizer.json", with_prefix_free_steps.dump()}}},
      {"added_tokens_decoder",
       {{"vocab.json", vocabulary},
        {"merges.txt", MergesText(tokenizer)},
        {"tokenizer_config.json", config_with_decoder.dump()}}},
      {"added_tokens.json",
       {{"vocab.json", vocabulary},
        {"merges.txt", MergesText(tokenizer)},
        {"added_tokens.json", legacy.dump()},
        {"tokenizer_config.json", config}}},
      {"tokens that are only named, CRLF, empty lines",
       {{"vocab.json", vocabulary},
        {"merges.txt", MergesText(tokenizer, "\r\n") + "\r\n\n"},
        {"tokenizer_config.json", config}}},
  };
  for (const auto& [name, files] : layouts) {
    SCOPED_TRACE(name);
    const TempFolder folder;
    for (const auto& [file, text] : files) folder.Write(file, text);
    const Tokenizer loaded(folder.path());
    EXPECT_EQ(loaded.vocabulary_size(), 850);
    ExpectGoldens(loaded);
  }
}

// The ids are those of `tokenizers` with these tokens added to the tiny tokenizer.
TEST(Tokenizer, FindsAddedTokensLeftmostLongestAndAfterNfcIfAsked) {
  Json tokenizer = TinyJson();
  const std::pair<const char*, bool> added[] = {
      {"abc", false},           {"ab", false},      {"bcd", false}, {"caf\u00e9", true},
      {"e\u0301t\u00e9", true}, {"n\u00e9", false},
  };
  int id = 850;
  for (const auto& [content, normalized] : added) {
    tokenizer["added_tokens"].push_back({{"id", id++}, {"content", content}, {"normalized", normalized}});
  }
  const TempFolder folder;
  folder.Write("tokenizer.json", tokenizer.dump());
  const Tokenizer loaded(folder.path());
  const auto parse = [&](const char* text) { return loaded.Encode(text, SpecialTokens::kParse); };
  EXPECT_EQ(parse("abcd"), (Ids{850, 67}));
  EXPECT_EQ(parse("xabd"), (Ids{87, 851, 67}));
  EXPECT_EQ(parse("bcdab"), (Ids{852, 851}));
  EXPECT_EQ(parse("cafe\u0301!"), (Ids{853, 0}));
  EXPECT_EQ(parse("ne\u0301"), (Ids{77, 127, 102}));
  EXPECT_EQ(parse("n\u00e9"), (Ids{855}));
  EXPECT_EQ(parse("\u00e9te\u0301"), (Ids{854}));
  EXPECT_EQ(parse("cafe\u0301<|im_end|>"), (Ids{853, 830}));
  EXPECT_EQ(loaded.Decode({853, 850}), "caf\u00e9abc");
}

// transformers numbers them in this order: roles, Qwen2Tokenizer's default, then the others.
TEST(Tokenizer, NumbersTokensThatAreOnlyNamedAsTransformersDoes) {
  const Json tokenizer = TinyJson();
  const TempFolder folder;
  folder.Write("vocab.json", tokenizer["model"]["vocab"].dump());
  folder.Write("merges.txt", MergesText(tokenizer));
  EXPECT_EQ(Tokenizer(folder.path()).TokenId("<|endoftext|>"), 828);
  folder.Write("special_tokens_map.json",
               R"({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"], "eos_token": "<|im_end|>"})");
  const Tokenizer loaded(folder.path());
  EXPECT_EQ(loaded.TokenId("<|im_end|>"), 828);
  EXPECT_EQ(loaded.TokenId("<|endoftext|>"), 829);
  EXPECT_EQ(loaded.TokenId("<|im_start|>"), 830);
  EXPECT_EQ(loaded.vocabulary_size(), 831);
}

TEST(Tokenizer, SaysWhereTextIsNotUtf8) {
  const Tokenizer tokenizer(kTiny);
  const std::string_view broken[] = {
      "\x80",              // a continuation byte alone
      "\xC3",              // cut off
      "\xE6\xBC",          //
      "\xF0\x9F\x98",      //
      "\xC0\x80",          // overlong
      "\xC1\xBF",          //
      "\xE0\x9F\xBF",      //
      "\xF0\x8F\xBF\xBF",  //
      "\xED\xA0\x80",      // a surrogate
      "\xED\xBF\xBF",      //
      "\xF4\x90\x80\x80",  // above U+10FFFF
      "\xF8\x88\x80\x80",  //
      "\xFF",              //
      "\xE6\xBCx",         // a character where a continuation byte should be
  };
  for (const std::string_view bytes : broken) {
    for (const auto special : {SpecialTokens::kParse, SpecialTokens::kLiteral}) {
      const std::string text = "caf\u00e9 " + std::string(bytes) + "!";
      EXPECT_THAT(MessageOf(ErrorKind::kUsage, [&] { tokenizer.Encode(text, special); }),
                  HasSubstr("byte 6 "));
    }
  }
}

TEST(Tokenizer, DecodesToValidUtf8) {
  const Tokenizer tokenizer(kTiny);
  const Ids ids = tokenizer.Encode("\u6f22", SpecialTokens::kLiteral);
  ASSERT_EQ(ids.size(), 3u);
  EXPECT_EQ(tokenizer.Decode({ids[0], ids[1]}), "\ufffd");
  EXPECT_EQ(tokenizer.Decode({ids[1], ids[0], ids[0]}), "\ufffd\ufffd\ufffd");
  EXPECT_EQ(tokenizer.Decode({}), "");
  for (const int64_t id : {int64_t{-1}, int64_t{850}, int64_t{1} << 40}) {
    EXPECT_THAT(MessageOf(ErrorKind::kUsage, [&] { tokenizer.Decode({id}); }), HasSubstr(std::to_string(id)));
  }
  EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [&] { tokenizer.TokenId("<|nothing|>"); }),
              HasSubstr("<|nothing|>"));
}

// Quadratic steps anywhere would take minutes here.
TEST(Tokenizer, TakesLongTextsInItsStride) {
  const Tokenizer tokenizer(kTiny);
  const auto repeat = [](std::string_view part, size_t count) {
    std::string text;
    for (size_t i = 0; i < count; ++i) text += part;
    return text;
  };
  constexpr size_t kCount = 100'000;
  for (const char* part :
       {"a", " ", "\n", "!", "1", "circle", "<", "<|im_end|>", "\u0301\u0316", "\u4e00", "' "}) {
    const std::string text = repeat(part, kCount);
    EXPECT_EQ(tokenizer.Decode(tokenizer.Encode("q" + text + "a", SpecialTokens::kParse)).size(),
              text.size() + 2)
        << part;
  }
}

TEST(Tokenizer, RefusesAnotherTokenizersSteps) {
  const auto set = [](const char* pointer, const Json& value) {
    return RefusalAfter([&](Json& json) { json[Json::json_pointer(pointer)] = value; });
  };
  EXPECT_THAT(set("/normalizer", {{"type", "NFKC"}}), AllOf(HasSubstr("normalizer"), HasSubstr("NFKC")));
  EXPECT_THAT(set("/normalizer", nullptr), HasSubstr("normalizer is null"));
  EXPECT_THAT(set("/pre_tokenizer/pretokenizers/0/pattern/Regex", "\\p{N}{1,3}"),
              AllOf(HasSubstr("pre_tokenizer"), HasSubstr("{1,3}"), HasSubstr("(?i:'s|'t")));
  EXPECT_THAT(set("/pre_tokenizer/pretokenizers/0/behavior", "Removed"), HasSubstr("Removed"));
  EXPECT_THAT(set("/pre_tokenizer/pretokenizers/1/add_prefix_space", true), HasSubstr("pre_tokenizer"));
  EXPECT_THAT(set("/pre_tokenizer", {{"type", "ByteLevel"}}), HasSubstr("pre_tokenizer"));
  EXPECT_THAT(set("/pre_tokenizer", 7), HasSubstr("pre_tokenizer is 7"));
  EXPECT_THAT(set("/post_processor/single/1", {{"SpecialToken", {{"id", "<s>"}}}}),
              HasSubstr("post_processor"));
  EXPECT_THAT(set("/post_processor", {{"type", "TemplateProcessing"}, {"single", 1}}),
              HasSubstr("post_processor"));
  EXPECT_THAT(set("/model/type", "Unigram"), HasSubstr("Unigram"));
  EXPECT_THAT(set("/model/ignore_merges", true), HasSubstr("ignore_merges"));
  EXPECT_THAT(set("/model/end_of_word_suffix", "</w>"), HasSubstr("</w>"));
  EXPECT_THAT(set("/added_tokens/3/lstrip", true),
              AllOf(HasSubstr("lstrip"), HasSubstr("<|object_ref_start|>")));
  EXPECT_THAT(set("/added_tokens/3/content", ""), HasSubstr("no content"));

  const TempFolder folder;
  folder.Write("tokenizer.json", TinyJson().dump());
  folder.Write("tokenizer_config.json", R"({"add_prefix_space": true})");
  EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [&] { Tokenizer{folder.path()}; }),
              HasSubstr("add_prefix_space"));
}

TEST(Tokenizer, RefusesBrokenVocabularies) {
  const auto vocab = [](const std::function<void(Json&)>& change) {
    return RefusalAfter([&](Json& json) { change(json["model"]["vocab"]); });
  };
  EXPECT_THAT(vocab([](Json& v) { v["a"] = -1; }), AllOf(HasSubstr("\"a\""), HasSubstr("-1")));
  EXPECT_THAT(vocab([](Json& v) { v["a"] = int64_t{1} << 31; }), HasSubstr("2147483648"));
  EXPECT_THAT(vocab([](Json& v) { v["a"] = 1.5; }), HasSubstr("1.5"));
  EXPECT_THAT(vocab([](Json& v) { v["a"] = "64"; }), HasSubstr("\"64\""));
  EXPECT_THAT(vocab([](Json& v) { v["a"] = v["b"]; }), HasSubstr("two tokens"));
  const auto rename_space = [](Json& v) {
    v["not a space"] = v["\u0120"];
    v.erase("\u0120");
  };
  EXPECT_THAT(vocab(rename_space), HasSubstr("no tokens for the bytes 0x20"));
  EXPECT_THAT(vocab([](Json& v) { v = Json::object(); }), HasSubstr("no vocabulary"));
  EXPECT_THAT(vocab([](Json& v) { v = nullptr; }), HasSubstr("no vocabulary"));
  EXPECT_THAT(vocab([](Json& v) { v = Json::array({1}); }), HasSubstr("no vocabulary"));
  EXPECT_THAT(vocab([](Json& v) { v["one more"] = 100'000; }), HasSubstr("belong together"));
  EXPECT_THAT(RefusalAfter([](Json& json) { json["added_tokens"][1]["id"] = 3; }),
              HasSubstr("belong together"));
  EXPECT_THAT(RefusalAfter([](Json& json) { json["added_tokens"][1]["id"] = -3; }), HasSubstr("-3"));
  EXPECT_THAT(RefusalAfter([](Json& json) { json["added_tokens"] = 3; }), HasSubstr("id of token"));
  EXPECT_THAT(RefusalOf(Json::array()), HasSubstr("normalizer"));
}

TEST(Tokenizer, RefusesBrokenMerges) {
  const auto merge = [](const Json& value) {
    return RefusalAfter([&](Json& json) { json["model"]["merges"].push_back(value); });
  };
  EXPECT_THAT(merge({"a", "\u6f22"}), AllOf(HasSubstr("merge 572"), HasSubstr("not in the vocabulary")));
  EXPECT_THAT(merge({"z", "z"}), HasSubstr("\"zz\""));
  EXPECT_THAT(merge({"a", "b", "c"}), HasSubstr("expected"));
  EXPECT_THAT(merge("a b c"), HasSubstr("one space"));
  EXPECT_THAT(merge("ab"), HasSubstr("one space"));
  EXPECT_THAT(merge(7), HasSubstr("is 7"));
  EXPECT_THAT(RefusalAfter([](Json& json) { json["model"].erase("merges"); }), HasSubstr("merges is null"));
}

TEST(Tokenizer, RefusesFoldersThatHoldNoTokenizer) {
  const TempFolder folder;
  const auto message = [&] { return MessageOf(ErrorKind::kBadInput, [&] { Tokenizer{folder.path()}; }); };
  EXPECT_THAT(message(), HasSubstr("no tokenizer here"));
  folder.Write("vocab.json", TinyJson()["model"]["vocab"].dump());
  EXPECT_THAT(message(), HasSubstr("no tokenizer here"));
  folder.Write("merges.txt", "a b c\n");
  EXPECT_THAT(message(), HasSubstr("merges.txt: merge 1 is \"a b c\""));
  folder.Write("merges.txt", "a \xFF\n");
  EXPECT_THAT(message(), HasSubstr("not valid UTF-8"));
  folder.Write("merges.txt", MergesText(TinyJson()));
  folder.Write("added_tokens.json", "[]");
  EXPECT_THAT(message(), HasSubstr("added_tokens.json: expected an object"));
  folder.Write("added_tokens.json", R"({"<|im_start|>": 5000})");
  EXPECT_THAT(message(), HasSubstr("has id 5000"));
  for (const char* key : {"x", "", "-1", "99999999999", "4294967296"}) {
    folder.Write("tokenizer_config.json", Json{{"added_tokens_decoder", {{key, {{"content", "x"}}}}}}.dump());
    EXPECT_THAT(message(), HasSubstr("tokenizer_config.json: the id of token \"x\"")) << key;
  }
  folder.Write("tokenizer_config.json", R"({"added_tokens_decoder": {"828": 1}})");
  EXPECT_THAT(message(), HasSubstr("no content"));
  folder.Write("tokenizer.json", "{");
  EXPECT_THAT(message(), HasSubstr("tokenizer.json"));
}

}  // namespace
}  // namespace qwen_image
