#include "server/api/a1111.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <limits>
#include <map>

#include "core/fail.h"
#include "core/memory.h"
#include "files/base64.h"
#include "files/text.h"
#include "server/api/drawn_reply.h"
#include "server/api/replies.h"

namespace qwen_image::api {
namespace {

constexpr std::string_view kPrefix = "/sdapi/v1/";
constexpr const char* kSampler = "Euler";  // diffusers' FlowMatchEulerDiscrete: the only one
constexpr int64_t kTheirUnit = 8;          // sides are multiples of it

// The same error with the name that the request has for the field.
FieldError WithTheirName(const FieldError& error) {
  const options::Field* field = options::FindField(error.field());
  if (!field || !field->a1111) return error;
  const std::string ours = field->name + std::string(" ");
  const bool named = error.message().starts_with(ours);
  return {field->a1111,
          named ? fmt::format("{} {}", field->a1111, error.message().substr(ours.size())) : error.message()};
}

bool IsEmptyText(const Json& value) {
  return value.is_string() && value.get_ref<const std::string&>().empty();
}

bool IsOff(const Json& value) {
  return value.is_null() || value == false || IsEmptyText(value) || value == "None" ||
         (value.is_number() && value == 0) || ((value.is_array() || value.is_object()) && value.empty());
}

// Tools send dozens of fields, most of them switched off. What would change the picture, and cannot be done
// here, is refused; the rest is passed over, as it is there.
void RefuseOtherFeatures(const Fields& fields) {
  for (const char* name : {"enable_hr", "tiling", "restore_faces", "styles", "script_name",
                           "alwayson_scripts", "refiner_checkpoint", "subseed_strength", "firstpass_image"}) {
    const Json* value = fields.Find(name);
    if (value && !IsOff(*value))
      throw FieldError(name, fmt::format("{} is not offered by this server; leave it out", name));
  }
}

void CheckModel(const Json& options, const Pipeline& pipeline) {
  const Json* named = Fields(options).Find("sd_model_checkpoint");
  if (!named || IsEmptyText(*named) || *named == ModelId(pipeline)) return;
  Fail(ErrorKind::kUsage, "the model {} is not here; this server draws with \"{}\"",
       named->is_string() ? Quoted(named->get<std::string>()) : "named", ModelId(pipeline));
}

Json OurSettings(const Fields& fields, const Json& body) {
  Json settings = Json::object();
  for (const options::Field& field : options::Fields()) {
    if (field.a1111 && body.contains(field.a1111)) settings[field.name] = body[field.a1111];
  }
  const int64_t most = RequestLimits().n;
  const int64_t pictures =
      fields.Whole("batch_size", 1, most).value_or(1) * fields.Whole("n_iter", 1, most).value_or(1);
  if (pictures > most)
    throw FieldError("batch_size", fmt::format("batch_size times n_iter is {}; at most {} pictures are drawn",
                                               pictures, most));
  settings["n"] = pictures;
  if (!settings.contains("prompt")) settings["prompt"] = "";  // as theirs
  return settings;
}

// Tools offer sides in steps of 8; the next smaller one of ours is near enough, if it is said. A note, or
// nothing.
std::string RoundSides(Json& settings, int64_t multiple) {
  std::string note;
  for (const char* name : {"width", "height"}) {
    if (!settings.contains(name) || !settings[name].is_number_integer()) continue;
    const auto asked = settings[name].get<int64_t>();
    if (asked <= 0 || asked % kTheirUnit != 0 || asked % multiple == 0) continue;
    const int64_t side = std::max(asked / multiple * multiple, multiple);
    settings[name] = side;
    note +=
        fmt::format("{}a {} of {} instead of {}", note.empty() ? "drawn with " : " and ", name, side, asked);
  }
  return note.empty() ? note : note + fmt::format(": the model's sides are multiples of {}", multiple);
}

// One line per setting, as such tools keep it with a picture.
std::string InfoText(const jobs::Job& job, uint64_t seed, const std::string& model) {
  std::string text = job.settings.prompt;
  if (!job.negative_prompt().empty()) text += "\nNegative prompt: " + job.negative_prompt();
  return text + fmt::format("\nSteps: {}, Sampler: {}, CFG scale: {}, Seed: {}, Size: {}x{}, Model: {}",
                            job.steps(), kSampler, job.cfg(), seed, job.width(), job.height(), model);
}

Json InfoOf(const jobs::Job& job, const std::string& model) {
  Json seeds = Json::array(), texts = Json::array();
  for (const jobs::JobImage& image : job.images) {
    seeds.push_back(image.seed);
    texts.push_back(InfoText(job, image.seed, model));
  }
  return {{"prompt", job.settings.prompt},
          {"all_prompts", std::vector<std::string>(job.images.size(), job.settings.prompt)},
          {"negative_prompt", job.negative_prompt()},
          {"all_negative_prompts", std::vector<std::string>(job.images.size(), job.negative_prompt())},
          {"seed", job.settings.seed},
          {"all_seeds", seeds},
          {"subseed", job.settings.seed},
          {"all_subseeds", seeds},
          {"subseed_strength", 0},
          {"width", job.width()},
          {"height", job.height()},
          {"sampler_name", kSampler},
          {"cfg_scale", job.cfg()},
          {"steps", job.steps()},
          {"batch_size", job.images.size()},
          {"restore_faces", false},
          {"denoising_strength", job.settings.strength ? Json(*job.settings.strength) : Json()},
          {"sd_model_name", model},
          {"extra_generation_params", Json::object()},
          {"index_of_first_image", 0},
          {"infotexts", texts},
          {"notes", job.notes},
          {"styles", Json::array()}};
}

http::Response ImagesReply(const jobs::Queue& queue, const jobs::Job& job, const Json& parameters,
                           const std::string& model) {
  Json images = Json::array();
  for (size_t i = 0; i < job.images.size(); ++i)
    images.push_back(EncodeBase64(EncodedPicture(queue, job, i)));
  const std::string info = JsonText(InfoOf(job, model));
  return JsonResponse({{"images", images}, {"parameters", parameters}, {"info", info}});
}

JobPictures PicturesOf(const Fields& fields) {
  const Json* list = fields.Find("init_images");
  if (!list || !list->is_array() || list->size() != 1) fields.Refuse("init_images", "a list of one picture");
  JobPictures pictures;
  const std::string name = "init_images[0]";
  pictures.names["init_image"] = name;
  pictures.files["init_image"] = {DecodeFileText(name, list->front())};
  if (const Json* mask = fields.Find("mask")) pictures.files["mask"] = {DecodeFileText("mask", *mask)};
  pictures.invert_mask = fields.Whole("inpainting_mask_invert", 0, 1).value_or(0) == 1;
  constexpr int64_t kResize = 0, kCropAndResize = 1, kFill = 2, kLatentUpscale = 3;
  const int64_t mode = fields.Whole("resize_mode", kResize, kLatentUpscale).value_or(kResize);
  if (mode >= kFill)
    fields.Refuse("resize_mode",
                  "0 (stretch to the size) or 1 (crop to its shape; the others are not offered)");
  pictures.crop_to_size = mode == kCropAndResize;
  return pictures;
}

// Where nothing is said, theirs; 0 would leave the picture as it is.
double StrengthOf(const Fields& fields) {
  constexpr double kTheirDefault = 0.75;
  const double strength = fields.Number("denoising_strength").value_or(kTheirDefault);
  if (strength == 0)
    fields.Refuse("denoising_strength", "more than 0, up to 1, since 0 leaves the picture as it is");
  return strength;
}

http::Reply Draw(const http::Request& request, const Pipeline& pipeline, jobs::Queue& queue,
                 bool from_picture) {
  Json body = ParseBody(request.body);
  const Fields fields(body);
  RefuseOtherFeatures(fields);
  if (const Json* override_settings = fields.Find("override_settings"))
    CheckModel(*override_settings, pipeline);
  Json settings = OurSettings(fields, body);
  JobPictures pictures;
  if (from_picture) {
    pictures = PicturesOf(fields);
    settings["strength"] = StrengthOf(fields);
  } else {
    settings.erase("strength");  // there of a second pass, which is off
  }
  const std::string note = RoundSides(settings, pipeline.side_multiple());
  jobs::Request job = MakeJobRequest(Fields(settings), pictures, pipeline);
  if (!note.empty()) job.notes.push_back(note);
  for (const char* picture : {"init_images", "mask"}) body.erase(picture);  // theirs are not sent back either
  return DrawAndReply(request, queue, std::move(job),
                      [&queue, parameters = std::move(body), model = ModelId(pipeline)](
                          const http::Request&, const jobs::Job& drawn) {
                        return ImagesReply(queue, drawn, parameters, model);
                      });
}

std::optional<jobs::Job> RunningJob(const jobs::Queue& queue) {
  const std::vector<jobs::Job> all = queue.List();
  const auto running = std::find_if(all.begin(), all.end(),
                                    [](const jobs::Job& job) { return job.state == jobs::State::kRunning; });
  if (running == all.end()) return std::nullopt;
  return *running;
}

// preview: PNG, or empty
Json ProgressJson(const std::optional<jobs::Job>& job, const std::string& preview) {
  const jobs::JobProgress p = job ? job->progress : jobs::JobProgress{};
  const std::string started =
      job ? fmt::format("{:%Y%m%d%H%M%S}", fmt::gmtime(static_cast<std::time_t>(job->started / 1000))) : "0";
  return {{"progress", p.fraction},
          {"eta_relative", p.seconds_left},
          {"state",
           {{"skipped", false},
            {"interrupted", false},
            {"stopping_generation", false},
            {"job", job ? job->id : ""},
            {"job_count", job ? job->count : 0},
            {"job_timestamp", started},
            {"job_no", p.picture},
            {"sampling_step", p.step},
            {"sampling_steps", p.steps}}},
          {"current_image", preview.empty() ? Json() : Json(EncodeBase64(preview))},
          {"textinfo", p.stage.empty() ? Json() : Json(p.stage)}};
}

Json Progress(const http::Request& request, jobs::Queue& queue) {
  const std::optional<jobs::Job> job = RunningJob(queue);
  const auto skip = request.query.find("skip_current_image");
  const bool skipped = skip != request.query.end() &&
                       (skip->second == "true" || skip->second == "True" || skip->second == "1");
  return ProgressJson(job, job && !skipped ? queue.Preview(job->id) : "");
}

// What this process holds and may still take.
Json MemoryJson() {
  const int64_t used = MemoryInUse().resident, free = AvailableMemory();
  const Json none = {{"error", "unavailable"}};
  const bool known = free < std::numeric_limits<int64_t>::max();
  return {{"ram", known ? Json{{"free", free}, {"used", used}, {"total", used + free}} : none},
          {"cuda", none}};
}

// What tools ask before they draw, and does not change.
std::optional<Json> Fact(const std::string& name, const std::string& id) {
  const Json nothing = Json::array();
  const std::map<std::string_view, Json> facts = {
      {"sd-models",
       {{{"title", id},
         {"model_name", id},
         {"hash", nullptr},
         {"sha256", nullptr},
         {"filename", id},
         {"config", nullptr}}}},
      {"samplers", {{{"name", kSampler}, {"aliases", {"euler"}}, {"options", Json::object()}}}},
      {"schedulers",
       {{{"name", "automatic"},  // the model's own
         {"label", "Automatic"},
         {"aliases", nullptr},
         {"default_rho", -1.0},
         {"need_inner_model", false}}}},
      {"options", {{"sd_model_checkpoint", id}, {"samples_format", "png"}}},
      {"cmd-flags", {{"api", true}}},
      {"embeddings", {{"loaded", Json::object()}, {"skipped", Json::object()}}},
      {"scripts", {{"txt2img", nothing}, {"img2img", nothing}}},
      // What there is none of.
      {"loras", nothing},
      {"upscalers", nothing},
      {"latent-upscale-modes", nothing},
      {"sd-vae", nothing},
      {"hypernetworks", nothing},
      {"face-restorers", nothing},
      {"realesrgan-models", nothing},
      {"prompt-styles", nothing},
      {"script-info", nothing},
      {"extensions", nothing}};
  const auto found = facts.find(name);
  return found == facts.end() ? std::nullopt : std::optional(found->second);
}

std::optional<http::Reply> RouteOfA1111(const http::Request& request, const Pipeline& pipeline,
                                        jobs::Queue& queue) {
  const std::string name = request.path.substr(kPrefix.size());
  if (name == "txt2img" || name == "img2img" || name == "interrupt") {
    if (auto other = OtherMethod(request, {"POST"})) return *other;
    if (name != "interrupt") return Draw(request, pipeline, queue, name == "img2img");
    if (const auto job = RunningJob(queue)) queue.Cancel(job->id);
    return JsonResponse(Json::object());
  }
  if (name == "options" && request.method == "POST") {
    CheckModel(ParseBody(request.body), pipeline);
    return JsonResponse(Json::object());
  }
  const std::optional<Json> fact = Fact(name, ModelId(pipeline));
  if (!fact && name != "progress" && name != "memory") return std::nullopt;
  if (auto other = OtherMethod(request, {"GET"})) return *other;
  if (fact) return JsonResponse(*fact);
  return JsonResponse(name == "memory" ? MemoryJson() : Progress(request, queue));
}

}  // namespace

std::optional<http::Reply> A1111Route(const http::Request& request, const Pipeline& pipeline,
                                      jobs::Queue& queue) {
  if (!request.path.starts_with(kPrefix)) return std::nullopt;
  try {
    return RouteOfA1111(request, pipeline, queue);
  } catch (const FieldError& error) {
    throw WithTheirName(error);
  }
}

}  // namespace qwen_image::api
