#include "model_options.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#ifdef __APPLE__
#include <mach-o/dyld.h>
#include <sys/syslimits.h>
#endif

#include "core/fail.h"
#include "families/vocabulary.h"
#include "files/numbers.h"
#include "files/text.h"
#include "hub/hub_cache.h"
#include "hub/hub_environment.h"

namespace qwen_image {
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
    throw CLI::ValidationError(
        "--lora", fmt::format("{} is not a scale; FILE or FILE:SCALE is expected", Quoted(number)));
  }
  return {text.substr(0, colon), *scale};
}

// `asked` if it is there; else, if it can be the name of a repository, its folder in the Hugging Face cache.
fs::path LocalOrDownloaded(const fs::path& asked) {
  std::error_code error;
  if (fs::exists(fs::symlink_status(asked, error))) return asked;
  const auto repo = ParseRepoId(asked.string());
  return repo ? FindSnapshot(HubCacheFolder(), *repo) : asked;
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

void AddModelOptions(CLI::App& command, ModelFiles& files) {
  const auto group = "Model";
  command
      .add_option(
          "-m,--model", files.model,
          "A folder (diffusers', mflux's or ComfyUI's layout), a single file, or owner/name of a pulled "
          "model (default, if no part is named: $QWEN_IMAGE_MODEL, or the embedded model)")
      ->group(group);
  command
      .add_option("--transformer", files.transformer,
                  "Take this part from another file or folder (safetensors, GGUF; bf16, fp8, MLX, Q4_K, …)")
      ->group(group);
  command.add_option("--text-encoder", files.text_encoder, "The same for the text encoder")->group(group);
  command.add_option("--vae", files.vae, "The same for the VAE")->group(group);
  command
      .add_option(
          "--vision-encoder", files.vision_encoder,
          "For edits with a text encoder that comes without its vision tower (GGUF): a file or folder "
          "that has one, or llama.cpp's mmproj file")
      ->group(group);
  command.add_option("--tokenizer", files.tokenizer, "The same for the tokenizer (a folder)")->group(group);
  command.add_option("--variant", files.variant, "What the model is, where its files do not tell")
      ->check(CLI::IsMember(KnownVariants()))
      ->group(group);
  command
      .add_option_function<std::vector<std::string>>(
          "--lora",
          [&files](const std::vector<std::string>& texts) {
            for (const std::string& text : texts) files.loras.push_back(ParseLora(text));
          },
          "Apply a LoRA: FILE or FILE:SCALE; may be given several times")
      ->allow_extra_args(false)
      ->take_all()
      ->group(group);
}

ModelFiles FindModel(ModelFiles named) {
  const bool parts = !named.transformer.empty() || !named.text_encoder.empty() || !named.vae.empty();
  if (!named.model.empty()) named.model = LocalOrDownloaded(named.model);
  if (!named.model.empty() || parts) return named;
  if (const char* variable = std::getenv("QWEN_IMAGE_MODEL"); variable && *variable) {
    named.model = LocalOrDownloaded(variable);
    return named;
  }
  std::error_code error;
  const fs::path program = ProgramFolder();
  for (const fs::path& candidate : {program / "../../models/tiny",
                                    program / "../share/qwen-image/models/tiny", fs::path("models/tiny")}) {
    if (!fs::exists(candidate / "model_index.json", error)) continue;
    named.model = candidate.lexically_normal();
    return named;
  }
  Fail(ErrorKind::kBadInput,
       "the embedded model was not found beside the program; say which one to use with --model FOLDER");
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

}  // namespace qwen_image
