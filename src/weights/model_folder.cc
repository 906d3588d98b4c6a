#include "weights/model_folder.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "core/fail.h"
#include "files/text.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 5> kComponents = {"transformer", "text_encoder", "vae", "tokenizer",
                                                         "scheduler"};

// The text-to-image parts of all of these are the same.
constexpr std::array<std::string_view, 6> kSupportedClasses = {
    "QwenImagePipeline",     "QwenImageImg2ImgPipeline",  "QwenImageInpaintPipeline",
    "QwenImageEditPipeline", "QwenImageEditPlusPipeline", "QwenImageEditInpaintPipeline"};

bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool IsFolder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// `path` without a slash at its end, which would make its last component empty.
fs::path WithoutSlash(const fs::path& path) {
  return path.has_filename() || !path.has_parent_path() ? path : path.parent_path();
}

[[noreturn]] void FailMissing(const fs::path& root) {
  std::string_view hint = "check the spelling";
  const std::string text = root.string();
  // "Qwen/Qwen-Image": the name of a repository, taken for a path.
  if (!root.is_absolute() && !text.starts_with('.') && std::count(text.begin(), text.end(), '/') == 1) {
    hint = "if this is the name of a Hugging Face repository, download it first and give the folder";
  }
  Fail(ErrorKind::kBadInput, "there is no model folder {}; {}", text, hint);
}

[[noreturn]] void FailWithoutIndex(const fs::path& root) {
  const fs::path parent = root.has_parent_path() ? root.parent_path() : fs::path("..");
  if (Exists(parent / "model_index.json")) {
    Fail(ErrorKind::kBadInput, "{} is one component of a model; give the folder above it: {}", root.string(),
         parent.string());
  }
  std::error_code error;
  for (fs::directory_iterator it(root, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    if (Exists(it->path() / "model_index.json")) {
      Fail(ErrorKind::kBadInput, "{} has no model_index.json, but a folder in it has: give {}", root.string(),
           it->path().string());
    }
  }
  Fail(ErrorKind::kBadInput,
       "{} is not a model folder: it has no model_index.json. A folder as diffusers saves it is expected, "
       "with "
       "model_index.json, transformer, text_encoder, vae, tokenizer and scheduler",
       root.string());
}

void CheckClass(const std::string& where, const std::string& name) {
  if (std::find(kSupportedClasses.begin(), kSupportedClasses.end(), name) != kSupportedClasses.end()) return;
  const std::string_view what = name.starts_with("QwenImageLayered") ? "Layered is not supported yet"
                                : name.starts_with("QwenImage21")    ? "Qwen-Image-2.1 is not supported yet"
                                : name.starts_with("QwenImageControlNet") ? "ControlNet is not supported yet"
                                : name.starts_with("QwenImage")           ? "this kind is not supported yet"
                                                                : "qwen-image runs Qwen-Image models";
  Fail(ErrorKind::kBadInput, "{}: this is a {} model; {}", where, Printable(name, 80), what);
}

void CheckComponents(const fs::path& root) {
  std::string missing;
  for (const std::string_view component : kComponents) {
    if (!IsFolder(root / component)) missing += (missing.empty() ? "" : ", ") + std::string(component);
  }
  if (!missing.empty()) {
    Fail(ErrorKind::kBadInput,
         "{}: these folders of the model are missing: {}. The download may be incomplete", root.string(),
         missing);
  }
}

// The values of qwen_image.json.
class DefaultsReader {
 public:
  DefaultsReader(const Json& object, const std::string& where) : object_(object), where_(where) {}

  std::optional<std::string> Text(const char* key, size_t max_bytes) const {
    const Json* value = Find(key);
    if (!value) return std::nullopt;
    if (!value->is_string() || value->get_ref<const std::string&>().size() > max_bytes) {
      Refuse(key, *value, fmt::format("a string of at most {} bytes", max_bytes));
    }
    return value->get<std::string>();
  }

  std::optional<int64_t> Integer(const char* key, int64_t min, int64_t max, int64_t multiple = 1) const {
    const Json* value = Find(key);
    if (!value) return std::nullopt;
    const bool fits = value->is_number_unsigned() && value->get<uint64_t>() <= static_cast<uint64_t>(max) &&
                      value->get<int64_t>() >= min && value->get<int64_t>() % multiple == 0;
    if (!fits) {
      Refuse(key, *value,
             fmt::format("a whole number from {} to {}{}", min, max,
                         multiple > 1 ? fmt::format(" that is a multiple of {}", multiple) : ""));
    }
    return value->get<int64_t>();
  }

  std::optional<double> Number(const char* key, double min, double max) const {
    const Json* value = Find(key);
    if (!value) return std::nullopt;
    if (!value->is_number() || !(value->get<double>() >= min && value->get<double>() <= max)) {
      Refuse(key, *value, fmt::format("a number from {} to {}", min, max));
    }
    return value->get<double>();
  }

 private:
  const Json* Find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() ? nullptr : &*found;
  }

  [[noreturn]] void Refuse(const char* key, const Json& value, const std::string& expected) const {
    Fail(ErrorKind::kBadInput, "{}: \"{}\" is {}, expected {}", where_, key,
         value.is_structured() ? value.type_name() : Printable(value.dump(), 80), expected);
  }

  const Json& object_;
  const std::string& where_;
};

}  // namespace

