#include "prove/proof.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <new>

#include "core/fail.h"
#include "core/memory.h"
#include "core/threads.h"
#include "doctor/diagnosis_json.h"
#include "parity/record/reference_run.h"
#include "prove/drawing.h"
#include "prove/facts.h"
#include "prove/precisions.h"
#include "prove/privacy.h"
#include "prove/reference.h"

namespace qwen_image::prove {
namespace {

constexpr int64_t kPictureSteps = 20, kQuickPictureSteps = 8;
constexpr int kParts = 6;

// A picture that is one colour all over was not drawn: NaN becomes black.
bool IsOneColour(const Image& image) {
  const auto channels = static_cast<size_t>(image.channels);
  for (size_t i = channels; i < image.pixels.size(); ++i) {
    if (image.pixels[i] != image.pixels[i - channels]) return false;
  }
  return true;
}

// The numbered parts of a proof.
class Proof {
 public:
  Proof(const ModelFiles& model, const Options& options, const Watch& watch)
      : model_(AbsoluteFiles(model)), options_(options), watch_(watch) {
    options_.folder = AbsolutePath(options.folder);
    options_.reference = AbsolutePath(options.reference);
  }

  Report Run() {
    Do("doctor", "What the model is", [&](Json& part) { Examine(part); });
    Do(
        "machine", "This machine", [&](Json& part) { part.update(MachineJson(options_.threads)); }, true);
    Do("loading", "Loading", [&](Json& part) { Load(part); });
    if (pipeline_) CheckOptions();
    Do("precisions", "Fast against exact, block by block",
       [&](Json& part) { ComparePrecisions(model_, *pipeline_, options_, watch_, part); });
    Do("pictures", "Pictures", [&](Json& part) { DrawPictures(part); });
    Do("diffusers", "Against diffusers", [&](Json& part) { CompareWithDiffusers(part); });
    return Finish();
  }

