#include "model/tokenizer_files.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string_view>

#include "core/fail.h"
#include "files/json.h"
#include "files/mmap.h"
#include "files/text.h"
#include "model/text_split.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;

// A file that cannot be looked at counts as there: opening it then says why not.
bool IsThere(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error) || error;
}

// `value` as it stands in the file, short enough for a message.
std::string Show(const Json& value) {
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true);
  if (text.size() > 300) text = text.substr(0, 300) + "…";
  return text;
}

const Json& Member(const Json& object, const char* key) {
  static const Json kNull;
  if (!object.is_object()) return kNull;
  const auto found = object.find(key);
  return found == object.end() ? kNull : *found;
}

// The content of an added token, for a message about its id.
std::string Describe(const Json& token) {
  const Json& content = Member(token, "content");
  return content.is_string() ? content.get<std::string>() : Show(token);
}

bool IsAbsentOr(const Json& value, const Json& expected) { return value.is_null() || value == expected; }

uint32_t TokenIdFrom(const Json& value, std::string_view token, std::string_view where) {
  constexpr uint64_t kMax = std::numeric_limits<int32_t>::max();
  if (!value.is_number_unsigned() || value.get<uint64_t>() > kMax) {
    Fail(ErrorKind::kBadInput, "{}: the id of token {} is {}, expected a whole number from 0 to {}", where,
         Quoted(token), Show(value), kMax);
  }
  return value.get<uint32_t>();
}

void ReadVocabulary(const Json& vocabulary, TokenizerFiles& files) {
  if (!vocabulary.is_object() || vocabulary.empty()) {
    Fail(ErrorKind::kBadInput, "{}: no vocabulary: expected an object of token → id, found {}", files.where,
         Show(vocabulary));
  }
  std::unordered_map<uint32_t, std::string_view> owners;
  owners.reserve(vocabulary.size());
  files.vocabulary.reserve(vocabulary.size());
  for (const auto& [token, value] : vocabulary.items()) {
    const uint32_t id = TokenIdFrom(value, token, files.where);
    const auto added = files.vocabulary.emplace(token, id).first;
    const auto [owner, is_new] = owners.emplace(id, added->first);
    if (!is_new) {
      Fail(ErrorKind::kBadInput, "{}: id {} belongs to two tokens, {} and {}", files.where, id,
           Quoted(owner->second), Quoted(token));
    }
  }
}

void ReadJsonMerges(const Json& merges, TokenizerFiles& files) {
  if (!merges.is_array()) {
    Fail(ErrorKind::kBadInput, "{}: model.merges is {}, expected a list", files.where, Show(merges));
  }
  files.merges.reserve(merges.size());
  for (const Json& merge : merges) {
    const size_t number = files.merges.size();
    if (merge.is_string()) {
      files.merges.push_back(SplitMerge(merge.get_ref<const std::string&>(), files.where, number));
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      files.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
    } else {
      Fail(ErrorKind::kBadInput, "{}: merge {} is {}, expected \"a b\" or [\"a\", \"b\"]", files.where,
           number, Show(merge));
    }
  }
}

void ReadMergesText(const fs::path& path, TokenizerFiles& files) {
  const MappedFile file(path);
  std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  if (!IsUtf8(text)) Fail(ErrorKind::kBadInput, "{}: not valid UTF-8", path.string());
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with("#version")) continue;
    files.merges.push_back(SplitMerge(line, path.string(), number));
  }
  file.ThrowIfDamaged();
}

// The steps that the engine takes whatever the file says; so the file has to say the same.
void CheckSteps(const Json& json, std::string_view where) {
  const auto refuse = [&](const char* key, std::string_view expected) {
    Fail(ErrorKind::kBadInput, "{}: {} is {}, but this engine tokenizes as Qwen2 does: expected {}", where,
         key, Show(Member(json, key)), expected);
  };
  const Json nfc = {{"type", "NFC"}};
  const Json& normalizer = Member(json, "normalizer");
  if (normalizer != nfc && normalizer != Json{{"type", "Sequence"}, {"normalizers", Json::array({nfc})}}) {
    refuse("normalizer", "NFC");
  }

  const Json& steps = Member(Member(json, "pre_tokenizer"), "pretokenizers");
  const bool has_two_steps = Member(Member(json, "pre_tokenizer"), "type") == "Sequence" &&
                             steps.is_array() && steps.size() == 2 && Member(steps[0], "type") == "Split" &&
                             Member(steps[1], "type") == "ByteLevel";
  if (!has_two_steps || Member(Member(steps[0], "pattern"), "Regex") != std::string(kQwen2Regex) ||
      Member(steps[0], "behavior") != "Isolated" || Member(steps[0], "invert") != false ||
      Member(steps[1], "add_prefix_space") != false || Member(steps[1], "use_regex") != false) {
    refuse("pre_tokenizer",
           fmt::format("an isolated Split at the expression {} and then ByteLevel, without its "
                       "own expression and without a prefix space",
                       kQwen2Regex));
  }

  const Json& post = Member(json, "post_processor");
  const Json& single = Member(post, "single");
  const bool adds_nothing = post.is_null() || Member(post, "type") == "ByteLevel" ||
                            (Member(post, "type") == "TemplateProcessing" && single.is_array() &&
                             single.size() == 1 && single[0].contains("Sequence"));
  if (!adds_nothing) refuse("post_processor", "one that adds no tokens");
}

