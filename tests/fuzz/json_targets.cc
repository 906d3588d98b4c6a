// JSON files of a model folder, and the names of tensors.
#include <cstdlib>
#include <string>
#include <vector>

#include "catalogue/catalogue.h"
#include "families/qwen_image/text_encoder.h"
#include "families/qwen_image/transformer.h"
#include "families/qwen_image/vae.h"
#include "families/qwen_image/vision_encoder.h"
#include "families/qwen_image/vocabulary.h"
#include "files/json.h"
#include "files/text.h"
#include "hub/client.h"
#include "inputs.h"
#include "model/tokenizer.h"
#include "targets.h"
#include "weights/files.h"
#include "weights/recognize.h"
#include "weights/store.h"

namespace qwen_image {
namespace {

// A folder with weights that have nothing to say, so that only the config matters.
class ConfigFolder {
 public:
  ConfigFolder() {
    folder_.Write("model.safetensors",
                  std::string("\x40\0\0\0\0\0\0\0", 8) +
                      R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}          )" + "1234");
  }
  const std::filesystem::path& With(std::string_view config) const {
    folder_.Write("config.json", config);
    return folder_.path();
  }

 private:
  ScratchFolder folder_;
};

// Does what one component makes of the input, so that the next has its turn too.
template <typename Call>
void TryEach(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kBadInput) throw;
  }
}

}  // namespace

void FuzzCatalogue(std::string_view bytes) {
  const auto all = catalogue::Catalogue::Parse(ParseJson(bytes, "catalogue"), "catalogue");
  for (const catalogue::Entry& entry : all.entries()) {
    if (all.Find(entry.name) != std::vector<const catalogue::Entry*>{&entry}) std::abort();
    if (Printable(entry.licence, entry.licence.size() + 1) != entry.licence) std::abort();
    for (const catalogue::Source* source : entry.Sources()) {
      if (source->files.empty() || !hub::IsPlainPath(source->files.front())) std::abort();
    }
  }
}

void FuzzConfig(std::string_view bytes) {
  static const ConfigFolder folder;
  const std::filesystem::path& path = folder.With(bytes);
  TryEach([&] { ReadTransformerConfig(WeightStore(path, Component::kTransformer)); });
  TryEach([&] { ReadTextEncoderConfig(WeightStore(path, Component::kTextEncoder)); });
  TryEach([&] { ReadVisionEncoderConfig(WeightStore(path, Component::kVisionEncoder)); });
  ReadVaeConfig(WeightStore(path, Component::kVae));
}

void FuzzIndex(std::string_view bytes) {
  const MemoryFile file(bytes);
  for (const auto& [tensor, shard] : ReadShardIndex(file.path())) {
    // Joined to any folder it must stay there.
    const std::filesystem::path path = std::filesystem::path("/folder") / shard;
    if (path.lexically_normal().parent_path() != "/folder") std::abort();
  }
}

void FuzzNames(std::string_view bytes) {
  const std::string name(bytes);
  for (const Component component :
       {Component::kTransformer, Component::kTextEncoder, Component::kVae, Component::kVisionEncoder}) {
    const std::string once = QwenImageRenamer(component, {}, nullptr)(name);
    if (once.size() > name.size() + 200) std::abort();  // replacements, no growth without end
  }
  OtherModelWith(name);
  IsLoraTensor(name);
}

void FuzzTokenizer(std::string_view bytes) {
  static const ScratchFolder folder;
  const TwoParts parts = SplitAtNul(bytes);
  folder.Write("tokenizer.json", parts.first);
  folder.Write("tokenizer_config.json", parts.second.empty() ? "{}" : parts.second);
  const Tokenizer tokenizer(folder.path());
  for (const auto special : {Tokenizer::SpecialTokens::kLiteral, Tokenizer::SpecialTokens::kParse}) {
    const std::vector<int64_t> ids = tokenizer.Encode("A cat's 2 caf\xc3\xa9s\n <|im_start|>", special);
    tokenizer.Decode(ids);
  }
}

}  // namespace qwen_image
