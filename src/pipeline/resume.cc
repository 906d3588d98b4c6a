#include "pipeline/resume.h"

#include <algorithm>
#include <charconv>

#include "core/fail.h"
#include "files/digest.h"
#include "files/folder.h"
#include "files/json.h"
#include "files/output_file.h"
#include "options/json_form.h"
#include "pipeline/identity.h"
#include "pipeline/kept_tensors.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "qwen-image run 1";
constexpr const char* kEnding = ".resume.safetensors";
constexpr const char* kLatents = "latents";
constexpr const char* kStepsDone = "steps_done";

template <typename T>
std::string HashOf(const std::vector<T>& values) {
  return Sha256({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
}

Json LoraIdentity(const LoraSet& loras) {
  Json list = Json::array();
  for (size_t i = 0; i < loras.applied().size(); ++i)
    list.push_back({{"file", IdentityOf(*loras.files()[i])}, {"scale", loras.applied()[i].scale}});
  return list;
}

// With the template of text to picture; an edit's has the same text in it.
std::vector<int64_t> TokenIds(const Pipeline::Impl& model, const GenerateRequest& request,
                              const std::string& prompt) {
  return model.model->conditioner()
      .Tokenize(prompt, {}, {.parse_special_tokens = request.reference_special_tokens})
      .ids;
}

template <typename Pixels>
std::string HashOf(const Pixels& image) {
  return fmt::format("{}x{} {}", image.width, image.height, HashOf(image.pixels));
}

// The value of a setting; of data a hash.
Json IdentityOf(const options::Field& field, const GenerateRequest& request) {
  if (options::IsDefault(field, request) || !options::IsData(field)) return options::ToJson(field, request);
  return options::VisitValue(
      field, request,
      options::ByType{[](const std::vector<Image>& images) {
                        Json hashes = Json::array();
                        for (const Image& image : images) hashes.push_back(HashOf(image));
                        return hashes;
                      },
                      [](const std::optional<Image>& image) { return Json(HashOf(*image)); },
                      [](const std::optional<GreyImage>& mask) { return Json(HashOf(*mask)); },
                      [](const std::optional<InitialLatents>& latents) {
                        return Json({{"values", HashOf(latents->values)}, {"shape", latents->shape}});
                      },
                      [](const auto&) { return Json(); }});
}

bool HasPictures(const GenerateRequest& request) {
  return request.init_image || !request.input_images.empty();
}

// Where the model's own limit decides, all pictures may be encoded alike all the same.
GenerateRequest::Tiling SettledTiling(const Geometry& geometry, const GenerateRequest& request,
                                      const Settings& settings) {
  using Tiling = GenerateRequest::Tiling;
  std::vector<ImageSize> encoded = {{settings.width, settings.height}};
  if (!settings.repairs && !settings.references.empty()) {
    encoded.clear();
    for (const EditInputSizes& sizes : settings.references) encoded.push_back(sizes.vae);
  }
  const auto tiled = std::count_if(encoded.begin(), encoded.end(), [&](const ImageSize& size) {
    return geometry.TilesInput(request.vae_tiling, size);
  });
  return tiled == 0 ? Tiling::kOff : tiled == std::ssize(encoded) ? Tiling::kOn : Tiling::kAuto;
}

// The settings with all filled in that the model or another one of them decides, so that requests which draw
// the same have the same identity. A setting that is not named here counts as it was given.
GenerateRequest Settled(const Pipeline::Impl& model, const GenerateRequest& request,
                        const Settings& settings) {
  GenerateRequest settled = options::WithoutData(request);
  settled.negative_prompt = settings.guided() ? std::optional(settings.negative_prompt) : std::nullopt;
  settled.width = settings.width;
  settled.height = settings.height;
  settled.steps = settings.steps;
  settled.sigmas = settings.sigmas;
  settled.cfg = settings.guided() ? settings.cfg : 1;
  if (request.latents) settled.seed = 0;
  settled.strength = settings.strength;
  settled.keep_size = false;  // the size of the result tells
  settled.background = settings.background
                           ? fmt::format("{} {} {}", settings.background->red, settings.background->green,
                                         settings.background->blue)
                           : "";
  settled.vae_tiling = SettledTiling(model.geometry(), request, settings);
  return settled;
}

// Adds the settings that decide one of these.
void AddSettings(const GenerateRequest& request, const GenerateRequest& settled,
                 std::initializer_list<options::Decides> what, Json& identity) {
  for (const options::Field& field : options::Fields()) {
    if (std::find(what.begin(), what.end(), field.decides) == what.end()) continue;
    identity[field.name] = IdentityOf(field, options::IsData(field) ? request : settled);
  }
}

// What turns pictures into latents, besides their pixels and the settings.
void AddPictureWeights(const Pipeline::Impl& model, const GenerateRequest& request, Json& identity) {
  if (!HasPictures(request)) return;
  identity["vae"] = IdentityOf(*model.model->StoreOf(Component::kVae));
  if (request.input_images.empty()) return;
  identity["vision_encoder"] = IdentityOf(model, Component::kVisionEncoder);
  identity["edit"] = model.model->EditIdentity();
}

// 0 if the file does not say.
int64_t StepsDone(const std::map<std::string, std::string>& metadata, int64_t steps) {
  const auto found = metadata.find(kStepsDone);
  int64_t done = 0;
  if (found != metadata.end())
    std::from_chars(found->second.data(), found->second.data() + found->second.size(), done);
  return done >= 1 && done <= steps ? done : 0;
}

}  // namespace

std::string RunIdentity(const Pipeline::Impl& model, const GenerateRequest& request, const Settings& settings,
                        const Schedule& schedule) {
  using options::Decides;
  Json identity = {{"engine", EngineIdentity()},
                   {"text_encoder", IdentityOf(model, Component::kTextEncoder)},
                   {"transformer", IdentityOf(model, Component::kTransformer)},
                   {"loras", LoraIdentity(model.model->loras())},
                   {"input_ids", HashOf(TokenIds(model, request, request.prompt))},
                   {"schedule", HashOf(schedule.sigmas)},
                   {"timesteps", HashOf(schedule.timesteps)}};
  if (settings.guided())
    identity["negative_input_ids"] = HashOf(TokenIds(model, request, settings.negative_prompt));
  AddPictureWeights(model, request, identity);
  const GenerateRequest settled = Settled(model, request, settings);
  AddSettings(request, settled, {Decides::kLatents}, identity);
  if (HasPictures(request)) AddSettings(request, settled, {Decides::kLatentsOfSources}, identity);
  return identity.dump();
}

std::string Pipeline::RunId(const GenerateRequest& asked) const {
  using options::Decides;
  const Turns::Turn turn(impl_->turns);
  const Settings settings = impl_->Resolve(asked);
  const std::optional<GenerateRequest> suited = WithPicturesOf(channels(), asked);
  const GenerateRequest& request = suited ? *suited : asked;
  const Schedule schedule = ScheduleOf(impl_->model->traits().scheduler, settings);
  Json identity = {{"latents", RunIdentity(*impl_, request, settings, schedule)},
                   {"vae", IdentityOf(*impl_->model->StoreOf(Component::kVae))},
                   {"tiled", impl_->geometry().Tiles(request.vae_tiling, {settings.width, settings.height})},
                   {"size", {settings.output_width, settings.output_height}}};
  AddSettings(request, Settled(*impl_, request, settings), {Decides::kPixels}, identity);
  return Sha256(identity.dump());
}

ResumeFile::ResumeFile(const fs::path& folder, std::string identity, std::string prompt)
    : identity_(std::move(identity)), prompt_(std::move(prompt)) {
  constexpr size_t kNameDigits = 32;
  std::error_code error;
  fs::create_directories(folder, error);  // if that fails, CheckWritable says why
  path_ = folder / (Sha256(identity_).substr(0, kNameDigits) + kEnding);
  CheckWritable(path_);
}

int64_t ResumeFile::Load(const Shape& latents_shape, int64_t steps, Tensor& latents,
                         StepCache& step_cache) const {
  if (!Exists(path_)) return 0;
  ExpectedTensors expected{.metadata = {{"format", kFormat}, {"run", identity_}},
                           .shapes = {{kLatents, latents_shape}}};
  expected.shapes.merge(step_cache.StateShapes(latents_shape));
  KeptTensors kept = ReadKeptTensors(path_, expected);
  const int64_t done = StepsDone(kept.metadata, steps);
  if (done == 0) Fail(ErrorKind::kBadInput, "{} does not say which step was finished", path_.string());
  Tensor kept_latents = std::move(kept.tensors.at(kLatents));
  step_cache.Restore({std::move(kept.metadata), std::move(kept.tensors)});
  latents = std::move(kept_latents);
  return done;
}

void ResumeFile::Save(int64_t steps_done, const Tensor& latents, const StepCache& step_cache) const {
  StepCache::State state = step_cache.Save();
  KeptTensors kept{.metadata = std::move(state.numbers), .tensors = std::move(state.tensors)};
  kept.metadata["format"] = kFormat;
  kept.metadata["run"] = identity_;
  kept.metadata["prompt"] = prompt_;  // for people who look into the file
  kept.metadata[kStepsDone] = std::to_string(steps_done);
  kept.tensors.emplace(kLatents, latents.Clone());
  WriteKeptTensors(path_, kept);
}

KeptRun::KeptRun(const Pipeline::Impl& model, const Run& run, const Schedule& schedule, const Note& note)
    : steps_(run.settings.steps_run()), note_(note) {
  if (!run.request.resume_folder.empty())
    file_.emplace(run.request.resume_folder, RunIdentity(model, run.request, run.settings, schedule),
                  run.request.prompt);
}

int64_t KeptRun::Load(Tensor& latents, StepCache& step_cache) const {
  if (!file_) return 0;
  try {
    const Shape shape = latents.shape();
    return file_->Load(shape, steps_, latents, step_cache);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kBadInput) throw;
    if (note_) note_(fmt::format("{}; the run starts from the beginning", error.message()));
    return 0;
  }
}

void KeptRun::Save(int64_t steps_done, const Tensor& latents, const StepCache& step_cache) {
  if (!file_) return;
  try {
    file_->Save(steps_done, latents, step_cache);
  } catch (const Error& error) {
    file_.reset();
    if (note_) note_(fmt::format("the run's state is not kept any more: {}", error.message()));
  }
}

void RemoveResumeState(const Picture& picture) {
  if (picture.resume_file.empty()) return;
  std::error_code error;
  fs::remove(picture.resume_file, error);
  RemoveLeftovers(picture.resume_file);
}

}  // namespace qwen_image
