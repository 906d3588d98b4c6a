#include "picture_record.h"

#include "core/fail.h"
#include "files/png.h"
#include "files/text.h"
#include "model_options.h"
#include "weights/config_reader.h"
#include "weights/model_name.h"

namespace qwen_image {
namespace {

std::string RecordedSeed(const Json& record, const std::string& where) {
  const auto seed = record.find("seed");
  if (seed == record.end() || !seed->is_number_unsigned())
    Fail(ErrorKind::kBadInput, "{}: \"seed\" is not a whole number from 0 to 2^64 - 1", where);
  return std::to_string(seed->get<uint64_t>());
}

std::string RecordedTiling(const ConfigReader& record) {
  const std::string tiling = record.String("vae_tiling", "auto");
  if (tiling != "auto" && tiling != "on" && tiling != "off")
    Fail(ErrorKind::kBadInput, "{}: \"vae_tiling\" is {}, expected auto, on or off", record.where(),
         Quoted(tiling));
  return tiling;
}

// Pictures without a record of it are from before there was a choice.
std::string RecordedPrecision(const ConfigReader& record) {
  const std::string precision = record.String("precision", "exact");
  if (precision != "exact" && precision != "fast")
    Fail(ErrorKind::kBadInput, "{}: \"precision\" is {}, expected exact or fast", record.where(),
         Quoted(precision));
  return precision;
}

// As --sigmas takes them; empty if there are none.
std::string RecordedSigmas(const Json& record, const std::string& where) {
  const auto list = record.find("sigmas");
  if (list == record.end()) return "";
  std::vector<double> sigmas;
  for (const Json& sigma : list->is_array() ? *list : Json::array({nullptr})) {
    if (!sigma.is_number()) Fail(ErrorKind::kBadInput, "{}: \"sigmas\" is no list of numbers", where);
    sigmas.push_back(sigma.get<double>());
  }
  return SigmasText(sigmas);
}

// The pictures that it was made from must be given again.
void NeedPictures(const Json& record, const std::string& picture, const std::string& where,
                  const GenerateOptions& o) {
  const ConfigReader reader(record, where);
  std::string options;
  if (o.input_images.empty() && record.contains("input_images")) {
    for (const Json& name : record["input_images"].is_array() ? record["input_images"] : Json::array())
      options += " --input-image " + Printable(name.is_string() ? name.get<std::string>() : "?");
  }
  if (o.init_image.empty() && reader.Has("init_image"))
    options += " --init-image " + Printable(reader.String("init_image", ""));
  if (o.mask.empty() && reader.Has("mask")) options += " --mask " + Printable(reader.String("mask", ""));
  if (!options.empty())
    Fail(ErrorKind::kUsage,
         "{}: the picture was made from others; say where they are: qwen-image {} --from …{}", picture,
         record.contains("input_images") ? "edit" : "generate", options);
}

bool HasSource(const ConfigReader& record) { return record.Has("size"); }

void FillSource(const ConfigReader& record, GenerateOptions& o) {
  if (!HasSource(record)) return;
  const std::string size = record.String("size", "");
  if (size != "as the input" && o.size.empty() && !o.width && !o.height) o.size = size;
  if (o.outpaint.empty()) o.outpaint = record.String("outpaint", "");
  if (!o.strength && record.Has("strength")) o.strength = record.Number("strength");
  o.no_blend |= record.Bool("no_blend", false);
  o.keep_size |= record.Bool("keep_size", false);
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
  Json record = DrawnRecord(picture, request, model_name, pipeline.impl());
  // What the picture was made from; as with LoRAs without the way there.
  for (const auto& path : o.input_images) record["input_images"].push_back(path.filename().string());
  if (!o.init_image.empty()) record["init_image"] = o.init_image.filename().string();
  if (!o.mask.empty()) record["mask"] = o.mask.filename().string();
  if (!o.latents.empty()) record["latents"] = o.latents.filename().string();
  return record;
}

Json RecordOfDrawn(const std::filesystem::path& picture, const std::string& run_id) {
  if (!std::filesystem::is_regular_file(picture)) return nullptr;
  try {
    const auto text = ReadPngText(picture);
    const auto found = text.find(kRecordKey);
    if (found == text.end()) return nullptr;
    Json record = ParseJson(found->second, picture.string());
    const bool same = record.is_object() && record.contains(kRunKey) && record[kRunKey] == run_id;
    return same ? record : nullptr;
  } catch (const Error&) {
    return nullptr;  // it will be drawn, and replaced
  }
}

void FillFromPicture(const std::filesystem::path& picture, GenerateOptions& o) {
  const auto text = ReadPngText(picture);
  const auto found = text.find(kRecordKey);
  if (found == text.end()) {
    Fail(ErrorKind::kBadInput,
         "{}: the picture carries no qwen-image settings (another program made it, or they were removed)",
         picture.string());
  }
  const std::string where = picture.string() + ": settings";
  const Json json = ParseJson(found->second, where);
  const ConfigReader record(json, where);
  if (record.Has("model") && record.String("model", "") != ModelName(FindModel(o.files)) &&
      o.files.model.empty() && o.files.transformer.empty()) {
    Fail(ErrorKind::kUsage, "{}: the picture was drawn with the model {}; say where it is with --model",
         picture.string(), Quoted(record.String("model", "")));
  }
  if (record.Has("latents") && o.latents.empty()) {
    Fail(ErrorKind::kUsage, "{}: the picture was drawn from the noise in {}; give that file with --latents",
         picture.string(), Quoted(record.String("latents", "")));
  }
  NeedLoras(json, picture.string(), where, o.files);
  NeedPictures(json, picture.string(), where, o);
  FillSource(record, o);
  constexpr int64_t kMax = int64_t{1} << 40;
  if (!o.has_prompt && o.prompts_file.empty()) {
    if (!record.Has("prompt")) Fail(ErrorKind::kBadInput, "{}: \"prompt\" is missing", where);
    o.prompt = record.String("prompt", "");
    o.has_prompt = true;
  }
  if (!o.negative_prompt && record.Has("negative_prompt"))
    o.negative_prompt = record.String("negative_prompt", " ");
  if (!HasSource(record)) {
    if (o.size.empty() && !o.width) o.width = record.Int("width", 1, kMax);
    if (o.size.empty() && !o.height) o.height = record.Int("height", 1, kMax);
  }
  // Sigmas are as many as the steps: one who gives either wants neither of the record's.
  if (!o.steps && o.sigmas.empty()) {
    o.steps = record.Int("steps", 1, kMax);
    o.sigmas = RecordedSigmas(json, where);
  }
  if (!o.cfg) o.cfg = record.Number("cfg");
  if (o.seed.empty()) o.seed = RecordedSeed(json, where);
  if (!o.max_sequence_length && record.Has("max_sequence_length"))
    o.max_sequence_length = record.Int("max_sequence_length", 1, kMax);
  if (o.background.empty()) o.background = record.String("background", "");
  if (!o.step_cache && record.Has("step_cache")) o.step_cache = record.Number("step_cache");
  o.reference_special_tokens |= record.Bool("reference_special_tokens", false);
  if (o.vae_tiling.empty()) o.vae_tiling = RecordedTiling(record);
  if (o.precision.empty()) o.precision = RecordedPrecision(record);
}

}  // namespace qwen_image
