#include "prove/reference.h"

#include "draw/opened_model.h"
#include "parity/compare/checker.h"
#include "parity/compare/image.h"
#include "prove/blocks.h"
#include "prove/drawing.h"
#include "qwen_image/image_file.h"

namespace qwen_image::prove {
namespace {

// The pictures that it started from lie beside its tensors.
GenerateRequest RequestOf(const record::ReferenceRun& run) {
  const record::RunSettings& s = run.settings();
  const std::filesystem::path& folder = run.tensors().path();
  GenerateRequest request;
  request.prompt = s.prompt;
  request.negative_prompt = s.negative_prompt;
  request.width = s.width;
  request.height = s.height;
  request.steps = s.steps;
  request.sigmas = s.sigmas;
  request.cfg = s.cfg;
  request.seed = s.seed;
  request.max_sequence_length = s.max_sequence_length;
  request.strength = s.strength;
  for (const std::string& name : s.images) {
    Image image = ReadImage(folder / name, {}, Transparency::kKept).image;
    if (s.edits()) {
      request.input_images.push_back(std::move(image));
    } else {
      request.init_image = std::move(image);
    }
  }
  if (!s.mask.empty()) request.mask = ReadMask(folder / s.mask).image;
  request.blend = false;  // the official pipelines do not lay the result over the input
  return request;
}

Json VersionsOf(const Json& manifest) {
  Json versions = Json::object();
  const auto found = manifest.find("versions");
  if (found == manifest.end() || !found->is_object()) return versions;
  for (const char* name : {"python", "torch", "diffusers", "transformers"}) {
    if (const auto version = found->find(name); version != found->end() && version->is_string())
      versions[name] = *version;
  }
  return versions;
}

std::string Judgement(const Comparisons& found, bool rounded) {
  if (const compare::TensorComparison* first = found.isolated.first_divergence())
    return fmt::format("computed from diffusers' inputs, {} is beyond its limit", first->name);
  if (!found.isolated.passed()) return "the two runs did not compute the same tensors";
  if (rounded) return "";
  if (const compare::TensorComparison* first = found.accumulated.first_divergence())
    return fmt::format("the run by itself moves away from diffusers', first in {}", first->name);
  return "";
}

}  // namespace

void CompareWithReference(const ModelFiles& model, const Options& options, const Watch& watch, Json& part) {
  const record::ReferenceRun reference(options.reference);
  const std::string dtype = reference.tensors().manifest().value("dtype", "float32");
  // A reference in fewer bits has errors of its own, which gather along the run.
  const bool rounded = dtype != "float32";
  const Pipeline exact(model, {.threads = options.threads,
                               .check_memory = options.check_memory,
                               .precision = Precision::kExact,
                               .device = Device::kCpu});
  const GenerateRequest request = RequestOf(reference);
  const record::CheckpointSelection selection("all");
  Comparisons found;
  compare::RunChecker alone(reference, selection, {}, nullptr);
  const Drawn drawn = Draw(exact, request, "by itself", watch, &alone);
  found.accumulated = alone.comparison();
  compare::RunChecker substituted(reference, selection, {"*"}, nullptr);
  Draw(exact, request, "every block on diffusers' tensors", watch, &substituted);
  found.isolated = substituted.comparison();
  if (rounded) {
    for (compare::TensorComparison& tensor : found.isolated.tensors)
      compare::HoldToNmse(compare::kRoundedBlockNmse, tensor);
  }
  const Model& opened = *draw::ModelOf(exact).model;
  const CheckpointNames& names = *opened.vocabulary().checkpoints;
  part["dtype"] = dtype;
  part["versions"] = VersionsOf(reference.tensors().manifest());
  part["pipeline"] = reference.settings().pipeline;
  part["drawn"] = drawn.facts;
  part["drawn"].erase("prompt");
  part["isolated"] = Verdict(found.isolated);
  part["accumulated"] = Verdict(found.accumulated);
  part["blocks"] = BlockTable(names, found, opened.published_size() ? names.known_range : nullptr);
  part["steps"] = StepTable(found.accumulated);
  const std::filesystem::path png = reference.tensors().path() / "image.png";
  if (std::error_code error; std::filesystem::exists(png, error)) {
    const compare::ImageComparison picture =
        compare::CompareImages(compare::ToFloatImage(ReadImage(png, {}, Transparency::kKept).image),
                               compare::ToFloatImage(drawn.picture.image()), 255);
    part["picture"] = {{"psnr", picture.psnr}, {"ssim", picture.ssim}, {"max_levels", picture.max_levels}};
  }
  const std::string why = Judgement(found, rounded);
  part["why"] = why;
  part["status"] = why.empty() ? kPassed : kFailed;
}

}  // namespace qwen_image::prove
