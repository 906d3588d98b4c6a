#include "weights/model_parts.h"

#include <string_view>
#include <vector>

#include "core/fail.h"
#include "files/folder.h"
#include "files/json.h"
#include "files/text.h"
#include "weights/files.h"
#include "weights/recognize.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;

// `path` without a slash at its end, which would make its last component empty.
fs::path WithoutSlash(const fs::path& path) {
  return path.has_filename() || !path.has_parent_path() ? path : path.parent_path();
}

fs::path ParentOf(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

[[noreturn]] void FailMissing(const fs::path& root) {
  if (root.empty()) Fail(ErrorKind::kBadInput, "no model was named");
  Fail(ErrorKind::kBadInput, "there is no model {}; check the spelling", root.string());
}

[[noreturn]] void FailWithoutIndex(const fs::path& root) {
  const fs::path parent = root.has_parent_path() ? root.parent_path() : fs::path("..");
  if (Exists(parent / "model_index.json")) {
    Fail(ErrorKind::kBadInput, "{} is one component of a model; give the folder above it: {}", root.string(),
         parent.string());
  }
  std::error_code error;
  const fs::directory_iterator first(root, error);
  if (error) Fail(ErrorKind::kBadInput, "cannot read {}: {}", root.string(), error.message());
  for (fs::directory_iterator it = first; !error && it != fs::directory_iterator(); it.increment(error)) {
    if (Exists(it->path() / "model_index.json")) {
      Fail(ErrorKind::kBadInput, "{} has no model_index.json, but a folder in it has: give {}", root.string(),
           it->path().string());
    }
  }
  Fail(ErrorKind::kBadInput,
       "{} is not a model folder. A folder with transformer, text_encoder, vae and tokenizer is expected (as "
       "diffusers and mflux save it), or one with diffusion_models, text_encoders and vae (ComfyUI), or a "
       "file "
       "with the transformer's weights",
       root.string());
}

std::string ReadPipelineClass(const fs::path& root) {
  const fs::path path = root / "model_index.json";
  const Json index = ReadJsonFile(path, size_t{1} << 20);
  const auto found = index.is_object() ? index.find("_class_name") : index.end();
  if (!index.is_object() || found == index.end() || !found->is_string()) {
    Fail(ErrorKind::kBadInput, "{}: no \"_class_name\" that says which pipeline the model is for",
         path.string());
  }
  std::string name = found->get<std::string>();
  if (const std::string_view why = WhyRefused(name); !why.empty())
    Fail(ErrorKind::kBadInput, "{}: this is a {} model; {}", root.string(), Printable(name, 80), why);
  return name;
}

// The only file with weights in a folder of ComfyUI's models, which may hold those of many.
fs::path OnlyWeightsIn(const fs::path& folder, Component component) {
  if (!IsFolder(folder)) return {};
  const std::vector<std::string> names = ListFolder(folder);
  std::vector<std::string> files = NamesEndingWith(names, kWeightsEnding);
  for (std::string& name : NamesEndingWith(names, kGgufEnding)) files.push_back(std::move(name));
  if (files.empty()) return {};
  if (files.size() == 1) return folder / files[0];
  for (std::string& name : files) name = Printable(name);
  Fail(ErrorKind::kBadInput, "{} holds several files; choose one as the {}: {}", folder.string(),
       NameOf(component), JoinNames(files));
}

// The folder of a model's tokenizer; empty: there is none. Qwen-Image-2.1's is with the processor of its
// pictures.
fs::path TokenizerIn(const fs::path& root) {
  if (IsFolder(root / "tokenizer")) return root / "tokenizer";
  const fs::path processor = root / "processor";
  return Exists(processor / "tokenizer_config.json") || Exists(processor / "tokenizer.json") ? processor
                                                                                             : fs::path();
}

void FindInComfyFolder(const fs::path& root, ModelParts& parts) {
  for (const char* name : {"diffusion_models", "unet"}) {
    if (parts.transformer.empty()) parts.transformer = OnlyWeightsIn(root / name, Component::kTransformer);
  }
  for (const char* name : {"text_encoders", "clip"}) {
    if (parts.text_encoder.empty()) parts.text_encoder = OnlyWeightsIn(root / name, Component::kTextEncoder);
  }
  if (parts.vae.empty()) parts.vae = OnlyWeightsIn(root / "vae", Component::kVae);
  if (parts.tokenizer.empty()) parts.tokenizer = TokenizerIn(root);  // which ComfyUI itself has no folder for
}

void FindInFolder(const fs::path& root, ModelParts& parts) {
  if (Exists(root / "model_index.json")) {
    parts.pipeline_class = ReadPipelineClass(root);
  } else if (IsFolder(root / "diffusion_models") || IsFolder(root / "unet")) {
    return FindInComfyFolder(root, parts);
  } else if (!IsFolder(root / "transformer")) {
    FailWithoutIndex(root);
  }
  const auto take = [&](const char* name, fs::path& part) {
    if (part.empty() && IsFolder(root / name)) part = root / name;
  };
  take("transformer", parts.transformer);
  take("text_encoder", parts.text_encoder);
  take("vae", parts.vae);
  if (parts.tokenizer.empty()) parts.tokenizer = TokenizerIn(root);
  take("scheduler", parts.scheduler);
}

// A single file as --model stands for the component that its tensors belong to.
void TakeSingleFile(const fs::path& file, ModelParts& parts) {
  const RecognizedFile found = RecognizeFile(file);
  if (found.components.empty()) Fail(ErrorKind::kBadInput, "{}: {}", file.string(), found.what);
  for (const Component component : found.components) {
    fs::path& part = component == Component::kTransformer   ? parts.transformer
                     : component == Component::kTextEncoder ? parts.text_encoder
                                                            : parts.vae;
    if (part.empty()) part = file;
  }
}

// Throws unless the file that the user named for a component holds one. The message says what the file holds
// instead.
void CheckNamedFile(const fs::path& path, Component component) {
  std::error_code error;
  if (path.empty() || !fs::is_regular_file(path, error)) return;
  const auto file = OpenWeightFile(path);
  const RecognizedFile found = Recognize(*file);
  if (found.known() || HasNamesOf(*file, component)) return;
  Fail(ErrorKind::kBadInput, "{}: the {} is expected here, but this is {}", path.string(), NameOf(component),
       found.what);
}

// Tokenizer and scheduler often lie beside a component that was named alone.
void FindBeside(const fs::path& part, ModelParts& parts) {
  if (part.empty() || !IsFolder(part)) return;
  const fs::path above = ParentOf(WithoutSlash(part));
  if (parts.tokenizer.empty()) parts.tokenizer = TokenizerIn(above);
  if (parts.scheduler.empty() && IsFolder(above / "scheduler")) parts.scheduler = above / "scheduler";
}

}  // namespace