void CheckModel(const Json& model, std::string_view where) {
  const std::pair<const char*, Json> expected[] = {
      {"type", "BPE"},
      {"dropout", nullptr},
      {"continuing_subword_prefix", ""},
      {"end_of_word_suffix", ""},
      {"byte_fallback", false},
      {"ignore_merges", false},
  };
  for (const auto& [key, value] : expected) {
    if (!IsAbsentOr(Member(model, key), value)) {
      Fail(ErrorKind::kBadInput, "{}: model.{} is {}, but this engine tokenizes as Qwen2 does: expected {}",
           where, key, Show(Member(model, key)), Show(value));
    }
  }
}

void CheckConfig(const Json& config, std::string_view where) {
  if (!config.is_object()) {
    Fail(ErrorKind::kBadInput, "{}: expected an object, found {}", where, Show(config));
  }
  for (const char* key : {"add_prefix_space", "add_bos_token", "add_eos_token", "split_special_tokens"}) {
    if (!IsAbsentOr(Member(config, key), false)) {
      Fail(ErrorKind::kBadInput, "{}: {} is {}, but this engine tokenizes as Qwen2 does: expected false",
           where, key, Show(Member(config, key)));
    }
  }
}

// The description of an added token as tokenizer.json and tokenizer_config.json have it.
AddedToken ReadAddedToken(const Json& json, uint32_t id, std::string_view where) {
  const Json& content = Member(json, "content");
  if (!content.is_string() || content.get_ref<const std::string&>().empty()) {
    Fail(ErrorKind::kBadInput, "{}: the added token with id {} has no content: {}", where, id, Show(json));
  }
  for (const char* key : {"lstrip", "rstrip", "single_word"}) {
    if (!IsAbsentOr(Member(json, key), false)) {
      Fail(ErrorKind::kBadInput, "{}: the added token {} has {} = {}, which this engine cannot do", where,
           Show(content), key, Show(Member(json, key)));
    }
  }
  const Json& normalized = Member(json, "normalized");
  const bool is_special = Member(json, "special") == true;
  return {content.get<std::string>(), id, normalized.is_null() ? !is_special : normalized == true};
}

// The tokens that `config` names in a role ("eos_token": …) or in a list, in the order of transformers.
std::vector<std::string> NamedTokens(const Json& config) {
  std::vector<std::string> names;
  const auto add = [&](const Json& token) {
    const Json& name = token.is_object() ? Member(token, "content") : token;
    if (name.is_string() && !name.get_ref<const std::string&>().empty())
      names.push_back(name.get<std::string>());
  };
  for (const char* key :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    add(Member(config, key));
  }
  for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
    const Json& list = Member(config, key);
    if (list.is_array() || list.is_object()) std::for_each(list.begin(), list.end(), add);
  }
  return names;
}

class AddedTokenReader {
 public:
  AddedTokenReader(const fs::path& folder, TokenizerFiles& files) : folder_(folder), files_(files) {}

  // `tokenizer_json` is null in a folder without that file.
  void Read(const Json& tokenizer_json) {
    const Json config = ReadIfThere("tokenizer_config.json");
    const std::string config_name = (folder_ / "tokenizer_config.json").string();
    if (!config.is_null()) CheckConfig(config, config_name);
    Json named = config.is_null() ? Json::object() : config;
    const Json& decoder = Member(config, "added_tokens_decoder");
    // transformers looks at no other list when this one is there.
    const bool has_decoder = !decoder.is_null();
    const Json map = has_decoder ? Json() : ReadIfThere("special_tokens_map.json");
    if (map.is_object()) named.update(map);
    for (const char* key : {"eos_token", "unk_token", "pad_token"}) {
      if (!named.contains(key)) named[key] = "<|endoftext|>";  // Qwen2Tokenizer's defaults
    }
    const std::vector<std::string> names = NamedTokens(named);

    if (has_decoder) {
      ReadDecoder(decoder, config_name);
    } else {
      ReadLegacy(ReadIfThere("added_tokens.json"), std::set<std::string>(names.begin(), names.end()));
      for (const Json& token : Member(tokenizer_json, "added_tokens")) {
        const uint32_t id = TokenIdFrom(Member(token, "id"), Describe(token), files_.where);
        by_id_[id] = ReadAddedToken(token, id, files_.where);
      }
    }
    Number(names);
  }

