// A family of models: how its files are opened and examined. The table of all families is
// table.def.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "families/model.h"
#include "families/vocabulary.h"
#include "weights/model_parts.h"

namespace qwen_image {

enum class Health {
  kGood,
  kNote,     // worth knowing
  kWarning,  // pictures may come out wrong
  kBroken,   // no picture can be drawn
};

struct HealthFinding {
  Health health = Health::kGood;
  std::string subject;  // "transformer", "memory", …
  std::string text;
};

struct ModelOptions {
  Precision precision = Precision::kFast;
  Device device = Device::kCpu;  // never kAuto
  bool check_memory = true;
};

// One component by itself: every name and shape is that of its model.
class ModelPart {
 public:
  virtual ~ModelPart() = default;
  virtual const WeightStore& store() const = 0;
  virtual std::string Summary() const = 0;  // "60 blocks, 24 heads of 128"
  virtual Json Config() const = 0;          // config.json as it is, or as it would be
};

// Those that were opened; null: not.
struct OpenedParts {
  std::unique_ptr<ModelPart> transformer, text_encoder, vae;
};

struct VariantInfo {
  std::string name;  // empty: unknown
  std::string how;   // what it was recognized by
  bool edits = false;
  std::string pipeline_class;  // for a model_index.json
  bool given = false;          // by the user; what lies in the model's folder may speak for another
};

class Family {
 public:
  virtual ~Family() = default;
  virtual const Vocabulary& vocabulary() const = 0;
  virtual std::string title() const = 0;  // for people
  virtual bool Recognises(const ModelParts& parts) const = 0;
  virtual SchedulerConfig OfficialScheduler(const VariantInfo& variant) const = 0;
  virtual std::string_view tokenizer_folder() const { return "tokenizer"; }  // of a diffusers folder

  // All throw Error kBadInput that says what does not fit.
  virtual std::unique_ptr<Model> Open(const ModelParts& parts, const ModelFiles& files,
                                      const ModelOptions& options) const = 0;
  virtual std::unique_ptr<ModelPart> OpenPart(const ModelParts& parts, Component component) const = 0;
  virtual std::string ExamineTokenizer(const ModelParts& parts) const;  // in a few words
  virtual void CheckFit(const OpenedParts& opened, const std::filesystem::path& root) const = 0;  // all three

  // Which variant of the family it is. `asked`: what the user says; empty: nothing. `pipelines`: what the
  // model says that it can do (ModelDefaults). What a user should know is added to `findings`, which may be
  // null. Throws Error kUsage if `asked` contradicts the files.
  virtual VariantInfo ExamineVariant(const ModelParts& parts, const OpenedParts& opened,
                                     const std::string& asked, const std::vector<std::string>& pipelines,
                                     std::vector<HealthFinding>* findings) const = 0;
  // What is to be said of the encoder that looks at pictures, which text to picture does not need.
  virtual void ExamineVision(const ModelParts& parts, const OpenedParts& opened, bool edits,
                             std::vector<HealthFinding>& findings) const = 0;

  // For folders that come without.
  virtual Json ModelIndex(const VariantInfo& variant, bool with_processor) const = 0;
};

std::span<const Family* const> Families();

// The family that recognises the model. Where none does, the first of the table: its errors say what is
// wrong.
const Family& FamilyFor(const ModelParts& parts);

// A family that is known as long as this object lives: for tests, which have one thread then.
class ScopedFamily {
 public:
  explicit ScopedFamily(const Family& family);
  ~ScopedFamily();
  ScopedFamily(const ScopedFamily&) = delete;
  ScopedFamily& operator=(const ScopedFamily&) = delete;

 private:
  const Family& family_;
  ScopedVocabulary vocabulary_;
};

}  // namespace qwen_image