std::vector<MissingPart> MissingParts(const ModelParts& parts) {
  std::vector<MissingPart> missing;
  if (parts.transformer.empty()) missing.push_back({"transformer", "--transformer"});
  if (parts.text_encoder.empty()) missing.push_back({"text_encoder", "--text-encoder"});
  if (parts.vae.empty()) missing.push_back({"vae", "--vae"});
  if (parts.tokenizer.empty()) missing.push_back({"tokenizer", "--tokenizer"});
  // A folder with an index has one; elsewhere the scheduler's settings are the official ones.
  if (!parts.pipeline_class.empty() && parts.scheduler.empty()) missing.push_back({"scheduler", ""});
  return missing;
}

ModelParts FindModelParts(const ModelFiles& files) {
  ModelParts parts = LocateModelParts(files);
  std::string names;
  for (const MissingPart& part : MissingParts(parts)) names += (names.empty() ? "" : ", ") + part.name;
  if (names.empty()) return parts;
  if (IsFolder(files.model)) {
    Fail(ErrorKind::kBadInput,
         "{}: these parts of the model are missing: {}. The download may be incomplete; parts that are "
         "elsewhere can be named one by one",
         parts.root.string(), names);
  }
  Fail(ErrorKind::kBadInput,
       "these parts of the model are missing: {}. Name a folder with all of them as the model, or the parts "
       "one by one",
       names);
}

ModelParts LocateModelParts(const ModelFiles& files) {
  ModelParts parts{.transformer = files.transformer,
                   .text_encoder = files.text_encoder,
                   .vae = files.vae,
                   .vision_encoder = files.vision_encoder,
                   .tokenizer = files.tokenizer};
  CheckNamedFile(files.transformer, Component::kTransformer);
  CheckNamedFile(files.text_encoder, Component::kTextEncoder);
  CheckNamedFile(files.vae, Component::kVae);
  CheckNamedFile(files.vision_encoder, Component::kVisionEncoder);
  parts.root = WithoutSlash(files.model);
  const bool named_parts = !files.transformer.empty() || !files.text_encoder.empty() || !files.vae.empty();
  if (!files.model.empty() || !named_parts) {
    if (!Exists(parts.root)) FailMissing(parts.root);
    if (IsFolder(parts.root)) {
      FindInFolder(parts.root, parts);
    } else {
      TakeSingleFile(parts.root, parts);
    }
  }
  FindBeside(parts.text_encoder, parts);
  FindBeside(parts.transformer, parts);
  if (parts.tokenizer.empty() && HasTokenizer(parts.text_encoder)) parts.tokenizer = parts.text_encoder;
  if (parts.vision_encoder.empty()) parts.vision_encoder = parts.text_encoder;
  for (const fs::path& part :
       {parts.transformer, parts.text_encoder, parts.vae, parts.vision_encoder, parts.tokenizer}) {
    if (!part.empty() && !Exists(part)) Fail(ErrorKind::kBadInput, "there is no {}", part.string());
  }
  if (parts.root.empty()) parts.root = parts.transformer;
  return parts;
}

}  // namespace qwen_image
