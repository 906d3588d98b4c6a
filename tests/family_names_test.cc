// What a family calls its tensors is spelled in the family's folder and nowhere else: string literals of all
// other sources are searched for the names in its vocabulary, in recorded runs and in files of weights. Nor
// is a variant compared as a string.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "families/checkpoint_names.h"
#include "families/qwen_image/variant.h"
#include "families/vocabulary.h"
#include "files/json.h"
#include "files/testing.h"
#include "files/weight_file.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::IsEmpty;

const fs::path kSource = QWEN_IMAGE_SOURCE_DIR;

// Families that are refused are recognized by names of their tensors, which contain some of this family's.
const std::set<std::string> kSignsOfOthers = {"src/weights/recognize.cc"};

bool IsNumber(const std::string& text) { return text.find_first_not_of("0123456789") == text.npos; }

std::vector<std::string> Split(const std::string& text, std::string_view at) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (at.find(c) == at.npos) {
      parts.back() += c;
    } else {
      parts.emplace_back();
    }
  }
  return parts;
}

// What gives a name away: parts of several words ("img_in"), and two neighbours ("attn.qkv"). Single words
// ("norm", "weight") are everybody's.
class Words {
 public:
  void Add(std::string name) {
    std::replace(name.begin(), name.end(), '#', '0');  // a number of a pattern
    for (const std::string& path : Split(name, ":/")) {
      const std::vector<std::string> parts = Split(path, ".");
      for (size_t i = 0; i < parts.size(); ++i) {
        if (parts[i].find('_') != std::string::npos) words_.insert(parts[i]);
        if (i > 0 && !parts[i].empty() && !parts[i - 1].empty() && !IsNumber(parts[i]) &&
            !IsNumber(parts[i - 1]))
          words_.insert(parts[i - 1] + "." + parts[i]);
      }
    }
  }
  void Forget(std::string_view suffix) { words_.erase(std::string(suffix.substr(1))); }

  // Those in a text: a word ends where no letter, digit or '_' follows.
  std::vector<std::string> In(const std::string& text) const {
    std::vector<std::string> found;
    std::string before;  // the word that ended just before a '.'
    for (size_t i = 0; i < text.size();) {
      size_t end = i;
      while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_'))
        ++end;
      const std::string word = text.substr(i, end - i);
      if (words_.contains(word)) found.push_back(word);
      const std::string joined = fmt::format("{}.{}", before, word);
      if (!before.empty() && words_.contains(joined)) found.push_back(joined);
      before = end < text.size() && text[end] == '.' ? word : "";
      i = end + 1;
    }
    return found;
  }

  const std::set<std::string>& all() const { return words_; }

 private:
  std::set<std::string> words_;
};

void AddVocabulary(const CheckpointNames& names, Words& words) {
  const auto add = [&](std::string_view name) { words.Add(std::string(name)); };
  for (const ComponentBlocks& blocks : names.blocks)
    for (const std::string_view module : blocks.modules) add(module);
  for (const std::string_view list : names.block_lists) add(list);
  for (const MatrixRole& matrix : names.matrices) add(matrix.module);
  for (const StreamNames& s : names.streams)
    for (const std::string_view name :
         {s.input, s.output.value_or(""), s.norm[0], s.norm[1], s.modulated[0], s.modulated[1], s.modulation,
          s.attention_residual, s.mlp, s.query_norm, s.key_norm, s.value, s.attention_out, s.query_rope,
          s.key_rope})
      add(name);
  for (const std::string_view name :
       {names.denoiser_blocks, names.block_end.value_or(""), names.before_attention, names.head_norm,
        names.velocity, names.time_projection})
    add(name);
  const OneStreamNames one = names.one_stream.value_or(OneStreamNames());
  for (const std::string_view name : {one.pictures, one.modulation, one.gates[0], one.gates[1]}) add(name);
  const ConditionerNames& c = names.conditioner;
  for (const std::string_view name :
       {c.layers, c.deepstack, c.features, c.rope_cos, c.rope_sin, c.norm_from_zero})
    add(name);
}

// The modules of the components; boundaries and other records are the engine's.
void AddRecorded(const fs::path& manifest, Words& words) {
  for (const Json& entry : ReadJsonFile(manifest).value("checkpoints", Json::array())) {
    const std::string name = entry.at("name");
    const std::string component = name.substr(0, name.find_first_of("./"));
    const bool of_component = component == "transformer" || component == "text_encoder" || component == "vae";
    if (of_component && name.find('/') != name.npos && name != "vae/pre_decode_latents")
      words.Add(std::string(ModuleOf(name)));
  }
}

