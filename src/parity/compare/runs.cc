#include "parity/compare/runs.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

#include "core/fail.h"
#include "core/glob.h"
#include "families/checkpoint_names.h"
#include "files/text.h"
#include "parity/compare/image.h"
#include "parity/compare/norm_scale.h"
#include "parity/compare/tensor.h"
#include "parity/record/level.h"
#include "parity/record/reference_run.h"

namespace qwen_image::compare {
namespace {

// Pictures are held in memory as a whole. Larger ones are compared as tensors only.
constexpr int64_t kMaxPicturePixels = int64_t{4096} * 4096;

// Runs that differ in one of these are different pictures.
constexpr std::array<const char*, 10> kFatalKeys = {
    "pipeline", "prompt", "negative_prompt",    "width", "height", "steps", "sigmas",
    "cfg",      "seed",   "max_sequence_length"};

bool IsLowPrecision(const std::string& dtype) { return dtype == "bfloat16" || dtype == "float16"; }

std::string TextOf(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// Without guidance the negative prompt is not used.
bool IsGuided(const Json& manifest) {
  const auto cfg = manifest.find("cfg");
  return cfg == manifest.end() || !cfg->is_number() || cfg->get<double>() > 1;
}

bool IsMostlyLow(const record::TensorSet& set) {
  int64_t low = 0, all = 0;
  for (const record::TensorInfo& tensor : set.tensors()) {
    all += tensor.is_float;
    low += IsLowPrecision(tensor.dtype);
  }
  return 2 * low > all;
}

// Facts of a manifest's entries, by name.
struct ManifestFacts {
  struct Floor {
    double nmse = 0, max_abs = 0;
  };
  std::map<std::string, Floor> floors;
  std::map<std::string, record::CheckpointLevel>
      levels;                                  // where the recorder knows them better than the names
  std::map<std::string, std::string> sources;  // the lines of the program that made them
  std::set<std::string> low_precision;         // computed at low precision, but stored as float32
  bool is_low = false;                         // the whole run

  explicit ManifestFacts(const record::TensorSet& set) {
    const Json& manifest = set.manifest();
    // What a program computed in bfloat16 has tensors of float32 too: the sines of the timestep, sigmas.
    is_low = manifest.contains("dtype") ? IsLowPrecision(TextOf(manifest, "dtype")) : IsMostlyLow(set);
    if (!manifest.is_object()) return;
    for (const Json& entry : manifest["checkpoints"]) {
      const std::string name = TextOf(entry, "name");
      if (IsLowPrecision(TextOf(entry, "original_dtype"))) low_precision.insert(name);
      if (const auto level = record::ParseLevel(TextOf(entry, "level"))) levels[name] = *level;
      if (const std::string source = TextOf(entry, "source"); !source.empty()) {
        const std::string code = TextOf(entry, "code");
        sources[name] = code.empty() ? source : fmt::format("{}: {}", source, code);
      }
      const auto floor = entry.find("floor");
      if (floor == entry.end() || !floor->is_object()) continue;
      const auto figure = [&](const char* key) -> std::optional<double> {
        const auto found = floor->find(key);
        if (found == floor->end() || !found->is_number()) return std::nullopt;
        return found->get<double>();
      };
      if (const auto nmse = figure("nmse")) floors[name] = {*nmse, figure("max_abs").value_or(0)};
    }
  }
};

const CheckpointNames& FamilyOf(const record::TensorSet& set) {
  std::vector<std::string> names;
  for (const record::TensorInfo& tensor : set.tensors()) names.push_back(tensor.name);
  return NamesFor(names);
}

std::string WithoutNumbers(std::string name) {
  std::erase_if(name, [](char c) { return c >= '0' && c <= '9'; });
  return name;
}

// Whether all that failed are one thing in several steps or blocks.
bool DifferInNumbersOnly(const std::vector<TensorComparison>& tensors) {
  std::set<std::string> names;
  for (const TensorComparison& t : tensors) {
    if (!t.passed) names.insert(WithoutNumbers(t.name));
  }
  return names.size() <= 1;
}

class SetComparer {
 public:
  SetComparer(const record::TensorSet& ref, const record::TensorSet& run, const CompareOptions& options)
      : ref_(ref),
        run_(run),
        options_(options),
        ref_selection_(record::RecordedSelection(ref.manifest())),
        run_selection_(record::RecordedSelection(run.manifest())),
        ref_facts_(ref),
        run_facts_(run) {}

  Comparison Compare() {
    Comparison c{.ref_path = ref_.path(),
                 .run_path = run_.path(),
                 .ref_manifest = ref_.manifest(),
                 .run_manifest = run_.manifest(),
                 .manifest_differences = CompareManifests(ref_.manifest(), run_.manifest())};
    for (const record::TensorInfo& tensor : ref_.tensors()) {
      if (IsMeant(tensor.name) && run_.Find(tensor.name)) total_ += tensor.count;
    }
    for (const record::TensorInfo& tensor : ref_.tensors()) {
      if (!IsMeant(tensor.name)) continue;
      const record::TensorInfo* counterpart = run_.Find(tensor.name);
      if (counterpart) {
        c.tensors.push_back(CompareOne(tensor, *counterpart));
      } else {
        c.missing.push_back(tensor.name);
      }
    }
    for (const record::TensorInfo& tensor : run_.tensors()) {
      if (IsMeant(tensor.name) && !ref_.Find(tensor.name)) c.extra.push_back(tensor.name);
    }
    if (c.tensors.empty() && c.missing.empty() && c.extra.empty())
      Fail(ErrorKind::kUsage, "no tensor of {} or {} matches --only", ref_.path().string(),
           run_.path().string());
    FindOrder(c);
    FindUndumped(c);
    if (!scaled_norms_.empty()) {
      c.notes.push_back(fmt::format(
          "{} norms pass, but all their tokens are scaled the same way: another epsilon? First {}",
          scaled_norms_.size(), scaled_norms_.front()));
    }
    if (!not_recorded_.empty()) {
      c.notes.push_back(
          fmt::format("{} checkpoints were left out: one side was not to record them (--checkpoints)",
                      not_recorded_.size()));
    }
    return c;
  }

 private:
  bool IsMeant(const std::string& name) {
    const auto matches = [&](const std::string& glob) { return MatchesGlob(glob, name); };
    if (!options_.only.empty() && std::none_of(options_.only.begin(), options_.only.end(), matches))
      return false;
    // A checkpoint that one side was told not to record is not missing there.
    const record::TensorInfo *ref = ref_.Find(name), *run = run_.Find(name);
    const bool left_out = (run && !ref && IsBeyond(ref_selection_, *run, run_facts_)) ||
                          (ref && !run && IsBeyond(run_selection_, *ref, ref_facts_));
    if (left_out) not_recorded_.insert(name);
    return !left_out;
  }

  // Whether `selection`, one side's, leaves out what the other side has.
  static bool IsBeyond(const std::optional<record::CheckpointSelection>& selection,
                       const record::TensorInfo& tensor, const ManifestFacts& facts) {
    if (!selection) return false;
    const auto level = facts.levels.find(tensor.own_name);
    return !(level == facts.levels.end() ? selection->Contains(tensor.name)
                                         : selection->Contains(tensor.name, level->second));
  }

  // Without an order of the reference's own, names that tell the place of all that failed come first, then
  // the run's order.
  void FindOrder(Comparison& c) const {
    const record::TensorOrder known = ref_.order();
    if (known == record::TensorOrder::kManifest || known == record::TensorOrder::kFile) return;
    c.order = Order::kNames;
    if (known == record::TensorOrder::kNames) return;
    const CheckpointNames& family = FamilyOf(ref_);
    const bool all_placed = std::all_of(c.tensors.begin(), c.tensors.end(), [&](const TensorComparison& t) {
      return t.passed || (family.order && PlaceOf(family.order(), t.name));
    });
    if (all_placed || DifferInNumbersOnly(c.tensors)) return;
    const record::TensorOrder runs_own = run_.order();
    const bool run_tells =
        runs_own == record::TensorOrder::kManifest || runs_own == record::TensorOrder::kFile;
    c.order = run_tells ? Order::kRun : Order::kUnknown;
    if (!run_tells) return;
    std::map<std::string, size_t> place;
    for (const record::TensorInfo& tensor : run_.tensors()) place.emplace(tensor.name, place.size());
    std::stable_sort(c.tensors.begin(), c.tensors.end(),
                     [&](const TensorComparison& a, const TensorComparison& b) {
                       return place.at(a.name) < place.at(b.name);
                     });
  }

  // Where the run lacks what lies between its last right tensor and the first wrong one.
  void FindUndumped(Comparison& c) const {
    const TensorComparison* first = c.first_divergence();
    if (!first || c.order == Order::kRun || c.order == Order::kUnknown) return;
    for (const record::TensorInfo& tensor : ref_.tensors()) {
      if (tensor.name == first->name) return;
      const bool compared = run_.Find(tensor.name) != nullptr;
      if (compared) {
        c.undumped.clear();
      } else {
        c.undumped.push_back(tensor.name);
      }
    }
    c.undumped.clear();
  }

  // The source of `tensor` that also reports progress while it is read. A tensor of another shape may be
  // larger than the reference's, whose elements are counted.
  TensorSource Reported(const record::TensorSet& set, const record::TensorInfo& tensor, int64_t most) {
    TensorSource source = SourceOf(set, tensor);
    if (!options_.on_progress) return source;
    source.read = [this, most, read = source.read](int64_t begin, int64_t count, double* out) {
      options_.on_progress(done_ + std::min(begin, most), total_);
      read(begin, count, out);
    };
    return source;
  }

  TensorComparison CompareOne(const record::TensorInfo& ref, const record::TensorInfo& run) {
    PrecisionFacts facts{.is_float = ref.is_float,
                         .is_low = ref_facts_.is_low || run_facts_.is_low || IsLowPrecision(ref.dtype) ||
                                   IsLowPrecision(run.dtype) || ref_facts_.low_precision.contains(ref.name) ||
                                   run_facts_.low_precision.contains(run.own_name)};
    if (const auto floor = ref_facts_.floors.find(ref.name); floor != ref_facts_.floors.end())
      std::tie(facts.floor, facts.floor_max_abs) = std::pair(floor->second.nmse, floor->second.max_abs);
    TensorComparison result = CompareTensor(ref.name, SourceOf(ref_, ref), Reported(run_, run, ref.count),
                                            [&](const TensorStats& stats) {
                                              facts.max_ref = MaxAbs(stats);
                                              return RecordedCriterion(ref.name, facts, options_.criterion);
                                            });
    if (run.own_name != ref.name) result.run_name = run.own_name;
    if (const auto at = ref_facts_.sources.find(ref.own_name); at != ref_facts_.sources.end())
      result.ref_source = at->second;
    if (const auto at = run_facts_.sources.find(run.own_name); at != run_facts_.sources.end())
      result.run_source = at->second;
    const bool is_norm = ModuleOf(ref.name).find("norm") != std::string_view::npos;
    if (is_norm && result.passed && !facts.is_low && ref.is_float) {
      if (const auto scale = SystematicScale(SourceOf(ref_, ref), SourceOf(run_, run)))
        scaled_norms_.push_back(fmt::format("{} by {:.1e}", Printable(ref.name), *scale));
    }
    done_ += ref.count;
    return result;
  }

  const record::TensorSet& ref_;
  const record::TensorSet& run_;
  const CompareOptions& options_;
  std::optional<record::CheckpointSelection> ref_selection_, run_selection_;
  ManifestFacts ref_facts_, run_facts_;
  std::set<std::string> not_recorded_;  // names of one side only
  std::vector<std::string> scaled_norms_;
  int64_t done_ = 0, total_ = 0;
};

// The tensor `image` as a picture, if it looks like one.
std::optional<FloatImage> ReadPicture(const record::TensorSet& set) {
  const record::TensorInfo* image = set.Find("image");
  if (!image || !image->is_float || image->shape.size() != 4 || image->shape[0] != 1) return std::nullopt;
  const int64_t channels = image->shape[1];
  if ((channels != 3 && channels != 4) || image->count == 0 || image->count / channels > kMaxPicturePixels)
    return std::nullopt;
  return FloatImage{image->shape[3], image->shape[2], set.ReadAll(*image), channels};
}

ImageComparison ComparePng(const std::filesystem::path& ref, const std::filesystem::path& run) {
  const auto read = [](const std::filesystem::path& path) {
    return ToFloatImage(ReadPng(path, Transparency::kKept));
  };
  ImageComparison result = CompareImages(read(ref), read(run), 255);
  result.what = "PNG";
  return result;
}

std::vector<ImageComparison> ComparePicturesOf(const record::TensorSet& ref, const record::TensorSet& run) {
  std::vector<ImageComparison> pictures;
  const auto ref_image = ReadPicture(ref), run_image = ReadPicture(run);
  if (ref_image && run_image) {
    pictures.push_back(CompareImages(*ref_image, *run_image, 2));
    pictures.back().what = "tensor, before the clamp";
  }
  const std::filesystem::path ref_png = ref.path() / "image.png", run_png = run.path() / "image.png";
  std::error_code error;
  if (std::filesystem::exists(ref_png, error) && std::filesystem::exists(run_png, error))
    pictures.push_back(ComparePng(ref_png, run_png));
  return pictures;
}

// That the two were made with other weights, if both name their files; empty if not.
std::string OtherWeights(const Json& ref, const Json& run) {
  const auto files_of = [](const Json& manifest) {
    const auto found = manifest.is_object() ? manifest.find("weights_sha256") : manifest.end();
    return found != manifest.end() && found->is_object() ? *found : Json::object();
  };
  const Json ref_files = files_of(ref), run_files = files_of(run);
  if (ref_files.empty() || run_files.empty()) return "";
  std::vector<std::string> names;
  for (const auto& [name, sum] : ref_files.items()) {
    if (!run_files.contains(name) || run_files[name] != sum) names.push_back(Printable(name, 80));
  }
  if (names.empty()) return "";
  return fmt::format("the reference was made with other weights than the run: {} differ",
                     fmt::join(names, ", "));
}

}  // namespace

std::vector<ManifestDifference> CompareManifests(const Json& ref, const Json& run) {
  std::vector<ManifestDifference> differences;
  if (!ref.is_object() || !run.is_object()) return differences;
  std::set<std::string> keys;
  for (const Json* manifest : {&ref, &run}) {
    for (const auto& [key, value] : manifest->items()) keys.insert(key);
  }
  keys.erase("checkpoints");
  for (const std::string& key : keys) {
    const Json ref_value = ref.value(key, Json()), run_value = run.value(key, Json());
    if (ref_value == run_value) continue;
    const bool said_by_both = ref.contains(key) && run.contains(key);
    if (key == "negative_prompt" && !IsGuided(ref) && !IsGuided(run)) continue;
    const bool fatal =
        said_by_both && std::find(kFatalKeys.begin(), kFatalKeys.end(), key) != kFatalKeys.end();
    const auto text = [&](const Json& manifest, const Json& value) {
      return manifest.contains(key) ? value.dump(-1, ' ', false, Json::error_handler_t::replace) : "";
    };
    differences.push_back({key, text(ref, ref_value), text(run, run_value), fatal});
  }
  return differences;
}

Comparison CompareSets(const record::TensorSet& ref, const record::TensorSet& run,
                       const CompareOptions& options) {
  Comparison comparison = SetComparer(ref, run, options).Compare();
  if (const std::string other = OtherWeights(ref.manifest(), run.manifest()); !other.empty())
    comparison.notes.push_back(other);
  comparison.pictures = ComparePicturesOf(ref, run);
  return comparison;
}

Comparison ComparePngFiles(const std::filesystem::path& ref, const std::filesystem::path& run) {
  Comparison comparison{.ref_path = ref, .run_path = run};
  ImageComparison picture = ComparePng(ref, run);
  picture.passed = IsSameImage(picture);
  comparison.pictures.push_back(std::move(picture));
  return comparison;
}

}  // namespace qwen_image::compare