 private:
  Json ReadIfThere(const char* name) const {
    const fs::path path = folder_ / name;
    return IsThere(path) ? ReadJsonFile(path) : Json();
  }

  // {"151643": {"content": "<|endoftext|>", …}, …}
  void ReadDecoder(const Json& decoder, const std::string& where) {
    if (!decoder.is_object()) {
      Fail(ErrorKind::kBadInput, "{}: added_tokens_decoder is {}, expected an object", where, Show(decoder));
    }
    for (const auto& [key, token] : decoder.items()) {
      const bool is_number = !key.empty() && key.size() <= 10 &&
                             std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
      const uint32_t id = TokenIdFrom(is_number ? Json(std::stoull(key)) : Json(key), Describe(token), where);
      by_id_[id] = ReadAddedToken(token, id, where);
    }
  }

  // {"<|endoftext|>": 151643, …}: a token is special if another file names it.
  void ReadLegacy(const Json& tokens, const std::set<std::string>& special) {
    const std::string where = (folder_ / "added_tokens.json").string();
    if (!tokens.is_null() && !tokens.is_object()) {
      Fail(ErrorKind::kBadInput, "{}: expected an object of token → id, found {}", where, Show(tokens));
    }
    for (const auto& [content, value] : tokens.items()) {
      const uint32_t id = TokenIdFrom(value, content, where);
      by_id_[id] = ReadAddedToken({{"content", content}, {"special", special.contains(content)}}, id, where);
    }
  }

  // transformers adds the tokens in the order of their ids and renumbers them: a token of the vocabulary
  // keeps its id, any other gets the next free one. A file that disagrees with that is broken.
  void Number(const std::vector<std::string>& names) {
    auto next = static_cast<uint32_t>(files_.vocabulary.size());
    std::set<std::string> known;
    const auto number = [&](const std::string& content) {
      const auto found = files_.vocabulary.find(content);
      return found != files_.vocabulary.end() ? found->second : next++;
    };
    for (const auto& [id, token] : by_id_) {
      if (!known.insert(token.content).second) {
        Fail(ErrorKind::kBadInput, "{}: the added token {} has two ids", folder_.string(),
             Quoted(token.content));
      }
      const uint32_t official = number(token.content);
      if (id != official) {
        Fail(
            ErrorKind::kBadInput,
            "{}: the added token {} has id {}, but the vocabulary and the added tokens before it make it {}; "
            "do these files belong together?",
            folder_.string(), Quoted(token.content), id, official);
      }
      files_.added.push_back(token);
    }
    for (const std::string& name : names) {
      if (known.insert(name).second) files_.added.push_back({name, number(name), false});
    }
  }

  fs::path folder_;
  TokenizerFiles& files_;
  std::map<uint32_t, AddedToken> by_id_;
};

}  // namespace

std::pair<std::string, std::string> SplitMerge(std::string_view line, std::string_view where, size_t number) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || space == 0 || space + 1 == line.size() ||
      line.find(' ', space + 1) != std::string_view::npos) {
    Fail(ErrorKind::kBadInput, "{}: merge {} is {}, expected two tokens with one space between them", where,
         number, Quoted(line));
  }
  return {std::string(line.substr(0, space)), std::string(line.substr(space + 1))};
}

TokenizerFiles ReadTokenizerFiles(const fs::path& folder) {
  if (fs::is_regular_file(folder)) return ReadGgufTokenizer(folder);
  TokenizerFiles files;
  Json tokenizer_json;
  if (IsThere(folder / "tokenizer.json")) {
    files.where = (folder / "tokenizer.json").string();
    tokenizer_json = ReadJsonFile(folder / "tokenizer.json");
    const Json& model = Member(tokenizer_json, "model");
    CheckSteps(tokenizer_json, files.where);
    CheckModel(model, files.where);
    ReadVocabulary(Member(model, "vocab"), files);
    ReadJsonMerges(Member(model, "merges"), files);
  } else if (IsThere(folder / "vocab.json") && IsThere(folder / "merges.txt")) {
    files.where = (folder / "vocab.json").string();
    ReadVocabulary(ReadJsonFile(folder / "vocab.json"), files);
    ReadMergesText(folder / "merges.txt", files);
  } else {
    Fail(ErrorKind::kBadInput, "{}: no tokenizer here: expected tokenizer.json, or vocab.json and merges.txt",
         folder.string());
  }
  AddedTokenReader(folder, files).Read(tokenizer_json);
  return files;
}

}  // namespace qwen_image
