#include "team/facts.h"

#include <algorithm>

#include "core/fail.h"
#include "core/memory.h"
#include "core/threads.h"
#include "files/digest.h"
#include "keep/identity.h"
#include "kernels/int8/tile.h"
#include "kernels/interface.h"
#include "qwen_image/instruction_set.h"

namespace qwen_image::team {
namespace {

// Of what the files hold, not where and since when.
std::string FingerprintOf(const WeightStore& store) {
  std::string text = store.config().dump(-1, ' ', true, Json::error_handler_t::replace);
  for (const auto& file : store.files()) text += " " + keep::FingerprintOf(*file);
  store.ReleasePages();
  return Sha256(text);
}

}  // namespace

// Only the transformer is computed by several machines.
Report Examine(const Model& model) {
  Report report;
  report.facts = {{"the program and its kernels", keep::EngineIdentity()},
                  {"the transformer's weights", FingerprintOf(*model.StoreOf(Component::kTransformer))}};
  for (const WeightFile* lora : model.loras().files())
    report.facts.emplace_back("the LoRA " + lora->file().path().filename().string(),
                              keep::FingerprintOf(*lora));
  return report;
}

std::string DifferenceOf(const Report& first, const Report& other) {
  if (first.facts.size() != other.facts.size()) return "it has other LoRAs than the first machine";
  for (size_t i = 0; i < first.facts.size(); ++i) {
    const auto& [about, here] = first.facts[i];
    const auto& there = other.facts[i].second;
    if (here == there) continue;
    return fmt::format("{} differ from the first machine's ({} there, {} here); all machines need the same",
                       about, there, here);
  }
  return {};
}

int64_t LeastMemory(const machines::Session& session) {
  const int64_t own = AvailableMemory();
  int64_t least = own;
  for (const auto& bytes : ShareAll(session, std::as_bytes(std::span(&own, 1))))
    least = std::min(least, Reader(bytes).Get<int64_t>());
  return least;
}

int ThreadsHere(const machines::Session& session) {
  // A launcher may have given each of them processors of its own.
  return std::max(1, session.bound() ? DefaultThreadCount() : DefaultThreadCount() / session.size_on_host());
}

void AgreeOnKernels(const machines::Session& session) {
  const std::string own = InstructionSet() + ChosenInt8Kernel().name;
  Writer message;
  message.Put(own);
  message.Put(static_cast<uint64_t>(InstructionSets().size()));
  for (const std::string& name : InstructionSets()) message.Put(name);
  bool all_same = true;
  std::vector<std::string> common;  // the best one first
  const auto all = ShareAll(session, message.bytes());
  for (size_t rank = 0; rank < all.size(); ++rank) {
    Reader from(all[rank]);
    all_same &= from.GetText() == own;
    std::vector<std::string> theirs;
    for (auto count = from.Get<uint64_t>(); count > 0; --count) theirs.push_back(from.GetText());
    if (rank == 0) common = theirs;
    std::erase_if(common, [&](const std::string& name) {
      return std::find(theirs.begin(), theirs.end(), name) == theirs.end();
    });
  }
  if (common.empty()) Fail(ErrorKind::kMachine, "the machines have no instruction set in common");
  if (!all_same) UseInstructionSet(common.front());
}

}  // namespace qwen_image::team
