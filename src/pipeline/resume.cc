#include "pipeline/resume.h"

#include <charconv>

#include "core/fail.h"
#include "files/digest.h"
#include "files/folder.h"
#include "files/json.h"
#include "files/output_file.h"
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

// Of a request's pictures: their pixels and what is done with them.
Json PicturesIdentity(const Pipeline::Impl& model, const GenerateRequest& request, const Settings& settings) {
  Json json;
  for (const Image& image : request.input_images) json["input_images"].push_back(HashOf(image));
  if (!request.input_images.empty()) {
    json["vision_encoder"] = IdentityOf(model, Component::kVisionEncoder);
    json.update(model.model->EditIdentity());
  }
  if (request.init_image) json["init_image"] = HashOf(*request.init_image);
  if (request.mask) json["mask"] = HashOf(*request.mask);
  const Margins& margins = request.outpaint;
  if (margins.any()) json["outpaint"] = {margins.left, margins.top, margins.right, margins.bottom};
  if (settings.strength) json["strength"] = *settings.strength;
  // The latents of pictures depend on the VAE.
  if (!json.is_null()) json["vae"] = IdentityOf(*model.model->StoreOf(Component::kVae));
  return json;
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
  Json json = {{"engine", EngineIdentity()},
               {"text_encoder", IdentityOf(model, Component::kTextEncoder)},
               {"transformer", IdentityOf(model, Component::kTransformer)},
               {"loras", LoraIdentity(model.model->loras())},
               {"input_ids", HashOf(TokenIds(model, request, request.prompt))},
               {"max_sequence_length", request.max_sequence_length},
               {"width", settings.width},
               {"height", settings.height},
               {"sigmas", HashOf(schedule.sigmas)},
               {"timesteps", HashOf(schedule.timesteps)},
               {"cfg", settings.guided() ? settings.cfg : 1},
               {"step_cache", request.step_cache}};
  if (settings.guided())
    json["negative_input_ids"] = HashOf(TokenIds(model, request, settings.negative_prompt));
  if (Json pictures = PicturesIdentity(model, request, settings); !pictures.is_null())
    json["pictures"] = std::move(pictures);
  if (request.latents) {
    json["latents"] = HashOf(request.latents->values);
    json["latents_shape"] = request.latents->shape;
  } else {
    json["seed"] = request.seed;
  }
  return json.dump();
}

std::string Pipeline::RunId(const GenerateRequest& asked) const {
  const Turns::Turn turn(impl_->turns);
  const Settings settings = impl_->Resolve(asked);
  const std::optional<GenerateRequest> suited = WithPicturesOf(channels(), asked);
  const GenerateRequest& request = suited ? *suited : asked;
  const Schedule schedule = ScheduleOf(impl_->model->traits().scheduler, settings);
  const std::optional<Colour>& colour = settings.background;
  const std::string background =
      colour ? fmt::format(" on {} {} {}", colour->red, colour->green, colour->blue) : "";
  return Sha256(fmt::format("{} {} {} {}x{} {}{}", RunIdentity(*impl_, request, settings, schedule),
                            IdentityOf(*impl_->model->StoreOf(Component::kVae)),
                            impl_->geometry().Tiles(request.vae_tiling, {settings.width, settings.height}),
                            settings.output_width, settings.output_height, request.blend, background));
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