 private:
  // What goes wrong with the model is told in the part. `always`: also of a model that cannot be used.
  template <typename Work>
  void Do(const char* name, const char* title, const Work& work, bool always = false) {
    watch_.cancel.ThrowIfCancelled();
    Json part = {{"name", name}, {"title", title}, {"status", kPassed}, {"why", ""}};
    if (watch_.on_part) watch_.on_part(static_cast<int>(parts_.size()) + 1, kParts, title);
    if (!stopped_.empty() && !always) {
      part["status"] = kNotDone;
      part["why"] = stopped_;
    } else {
      const auto start = std::chrono::steady_clock::now();
      Try(work, part);
      part["part_seconds"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    if (watch_.on_part_done) watch_.on_part_done(part["status"], part["why"]);
    parts_.push_back(std::move(part));
  }

  template <typename Work>
  static void Try(const Work& work, Json& part) {
    try {
      work(part);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kInterrupted) throw;
      const bool no_room = error.kind() == ErrorKind::kOutOfMemory || error.kind() == ErrorKind::kCannotWrite;
      part["status"] = no_room ? kNotDone : kFailed;
      part["why"] = error.message();
    } catch (const std::bad_alloc&) {
      part["status"] = kNotDone;
      part["why"] = "out of memory";
    }
  }

  void Examine(Json& part) {
    ThreadPool pool(options_.threads > 0 ? options_.threads : DefaultThreadCount());
    const doctor::Diagnosis found = doctor::Diagnose(model_, pool, watch_.cancel);
    part.update(doctor::DiagnosisJson(found));
    if (found.usable()) return;
    stopped_ = "the model cannot be used";
    part["status"] = kFailed;
    for (const HealthFinding& finding : found.findings) {
      if (finding.health != Health::kBroken) continue;
      part["why"] = fmt::format("{}: {}", finding.subject, finding.text.substr(0, finding.text.find('\n')));
      return;
    }
  }

  void Load(Json& part) {
    const auto start = std::chrono::steady_clock::now();
    try {
      pipeline_ = std::make_unique<Pipeline>(model_, PipelineOptions{.threads = options_.threads,
                                                                     .check_memory = options_.check_memory,
                                                                     .device = Device::kCpu});
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kInterrupted || error.kind() == ErrorKind::kUsage) throw;
      stopped_ = "the model was not loaded";
      part["status"] = kFailed;
      part["why"] = error.message();
      return;
    }
    part["seconds"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    part["resident"] = MemoryInUse().resident;
    part["variant"] = pipeline_->variant();
    part["edits"] = pipeline_->edits();
    part["parts"] = FilesJson(*pipeline_);
    for (const AppliedLora& lora : pipeline_->loras())
      part["loras"].push_back({{"file", lora.name}, {"scale", lora.scale}, {"layers", lora.layers}});
  }

  // Before hours are spent.
  void CheckOptions() const {
    if (!options_.size && !options_.steps) return;
    GenerateRequest request;
    request.prompt = kPlainPrompt;
    request.steps = options_.steps;
    if (options_.size) std::tie(request.width, request.height) = *options_.size;
    pipeline_->Check(request);
  }

  void DrawPictures(Json& part) {
    part["pictures"] = Json::array();
    GenerateRequest request;
    request.prompt = kPlainPrompt;
    std::tie(request.width, request.height) = options_.size.value_or(SmallSize(*pipeline_));
    request.steps = options_.steps
                        ? options_.steps
                        : StepsFor(*pipeline_, options_.quick ? kQuickPictureSteps : kPictureSteps);
    const std::optional<Image> first = DrawPicture("text.png", request, part);
    if (first && pipeline_->edits()) {
      GenerateRequest edit = request;
      edit.prompt = kEditPrompt;
      edit.input_images = {*first};
      DrawPicture("edit.png", edit, part);
    }
    if (options_.quick || options_.size) return;
    request.prompt = kRichPrompt;
    request.width = pipeline_->defaults().width;
    request.height = pipeline_->defaults().height;
    DrawPicture("own-size.png", request, part);
  }

  // Nothing if it was not drawn.
  std::optional<Image> DrawPicture(const char* file, const GenerateRequest& request, Json& part) {
    Json entry = {{"file", file}, {"status", kPassed}, {"why", ""}};
    std::optional<Image> image;
    Try(
        [&](Json&) {
          const Drawn drawn = Draw(*pipeline_, request, file, watch_);
          entry.update(drawn.facts);
          image = drawn.picture.image();
          if (IsOneColour(*image)) {
            entry["status"] = kFailed;
            entry["why"] = "the picture is of one colour";
          }
          pictures_.push_back(ForReport(file, drawn, request, *pipeline_));
        },
        entry);
    if (entry["status"] != kPassed && part["status"] != kFailed) {
      part["status"] = entry["status"];
      part["why"] = fmt::format("{}: {}", file, entry["why"].get<std::string>());
    }
    part["pictures"].push_back(std::move(entry));
    return image;
  }

  void CompareWithDiffusers(Json& part) {
    if (!options_.reference.empty()) {
      CompareWithReference(model_, options_, watch_, part);
      return;
    }
    part["status"] = kNotDone;
    part["why"] =
        "not compared with diffusers: no run of it was given (--reference). From a clone of the project, "
        "./run "
        "prove --diffusers makes one, where the model is a folder in diffusers' layout and fits in memory";
  }

  Report Finish() {
    const bool passed = std::none_of(parts_.begin(), parts_.end(),
                                     [](const Json& part) { return part["status"] == kFailed; });
    Report report{.document = {{"schema", kSchema},
                               {"tool", "qwen-image prove"},
                               {"version", Version()},
                               {"quick", options_.quick},
                               {"passed", passed},
                               {"parts", parts_}},
                  .pictures = std::move(pictures_)};
    const char* home = std::getenv("HOME");
    std::error_code error;
    const Cleaner cleaner(model_, {options_.folder, options_.reference, std::filesystem::current_path(error),
                                   home ? home : ""});
    cleaner.Clean(report.document);
    for (ReportPicture& picture : report.pictures) {
      for (auto& [key, text] : picture.text) text = cleaner.Clean(text);
    }
    return report;
  }

  ModelFiles model_;
  Options options_;
  const Watch& watch_;
  std::string stopped_;  // why the rest is not done; empty: it is
  std::unique_ptr<Pipeline> pipeline_;
  std::vector<Json> parts_;
  std::vector<ReportPicture> pictures_;
};

}  // namespace

Report Prove(const ModelFiles& model, const Options& options, const Watch& watch) {
  if (!options.reference.empty()) record::ReferenceRun{options.reference};  // throws before hours are spent
  return Proof(model, options, watch).Run();
}

}  // namespace qwen_image::prove
