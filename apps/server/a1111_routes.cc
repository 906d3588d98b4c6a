#include "a1111_routes.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <map>

#include "core/fail.h"
#include "drawn_reply.h"
#include "files/base64.h"
#include "files/text.h"
#include "http_error.h"

namespace qwen_image::server {
namespace {

constexpr std::string_view kPrefix = "/sdapi/v1/";
constexpr const char* kSampler = "Euler";  // diffusers' FlowMatchEulerDiscrete: the only one

bool IsOff(const Json& value) {
  return value.is_null() || value == false || value == "" || value == "None" ||
         (value.is_number() && value == 0) || ((value.is_array() || value.is_object()) && value.empty());
}

// Tools send dozens of fields, most of them switched off. What would change the picture, and cannot be done
// here, is refused; the rest is passed over, as it is there.
void RefuseOtherFeatures(const Fields& fields) {
  for (const char* name :
       {"enable_hr", "tiling", "restore_faces", "styles", "script_name", "alwayson_scripts",
        "refiner_checkpoint", "subseed_strength", "resize_mode", "firstpass_image"}) {
    const Json* value = fields.Find(name);
    if (value && !IsOff(*value))
      Fail(ErrorKind::kUsage, "{} is not offered by this server; leave it out", name);
  }
}

void CheckModel(const Json& options, const Pipeline& pipeline) {
  const Json* named = Fields(options).Find("sd_model_checkpoint");
  if (!named || *named == "" || *named == ModelId(pipeline)) return;
  Fail(ErrorKind::kUsage, "the model {} is not here; this server draws with \"{}\"",
       named->is_string() ? Quoted(named->get<std::string>()) : "named", ModelId(pipeline));
}

// Their names for what MakeJobRequest knows.
Json OurSettings(const Fields& fields, const Json& body) {
  static const std::map<std::string, std::string> kNames = {
      {"prompt", "prompt"}, {"negative_prompt", "negative_prompt"},
      {"seed", "seed"},     {"steps", "steps"},
      {"cfg_scale", "cfg"}, {"width", "width"},
      {"height", "height"}, {"denoising_strength", "strength"}};
  Json settings = Json::object();
  for (const auto& [theirs, ours] : kNames) {
    if (body.contains(theirs)) settings[ours] = body[theirs];
  }
  const int64_t most = RequestLimits().n;
  const int64_t pictures =
      fields.Whole("batch_size", 1, most).value_or(1) * fields.Whole("n_iter", 1, most).value_or(1);
  if (pictures > most)
    Fail(ErrorKind::kUsage, "batch_size times n_iter is {}; at most {} pictures are drawn", pictures, most);
  settings["n"] = pictures;
  if (!settings.contains("prompt")) settings["prompt"] = "";  // as theirs
  return settings;
}

// One line per setting, as such tools keep it with a picture.
std::string InfoText(const Job& job, uint64_t seed, const std::string& model) {
  std::string text = job.prompt;
  if (!job.negative_prompt.empty()) text += "\nNegative prompt: " + job.negative_prompt;
  return text + fmt::format("\nSteps: {}, Sampler: {}, CFG scale: {}, Seed: {}, Size: {}x{}, Model: {}",
                            job.steps, kSampler, job.cfg, seed, job.width, job.height, model);
}

Json InfoOf(const Job& job, const std::string& model) {
  Json seeds = Json::array(), texts = Json::array();
  for (const JobImage& image : job.images) {
    seeds.push_back(image.seed);
    texts.push_back(InfoText(job, image.seed, model));
  }
  return {{"prompt", job.prompt},
          {"all_prompts", std::vector<std::string>(job.images.size(), job.prompt)},
          {"negative_prompt", job.negative_prompt},
          {"all_negative_prompts", std::vector<std::string>(job.images.size(), job.negative_prompt)},
          {"seed", job.seed},
          {"all_seeds", seeds},
          {"subseed", job.seed},
          {"all_subseeds", seeds},
          {"subseed_strength", 0},
          {"width", job.width},
          {"height", job.height},
          {"sampler_name", kSampler},
          {"cfg_scale", job.cfg},
          {"steps", job.steps},
          {"batch_size", job.images.size()},
          {"restore_faces", false},
          {"denoising_strength", job.strength ? Json(*job.strength) : Json()},
          {"sd_model_name", model},
          {"extra_generation_params", Json::object()},
          {"index_of_first_image", 0},
          {"infotexts", texts},
          {"styles", Json::array()}};
}

HttpResponse ImagesReply(const HttpRequest& request, const Jobs& jobs, const Job& job, const Json& parameters,
                         const std::string& model) {
  Json images = Json::array();
  for (size_t i = 0; i < job.images.size(); ++i) {
    const auto png = jobs.ReadPng(job.id, static_cast<int64_t>(i));
    if (!png)
      return ErrorResponse(request, 500, ErrorType(500), "a picture was removed before it could be sent");
    images.push_back(EncodeBase64(*png));
  }
  const std::string info = InfoOf(job, model).dump(-1, ' ', false, Json::error_handler_t::replace);
  return JsonResponse({{"images", images}, {"parameters", parameters}, {"info", info}});
}

JobPictures PicturesOf(const Fields& fields) {
  const Json* list = fields.Find("init_images");
  if (!list || !list->is_array() || list->size() != 1) fields.Refuse("init_images", "a list of one picture");
  JobPictures pictures;
  pictures.init_name = "init_images[0]";
  pictures.init_image = DecodePictureText(pictures.init_name, list->front());
  if (const Json* mask = fields.Find("mask")) pictures.mask = DecodePictureText("mask", *mask);
  return pictures;
}

Reply Draw(const HttpRequest& request, const Pipeline& pipeline, Jobs& jobs, bool from_picture) {
  Json body = ParseBody(request.body);
  const Fields fields(body);
  RefuseOtherFeatures(fields);
  if (const Json* override_settings = fields.Find("override_settings"))
    CheckModel(*override_settings, pipeline);
  Json settings = OurSettings(fields, body);
  JobPictures pictures;
  if (from_picture) {
    pictures = PicturesOf(fields);
    constexpr double kTheirDefault = 0.75;
    if (!fields.Find("denoising_strength")) settings["strength"] = kTheirDefault;
  } else {
    settings.erase("strength");  // there of a second pass, which is off
  }
  JobRequest job = MakeJobRequest(Fields(settings), pictures, pipeline);
  if (fields.Whole("inpainting_mask_invert", 0, 1).value_or(0) == 1 && job.request.mask) {
    for (uint8_t& value : job.request.mask->pixels) value = static_cast<uint8_t>(255 - value);
  }
  for (const char* picture : {"init_images", "mask"}) body.erase(picture);  // theirs are not sent back either
  HttpRequest asked = {.id = request.id};
  return DrawAndReply(request, jobs, std::move(job),
                      [asked, &jobs, parameters = std::move(body), model = ModelId(pipeline)](
                          const Job& drawn) { return ImagesReply(asked, jobs, drawn, parameters, model); });
}

std::optional<Job> RunningJob(const Jobs& jobs) {
  const std::vector<Job> all = jobs.List();
  const auto running =
      std::find_if(all.begin(), all.end(), [](const Job& job) { return job.state == JobState::kRunning; });
  if (running == all.end()) return std::nullopt;
  return *running;
}

Json ProgressJson(const std::optional<Job>& job) {
  const JobProgress p = job ? job->progress : JobProgress{};
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
          {"current_image", nullptr},
          {"textinfo", p.stage.empty() ? Json() : Json(p.stage)}};
}

// What tools ask before they draw.
std::optional<Json> Answer(const std::string& name, const Pipeline& pipeline, const Jobs& jobs) {
  const std::string id = ModelId(pipeline);
  if (name == "progress") return ProgressJson(RunningJob(jobs));
  if (name == "sd-models") {
    return Json::array({{{"title", id},
                         {"model_name", id},
                         {"hash", nullptr},
                         {"sha256", nullptr},
                         {"filename", id},
                         {"config", nullptr}}});
  }
  if (name == "samplers")
    return Json::array({{{"name", kSampler}, {"aliases", {"euler"}}, {"options", Json::object()}}});
  if (name == "options") return Json{{"sd_model_checkpoint", id}, {"samples_format", "png"}};
  if (name == "cmd-flags") return Json{{"api", true}};
  // What there is none of.
  for (const char* none : {"loras", "upscalers", "sd-vae", "prompt-styles"}) {
    if (name == none) return Json::array();
  }
  return std::nullopt;
}

std::optional<Reply> Route(const HttpRequest& request, const Pipeline& pipeline, Jobs& jobs) {
  const std::string name = request.path.substr(kPrefix.size());
  if (name == "txt2img" || name == "img2img" || name == "interrupt") {
    if (auto other = OtherMethod(request, {"POST"})) return *other;
    if (name != "interrupt") return Draw(request, pipeline, jobs, name == "img2img");
    if (const auto job = RunningJob(jobs)) jobs.Cancel(job->id);
    return JsonResponse(Json::object());
  }
  if (name == "options" && request.method == "POST") {
    CheckModel(ParseBody(request.body), pipeline);
    return JsonResponse(Json::object());
  }
  const std::optional<Json> answer = Answer(name, pipeline, jobs);
  if (!answer) return std::nullopt;
  if (auto other = OtherMethod(request, {"GET"})) return *other;
  return JsonResponse(*answer);
}

}  // namespace

std::optional<Reply> A1111Route(const HttpRequest& request, const Pipeline& pipeline, Jobs& jobs) {
  if (!request.path.starts_with(kPrefix)) return std::nullopt;
  try {
    return Route(request, pipeline, jobs);
  } catch (const Error& error) {
    // Their clients look for the reason in "detail".
    HttpResponse response = ErrorResponse(request, error);
    Json body = Json::parse(response.body);
    body["detail"] = body["error"]["message"];
    response.body = body.dump();
    return response;
  }
}

}  // namespace qwen_image::server