ModelFolder OpenModelFolder(const fs::path& given) {
  const fs::path root = WithoutSlash(given);
  if (!Exists(root)) FailMissing(root);
  if (!IsFolder(root)) {
    Fail(ErrorKind::kBadInput,
         "{} is a single file; for now a model is a folder as diffusers saves it, with model_index.json",
         root.string());
  }
  const fs::path index_path = root / "model_index.json";
  if (!Exists(index_path)) FailWithoutIndex(root);
  ModelFolder folder;
  folder.model_index = ReadJsonFile(index_path, size_t{1} << 20);
  const Json& index = folder.model_index;
  const auto found = index.is_object() ? index.find("_class_name") : index.end();
  if (!index.is_object() || found == index.end() || !found->is_string()) {
    Fail(ErrorKind::kBadInput, "{}: no \"_class_name\" that says which pipeline the model is for",
         index_path.string());
  }
  folder.pipeline_class = found->get<std::string>();
  CheckClass(root.string(), folder.pipeline_class);
  CheckComponents(root);
  folder.root = root;
  folder.transformer = root / "transformer";
  folder.text_encoder = root / "text_encoder";
  folder.vae = root / "vae";
  folder.tokenizer = root / "tokenizer";
  folder.scheduler = root / "scheduler";
  return folder;
}

ModelDefaults ReadModelDefaults(const fs::path& root) {
  const fs::path path = root / "qwen_image.json";
  std::error_code error;
  if (!fs::exists(fs::symlink_status(path, error)))
    return {};  // a dangling link is a broken download, not a choice
  const std::string where = path.string();
  const Json object = ReadJsonFile(path, size_t{1} << 20);
  if (!object.is_object()) Fail(ErrorKind::kBadInput, "{}: a JSON object is expected", where);
  constexpr std::array<std::string_view, 6> kKeys = {"name",  "width", "height",
                                                     "steps", "cfg",   "negative_prompt"};
  for (const auto& [key, value] : object.items()) {
    if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end()) {
      Fail(ErrorKind::kBadInput,
           "{}: unknown key {}; known are name, width, height, steps, cfg and negative_prompt", where,
           Quoted(key));
    }
  }
  const DefaultsReader reader(object, where);
  // 16 pixels are one token: the VAE's factor 8 and a patch of 2.
  return {.name = reader.Text("name", 200),
          .width = reader.Integer("width", 16, 8192, 16),
          .height = reader.Integer("height", 16, 8192, 16),
          .steps = reader.Integer("steps", 1, 1000),
          .cfg = reader.Number("cfg", 0, 1000),
          .negative_prompt = reader.Text("negative_prompt", 65536)};
}

}  // namespace qwen_image
