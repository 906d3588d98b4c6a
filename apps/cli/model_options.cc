#include "model_options.h"

#include <cstdlib>
#ifdef __APPLE__
#include <mach-o/dyld.h>
#include <sys/syslimits.h>
#endif

#include "catalogue/catalogue.h"
#include "catalogue/local.h"
#include "core/fail.h"
#include "families/vocabulary.h"
#include "files/numbers.h"
#include "files/text.h"
#include "hub/cache.h"
#include "hub/environment.h"
#include "named_model.h"

namespace qwen_image::cli {
namespace {

namespace fs = std::filesystem;

// "FILE" or "FILE:SCALE". A file whose name holds a colon is itself.
LoraFile ParseLora(const std::string& text) {
  const size_t colon = text.rfind(':');
  std::error_code error;
  if (colon == text.npos || fs::exists(text, error)) return {text, 1.0};
  const std::string number = text.substr(colon + 1);
  const std::optional<double> scale = ParseNumber(number);
  if (!scale) {
    Fail(ErrorKind::kUsage, "--lora: {} is not a scale; FILE or FILE:SCALE is expected", Quoted(number));
  }
  return {text.substr(0, colon), *scale};
}

bool IsThere(const fs::path& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

// Whether it is a short name, and nothing here is called so.
bool IsShortName(const fs::path& asked) { return catalogue::IsName(asked.string()) && !IsThere(asked); }

// The model's own folder or file, and the rest if it is named by a short name.
ModelFiles LocalOrDownloaded(ModelFiles named, bool quiet) {
  if (IsThere(named.model)) return named;
  if (const auto repo = hub::ParseRepoId(named.model.string())) {
    named.model = hub::FindSnapshot(hub::CacheFolder(), *repo);
  } else if (IsShortName(named.model)) {
    const fs::path cache = hub::CacheFolder();
    const NamedModel model = FindByName(named.model.string(), cache, quiet);
    return catalogue::Resolve(*model.entry, std::move(named), cache);
  } else if (named.model.string().find('/') == std::string::npos) {
    (void)catalogue::Catalogue::Load().Find(named.model.string());  // its refusal suggests names
  }
  return named;
}

bool NamesParts(const ModelFiles& named) {
  return !named.transformer.empty() || !named.text_encoder.empty() || !named.vae.empty();
}

// $QWEN_IMAGE_MODEL, which counts if nothing else is named.
void TakeVariable(ModelFiles& named) {
  const char* variable = std::getenv("QWEN_IMAGE_MODEL");
  if (named.model.empty() && !NamesParts(named) && variable && *variable) named.model = variable;
}

// Of the program that is running; empty if the system does not tell.
fs::path ProgramFolder() {
  std::error_code error;
#ifdef __APPLE__
  char path[PATH_MAX];
  uint32_t size = sizeof path;
  return _NSGetExecutablePath(path, &size) == 0 ? fs::canonical(path, error).parent_path() : fs::path();
#else
  return fs::read_symlink("/proc/self/exe", error).parent_path();
#endif
}

}  // namespace

OptionList ModelOptionList(ModelFiles& files) {
  const char* group = "Model";
  return {
      {.names = "-m,--model",
       .target = &files.model,
       .help = "A folder (diffusers', mflux's or ComfyUI's layout), a single file, owner/name of a pulled "
               "model, or a short name that `qwen-image list` shows "
               "(default, if no part is named: $QWEN_IMAGE_MODEL, or the embedded model)",
       .group = group},
      {.names = "--transformer",
       .target = &files.transformer,
       .help = "Take this part from another file or folder (safetensors, GGUF; bf16, fp8, MLX, Q4_K, …)",
       .group = group},
      {.names = "--text-encoder",
       .target = &files.text_encoder,
       .help = "The same for the text encoder",
       .group = group},
      {.names = "--vae", .target = &files.vae, .help = "The same for the VAE", .group = group},
      {.names = "--vision-encoder",
       .target = &files.vision_encoder,
       .help = "For edits with a text encoder that comes without its vision tower (GGUF): a file or folder "
               "that has "
               "one, or llama.cpp's mmproj file",
       .group = group},
      {.names = "--tokenizer",
       .target = &files.tokenizer,
       .help = "The same for the tokenizer (a folder)",
       .group = group},
      {.names = "--variant",
       .target = &files.variant,
       .help = "What the model is, where its files do not tell",
       .group = group,
       .one_of = KnownVariants()},
      {.names = "--lora",
       .target = [&files](const std::string& text) { files.loras.push_back(ParseLora(text)); },
       .help = "Apply a LoRA: FILE or FILE:SCALE; may be given several times",
       .group = group,
       .repeated = true},
  };
}

ModelFiles FindModel(ModelFiles named, bool quiet) {
  TakeVariable(named);
  if (!named.model.empty()) return LocalOrDownloaded(std::move(named), quiet);
  if (NamesParts(named)) return named;
  std::error_code error;
  const fs::path program = ProgramFolder();
  // Of a build, of an installed tree, of a Python package, of the folder where the user is.
  for (const fs::path& candidate :
       {program / "../../models/tiny", program / "../share/qwen-image/models/tiny",
        program / "../models/tiny", fs::path("models/tiny")}) {
    if (!fs::exists(candidate / "model_index.json", error)) continue;
    named.model = candidate.lexically_normal();
    return named;
  }
  Fail(ErrorKind::kBadInput,
       "the embedded model was not found beside the program; say which one to use with --model FOLDER");
}

fs::path FindWeights(const fs::path& named) {
  const ModelFiles files = LocalOrDownloaded(named, true);
  return files.model.empty() ? files.transformer : files.model;
}

NamedDefaults DefaultsOfName(const ModelFiles& files) {
  ModelFiles named = files;
  TakeVariable(named);
  if (!named.transformer.empty() || !IsShortName(named.model)) return {};
  const NamedModel model = FindByName(named.model.string(), hub::CacheFolder(), true);
  return {model.entry->steps, model.entry->cfg};
}

std::string ModelArguments(const ModelFiles& files) {
  std::string text;
  const auto add = [&](const char* option, const std::string& value) {
    if (!value.empty()) text += fmt::format("{}{} {}", text.empty() ? "" : " ", option, value);
  };
  add("--model", files.model.string());
  add("--transformer", files.transformer.string());
  add("--text-encoder", files.text_encoder.string());
  add("--vae", files.vae.string());
  add("--vision-encoder", files.vision_encoder.string());
  add("--tokenizer", files.tokenizer.string());
  add("--variant", files.variant);
  for (const LoraFile& lora : files.loras)
    add("--lora", fmt::format("{}:{}", lora.path.string(), lora.scale));
  return text;
}

}  // namespace qwen_image::cli
