#include "draw/run_identity.h"

#include <fmt/format.h>

#include <algorithm>

#include "draw/source.h"
#include "files/digest.h"
#include "files/json.h"
#include "keep/identity.h"
#include "options/json_form.h"

namespace qwen_image::draw {
namespace {

template <typename T>
std::string HashOf(const std::vector<T>& values) {
  return Sha256({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
}

Json LoraIdentity(const lora::Set& loras) {
  Json list = Json::array();
  for (size_t i = 0; i < loras.applied().size(); ++i)
    list.push_back({{"file", keep::IdentityOf(*loras.files()[i])}, {"scale", loras.applied()[i].scale}});
  return list;
}

// With the template of text to picture; an edit's has the same text in it.
std::vector<int64_t> TokenIds(const Model& model, const GenerateRequest& request, const std::string& prompt) {
  return model.conditioner()
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

// With kAuto the result may still be the same for all pictures: all of them in tiles, or none.
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
GenerateRequest Settled(const Model& model, const GenerateRequest& request, const Settings& settings) {
  GenerateRequest settled = options::WithoutData(request);
  settled.negative_prompt = settings.guided() ? std::optional(settings.negative_prompt) : std::nullopt;
  settled.width = settings.width;
  settled.height = settings.height;
  settled.steps = settings.steps;
  settled.sigmas = settings.sigmas;
  settled.cfg = settings.guided() ? settings.cfg : 1;
  if (request.latents) settled.seed = 0;
  settled.strength = settings.strength;
  settled.keep_size = false;  // RunId contains the size of the result instead
  settled.background = settings.background
                           ? fmt::format("{} {} {}", settings.background->red, settings.background->green,
                                         settings.background->blue)
                           : "";
  settled.vae_tiling = SettledTiling(model.traits().geometry, request, settings);
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
void AddPictureWeights(keep::Identities& identities, const GenerateRequest& request, Json& identity) {
  if (!HasPictures(request)) return;
  const Model& model = identities.model();
  identity["vae"] = keep::IdentityOf(*model.StoreOf(Component::kVae));
  if (request.input_images.empty()) return;
  identity["vision_encoder"] = identities.Of(Component::kVisionEncoder);
  identity["edit"] = model.EditIdentity();
}

}  // namespace

std::string RunIdentity(keep::Identities& identities, const GenerateRequest& request,
                        const Settings& settings, const Schedule& schedule) {
  using options::Decides;
  const Model& model = identities.model();
  Json identity = {{"engine", keep::EngineIdentity()},
                   {"text_encoder", identities.Of(Component::kTextEncoder)},
                   {"transformer", identities.Of(Component::kTransformer)},
                   {"loras", LoraIdentity(model.loras())},
                   {"input_ids", HashOf(TokenIds(model, request, request.prompt))},
                   {"schedule", HashOf(schedule.sigmas)},
                   {"timesteps", HashOf(schedule.timesteps)}};
  if (settings.guided())
    identity["negative_input_ids"] = HashOf(TokenIds(model, request, settings.negative_prompt));
  AddPictureWeights(identities, request, identity);
  const GenerateRequest settled = Settled(model, request, settings);
  AddSettings(request, settled, {Decides::kLatents}, identity);
  if (HasPictures(request)) AddSettings(request, settled, {Decides::kLatentsOfSources}, identity);
  return identity.dump();
}

std::string RunId(keep::Identities& identities, const GenerateRequest& asked) {
  using options::Decides;
  const Model& model = identities.model();
  const Geometry& geometry = model.traits().geometry;
  const Settings settings = ResolveSettings(asked, model.traits());
  const std::optional<GenerateRequest> suited = WithPicturesOf(geometry.pixel_channels, asked);
  const GenerateRequest& request = suited ? *suited : asked;
  const Schedule schedule = ScheduleOf(model.traits().scheduler, settings);
  Json identity = {{"latents", RunIdentity(identities, request, settings, schedule)},
                   {"vae", keep::IdentityOf(*model.StoreOf(Component::kVae))},
                   {"tiled", geometry.Tiles(request.vae_tiling, {settings.width, settings.height})},
                   {"size", {settings.output_width, settings.output_height}}};
  AddSettings(request, Settled(model, request, settings), {Decides::kPixels}, identity);
  return Sha256(identity.dump());
}

}  // namespace qwen_image::draw