Words FamilyWords() {
  Words words;
  for (const Vocabulary* vocabulary : Vocabularies()) AddVocabulary(*vocabulary->checkpoints, words);
  for (const auto& entry : fs::directory_iterator(kSource / "tests/goldens"))
    if (fs::exists(entry.path() / "manifest.json")) AddRecorded(entry.path() / "manifest.json", words);
  for (const auto& entry : fs::recursive_directory_iterator(kSource / "models/tiny")) {
    if (entry.path().extension() != ".safetensors") continue;
    const auto file = OpenWeightFile(entry.path());
    for (const auto& [name, tensor] : file->tensors()) words.Add(name);
  }
  for (const std::string_view own : {kAttentionOutput, kAttentionWeights, kAttentionEntropy})
    words.Forget(own);
  return words;
}

// Without comments; a literal that goes on in the next line is two.
std::vector<std::string> LiteralsIn(const std::string& source) {
  std::vector<std::string> literals;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source.compare(i, 2, "//") == 0) {
      i = std::min(source.find('\n', i), source.size());
    } else if (source.compare(i, 2, "/*") == 0) {
      i = std::min(source.find("*/", i), source.size() - 2) + 1;
    } else if (source.compare(i, 3, "R\"(") == 0) {
      const size_t end = std::min(source.find(")\"", i), source.size());
      literals.push_back(source.substr(i + 3, end - i - 3));
      i = end + 1;
    } else if (source[i] == '\'' && (i == 0 || !std::isalnum(static_cast<unsigned char>(source[i - 1])))) {
      i = std::min(source.find('\'', i + (source[i + 1] == '\\' ? 3 : 1)), source.size());
    } else if (source[i] == '"') {
      size_t end = i + 1;
      while (end < source.size() && source[end] != '"') end += source[end] == '\\' ? 2 : 1;
      literals.push_back(source.substr(i + 1, end - i - 1));
      i = end;
    }
  }
  return literals;
}

// Calls visit(path in the repository, text) for every source but tests and the families' own.
template <typename Visit>
void ForEachSource(const Visit& visit) {
  for (const char* root : {"src", "apps"}) {
    for (const auto& entry : fs::recursive_directory_iterator(kSource / root)) {
      const std::string path = fs::relative(entry.path(), kSource).string();
      const bool is_source = path.ends_with(".cc") || path.ends_with(".h");
      const bool is_test = path.find("_test.") != path.npos || path.find("testing.") != path.npos;
      if (is_source && !is_test && !path.starts_with("src/families/")) visit(path, ReadBytes(entry.path()));
    }
  }
}

TEST(FamilyNames, AreFoundInAText) {
  Words words;
  words.Add("transformer_blocks.0.attn.to_q.weight");
  words.Add("model.visual.blocks.#");
  EXPECT_THAT(words.In("transformer_blocks.*.x"), Contains("transformer_blocks"));
  EXPECT_THAT(words.In("model.visual"), Contains("model.visual"));
  EXPECT_THAT(words.In("a visual model; my_transformer_blocks, attn, weight"), IsEmpty());
  EXPECT_THAT(LiteralsIn("f(\"a\\\"b\", 'c', '\\'', R\"(d)\", 1'000); // \"e\"\n/* \"f\" */ g(\"h\")"),
              testing::ElementsAre("a\\\"b", "d", "h"));
}

TEST(FamilyNames, AreSpelledInTheFamilysFolderOnly) {
  const Words words = FamilyWords();
  ASSERT_GT(words.all().size(), 100u);
  int sources = 0;
  ForEachSource([&](const std::string& path, const std::string& text) {
    ++sources;
    std::set<std::string> found;
    for (const std::string& literal : LiteralsIn(text))
      for (const std::string& word : words.In(literal)) found.insert(word);
    if (kSignsOfOthers.contains(path)) {
      EXPECT_FALSE(found.empty()) << path << " spells no name any more: take it from the list";
    } else {
      EXPECT_THAT(found, IsEmpty()) << path;
    }
  });
  EXPECT_GT(sources, 300);
}

TEST(FamilyNames, NoVariantIsComparedAsAString) {
  const std::regex compared(R"re(variant[A-Za-z_().]*\s*[!=]=\s*"|"\s*[!=]=\s*[A-Za-z_.]*variant)re");
  ForEachSource([&](const std::string& path, const std::string& text) {
    EXPECT_FALSE(std::regex_search(text, compared)) << path;
    if (path.ends_with(".h")) return;
    for (const std::string& literal : LiteralsIn(text)) {
      // "qwen-image" and "edit" are the program and a command of it, too.
      const auto variant = ParseVariant(literal);
      EXPECT_FALSE(variant == Variant::kEdit2509 || variant == Variant::kEdit2511) << path << ": " << literal;
    }
  });
}

TEST(AddAModel, NamesFilesThatExist) {
  const std::string text = ReadBytes(kSource / "docs/add_a_model.md");
  const std::regex path("`((?:src|tests|tools|docs)/[A-Za-z0-9_./]+)`");
  int named = 0;
  for (auto it = std::sregex_iterator(text.begin(), text.end(), path); it != std::sregex_iterator(); ++it) {
    EXPECT_TRUE(fs::exists(kSource / (*it)[1].str())) << (*it)[1];
    ++named;
  }
  EXPECT_GT(named, 10);
}

}  // namespace
}  // namespace qwen_image
