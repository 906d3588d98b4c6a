#include "picture_record.h"

#include <fmt/format.h>

#include "core/fail.h"
#include "files/picture_file.h"
#include "files/text.h"
#include "model_options.h"
#include "options/record.h"
#include "weights/config_reader.h"
#include "weights/model_name.h"

namespace qwen_image::cli {
namespace {

// Pictures without a record of it are from before there was a choice.
Precision RecordedPrecision(const ConfigReader& record) {
  const std::string name = record.String("precision", std::string(NameOf(Precision::kExact)));
  const std::optional<Precision> precision = ParseName<Precision>(name);
  if (!precision)
    Fail(ErrorKind::kBadInput, "{}: \"precision\" is {}, expected exact or fast", record.where(),
         Quoted(name));
  return *precision;
}

bool IsList(const options::Field& field) {
  return std::holds_alternative<std::vector<Image> GenerateRequest::*>(field.member);
}

// The options that name the files again which the record names; empty: none is missing.
std::string MissingFiles(const options::Field& field, const ConfigReader& reader, const Json& record,
                         const GenerateOptions& o) {
  if (field.recorded != options::Recorded::kAsName || !o.Files(field.name).empty() || !reader.Has(field.name))
    return "";
  const std::string flag = fmt::format(" {} ", options::FlagOf(field));
  if (!IsList(field)) return flag + Printable(reader.String(field.name, ""));
  std::string text;
  for (const Json& name : record[field.name].is_array() ? record[field.name] : Json::array())
    text += flag + Printable(name.is_string() ? name.get<std::string>() : "?");
  return text;
}

// The pictures and the noise that it was made from must be given again.
void NeedFiles(const Json& record, const std::string& picture, const std::string& where,
               const GenerateOptions& o) {
  const ConfigReader reader(record, where);
  std::string missing;
  for (const options::Field& field : options::Fields()) {
    const std::string files = MissingFiles(field, reader, record, o);
    if (!files.empty() &&
        std::holds_alternative<std::optional<InitialLatents> GenerateRequest::*>(field.member))
      Fail(ErrorKind::kUsage, "{}: the picture was drawn from noise of its own; give that file again with{}",
           picture, files);
    missing += files;
  }
  if (!missing.empty())
    Fail(ErrorKind::kUsage,
         "{}: the picture was made from others; say where they are: qwen-image {} --from …{}", picture,
         record.contains("input_images") ? "edit" : "generate", missing);
}

// Where the files are is not recorded, so they cannot be found again.
void NeedLoras(const Json& record, const std::string& picture, const std::string& where,
               const ModelFiles& files) {
  const auto loras = record.find("loras");
  if (loras == record.end() || !files.loras.empty()) return;
  std::string options;
  for (const Json& lora : loras->is_array() ? *loras : Json::array({nullptr})) {
    const ConfigReader entry(lora, where + ": loras");
    options += fmt::format(" --lora {}:{}", Printable(entry.String("file", "")), entry.Number("scale"));
  }
  if (options.empty()) return;
  Fail(ErrorKind::kUsage, "{}: the picture was drawn with a LoRA; say where it is with{}", picture, options);
}

}  // namespace

Json PictureRecord(const Picture& picture, const GenerateRequest& request, const GenerateOptions& o,
                   const std::string& model_name, const Pipeline& pipeline) {
  Json record = draw::DrawnRecord(picture, request, model_name, draw::ModelOf(pipeline));
  // What the picture was made from; as with LoRAs without the way there.
  for (const options::Field& field : options::Fields()) {
    for (const std::filesystem::path& path : o.Files(field.name)) {
      if (IsList(field)) {
        record[field.name].push_back(path.filename().string());
      } else {
        record[field.name] = path.filename().string();
      }
    }
  }
  return record;
}

Json RecordOfDrawn(const std::filesystem::path& picture, const std::string& run_id) {
  if (!std::filesystem::is_regular_file(picture)) return nullptr;
  try {
    const auto text = ReadPictureText(picture);
    const auto found = text.find(draw::kRecordKey);
    if (found == text.end()) return nullptr;
    Json record = ParseJson(found->second, picture.string());
    const bool same = record.is_object() && record.contains(kRunKey) && record[kRunKey] == run_id;
    return same ? record : nullptr;
  } catch (const Error&) {
    return nullptr;  // it will be drawn, and replaced
  }
}

void FillFromPicture(const std::filesystem::path& picture, GenerateOptions& o) {
  const auto text = ReadPictureText(picture);
  const auto found = text.find(draw::kRecordKey);
  if (found == text.end()) {
    Fail(ErrorKind::kBadInput,
         "{}: the picture carries no qwen-image settings (another program made it, or they were removed)",
         picture.string());
  }
  const std::string where = picture.string() + ": settings";
  const Json json = ParseJson(found->second, where);
  const ConfigReader record(json, where);
  if (record.Has("model") && record.String("model", "") != ModelName(FindModel(o.model)) &&
      o.model.model.empty() && o.model.transformer.empty()) {
    Fail(ErrorKind::kUsage, "{}: the picture was drawn with the model {}; say where it is with --model",
         picture.string(), Quoted(record.String("model", "")));
  }
  NeedLoras(json, picture.string(), where, o.model);
  NeedFiles(json, picture.string(), where, o);
  const bool size_given = !o.size.empty() || o.Given("width") || o.Given("height");
  if (record.Has(options::kSizeName) && !size_given) {
    const std::string size = record.String(options::kSizeName, "");
    if (size != options::kSizeOfInput) o.size = size;
  }
  if (!o.size.empty()) o.given.insert(options::kSizeName);
  // With --prompts each picture has its own.
  const bool own_prompts = !o.prompts_file.empty() && o.given.insert("prompt").second;
  options::ReadRecord(json, where, o.given, o.request);
  if (own_prompts) o.given.erase("prompt");
  if (!o.machine.precision) o.machine.precision = RecordedPrecision(record);
}

}  // namespace qwen_image::cli
