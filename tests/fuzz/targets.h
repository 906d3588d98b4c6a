// Every parser of untrusted bytes as a function that a fuzzer, or a replay of the corpus, can call. Whatever
// the bytes are, a target returns or throws Error kBadInput; RunTarget takes anything else for a bug.
#pragma once

#include <string_view>

namespace qwen_image {

void FuzzCatalogue(std::string_view bytes);  // models with short names, as $QWEN_IMAGE_CATALOGUE names them
void FuzzComponent(std::string_view bytes);  // a component's number, its config.json, NUL, its weights
void FuzzConfig(std::string_view bytes);     // config.json of each component
void FuzzGguf(std::string_view bytes);
void FuzzImage(std::string_view bytes);    // a picture of any format, as a picture and as a mask
void FuzzHead(std::string_view bytes);     // lines of a request: its target, Host, Origin, Authorization
void FuzzIndex(std::string_view bytes);    // *.safetensors.index.json
void FuzzInspect(std::string_view bytes);  // a weight file, as `qwen-image inspect` reads it
void FuzzJob(std::string_view bytes);      // a job that the server stored
void FuzzLora(std::string_view bytes);
void FuzzMultipart(std::string_view bytes);  // Content-Type, NUL, a form of the server; base64 of its parts
void FuzzNames(std::string_view bytes);      // the name of a tensor
void FuzzNpy(std::string_view bytes);
void FuzzNpz(std::string_view bytes);
void FuzzPng(std::string_view bytes);
void FuzzSafetensors(std::string_view bytes);
void FuzzTokenizer(std::string_view bytes);  // tokenizer.json, NUL, tokenizer_config.json
void FuzzWeights(std::string_view bytes);    // a weight file, every tensor bound and decoded

struct FuzzTarget {
  std::string_view name;  // also that of its folder in corpus/
  void (*run)(std::string_view bytes);
};
inline constexpr FuzzTarget kFuzzTargets[] = {
    {"catalogue", FuzzCatalogue},
    {"component", FuzzComponent},
    {"config", FuzzConfig},
    {"gguf", FuzzGguf},
    {"head", FuzzHead},
    {"image", FuzzImage},
    {"index", FuzzIndex},
    {"inspect", FuzzInspect},
    {"job", FuzzJob},
    {"lora", FuzzLora},
    {"multipart", FuzzMultipart},
    {"names", FuzzNames},
    {"npy", FuzzNpy},
    {"npz", FuzzNpz},
    {"png", FuzzPng},
    {"safetensors", FuzzSafetensors},
    {"tokenizer", FuzzTokenizer},
    {"weights", FuzzWeights},
};

// Null if there is none of this name.
const FuzzTarget* FindTarget(std::string_view name);

// Aborts, so that a fuzzer keeps the input, unless the target returns or throws an Error kBadInput whose
// message can be shown on a terminal.
void RunTarget(const FuzzTarget& target, std::string_view bytes);

}  // namespace qwen_image
