// The public face: joining the machines, and what all but the first one do.
#include "qwen_image/machines.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <new>
#include <utility>

#include "core/fail.h"
#include "core/threads.h"
#include "families/family.h"
#include "machines/deadline.h"
#include "qwen_image/instruction_set.h"
#include "team/calls.h"
#include "team/facts.h"
#include "team/measure.h"
#include "team/passes.h"
#include "weights/model_parts.h"

namespace qwen_image {
namespace team {
namespace {

// A machine that does what the first one tells.
class Follower {
 public:
  explicit Follower(const machines::Session& session) : session_(session) {}

  // Until the first machine ends.
  void Run() {
    while (true) {
      const auto [call, message] = Hear(session_);
      switch (call) {
        case Call::kOpen:
          Open(message);
          break;
        case Call::kMemory:
          LeastMemory(session_);
          break;
        case Call::kStart:
          Start(message);
          break;
        case Call::kPredict:
          Predict(message);
          break;
        case Call::kRelease:
          Release(message);
          break;
        case Call::kNetwork:
          TakePartInNetwork(session_);
          break;
        case Call::kSpeed:
          TakePartInPasses(*model_, session_, message, *pool_);
          break;
        case Call::kBye:
          return;
      }
    }
  }

 private:
  void Open(std::span<const std::byte> message) {
    EndRun();
    model_.reset();
    Report report;
    try {
      call_ = ModelCall::Read(message);
      if (call_.instruction_set != InstructionSetInUse()) UseInstructionSet(call_.instruction_set);
      const ModelParts parts = FindModelParts(call_.files);
      model_ = FamilyFor(parts).Open(parts, call_.files, call_.options);
      model_->ReleasePages();
      pool_ = std::make_unique<ThreadPool>(call_.threads > 0 ? call_.threads : ThreadsHere(session_));
      report = Examine(*model_);
    } catch (const Error& error) {
      report.error = error.message();
    } catch (const std::exception& error) {
      report.error = error.what();
    }
    ShareAll(session_, report.Write().bytes());
  }

  void EndRun() {
    pass_.reset();
    compute_.reset();
    conditions_.reset();
  }

  void Start(std::span<const std::byte> message) {
    EndRun();
    conditions_ = std::make_unique<OwnedConditions>(message);
    compute_ = std::make_unique<Compute>(Compute{.pool = *pool_, .cancel = never_});
    pass_ =
        std::make_unique<TeamPass>(model_->denoiser(), conditions_->view(), session_, call_.split, *compute_);
  }

  void Predict(std::span<const std::byte> message) {
    Reader from(message);
    const Tensor latents = from.GetTensor();
    const auto timestep = from.Get<float>();
    SharedSink sink(session_.all(), Tap());
    const Tap tap = from.Get<bool>() ? Tap(&sink) : Tap();
    try {
      pass_->Predict(latents, timestep, std::vector<Tap>(conditions_->view().prompts.size(), tap));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInterrupted) throw;
    }
  }

  void Release(std::span<const std::byte> message) {
    const auto component = Reader(message).Get<std::optional<Component>>();
    if (!component || *component == Component::kTransformer) EndRun();
    if (model_) model_->ReleasePages(component);
  }

  const machines::Session& session_;
  const CancelFlag never_;
  ModelCall call_;
  std::unique_ptr<const Model> model_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<OwnedConditions> conditions_;
  std::unique_ptr<Compute> compute_;
  std::unique_ptr<TeamPass> pass_;
};

}  // namespace
}  // namespace team

std::shared_ptr<Machines> Machines::Join() {
  const auto launcher = machines::FindLauncher([](const char* name) { return std::getenv(name); });
  if (!launcher) return nullptr;
  const machines::Deadline deadline(std::chrono::seconds(60), "the machines did not all meet");
  auto session = std::make_unique<machines::Session>(
      machines::OpenWireOf(*launcher, machines::PluginFolders()), *launcher);
  if (session->size() == 1) return nullptr;
  team::AgreeOnKernels(*session);
  return std::shared_ptr<Machines>(new Machines(std::move(session)));
}

void Machines::CheckPlugin() { machines::FindPlugin({.library = "Open MPI"}, machines::PluginFolders()); }

Machines::Machines(std::unique_ptr<machines::Session> session) : session_(std::move(session)) {}

Machines::~Machines() {
  if (rank() > 0 || session_->failed()) return;
  try {
    team::Tell(*session_, team::Call::kBye);
  } catch (...) {
    session_->Fail();
  }
}

int Machines::rank() const { return session_->rank(); }
int Machines::size() const { return session_->size(); }
std::string Machines::NameOf(int rank) const { return session_->NameOf(rank); }
void Machines::set_exit_code(int code) {
  if (code != 0) session_->set_exit_code(code);
}

int Machines::Follow() {
  std::string problem;
  try {
    team::Follower(*session_).Run();
    return 0;
  } catch (const Error& error) {
    problem = error.message();
  } catch (const std::bad_alloc&) {
    problem = "out of memory";
  } catch (const std::exception& error) {
    problem = error.what();
  }
  // The others are in the middle of something that they cannot end without this machine: nobody is left whom
  // it could be reported to.
  fmt::print(stderr, "qwen-image: machine {}: {}\n", NameOf(rank()), problem);
  session_->Abort();
}

}  // namespace qwen_image
