// What the first machine asks the others to do.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "families/family.h"
#include "machines/session.h"
#include "qwen_image/qwen_image.h"
#include "team/message.h"

namespace qwen_image::team {

enum class Call : uint32_t {
  kOpen,     // a model; answered by a Report
  kMemory,   // answered by the bytes that are available
  kStart,    // the passes of a run
  kPredict,  // velocities of a step, together
  kRelease,  // memory of weights
  kNetwork,  // a measurement of it
  kSpeed,    // a measurement of this machine's; answered by seconds
  kBye,      // the program ends
};

void Tell(const machines::Session& session, Call call, const Writer& message = {});
// What the first machine told.
std::pair<Call, std::vector<std::byte>> Hear(const machines::Session& session);

// Everybody's bytes, on all.
std::vector<std::vector<std::byte>> ShareAll(const machines::Session& session,
                                             std::span<const std::byte> own);

// The model that all draw with, and how.
struct ModelCall {
  ModelFiles files;
  ModelOptions options;
  int threads = 0;
  std::string instruction_set;
  Split split = Split::kSequence;

  Writer Write() const;
  static ModelCall Read(std::span<const std::byte> bytes);
};

// What a machine has opened: it must be the same on all. Pairs of what it is about and what it is.
struct Report {
  std::string error;  // why nothing was opened; empty: it was
  std::vector<std::pair<std::string, std::string>> facts;

  Writer Write() const;
  static Report Read(std::span<const std::byte> bytes);
};

// Conditions together with what they refer to.
class OwnedConditions {
 public:
  static Writer Write(const Conditions& conditions);
  explicit OwnedConditions(std::span<const std::byte> bytes);
  OwnedConditions(const OwnedConditions&) = delete;
  OwnedConditions& operator=(const OwnedConditions&) = delete;

  const Conditions& view() const { return view_; }

 private:
  std::vector<Tensor> embeds_;
  std::vector<std::vector<int64_t>> ids_;
  std::optional<Tensor> references_;
  Conditions view_;
};

}  // namespace qwen_image::team
