// A worker: takes jobs from the queue of a NATS server, draws them, and stores their pictures.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "draw/record.h"
#include "queue/board.h"
#include "queue/results.h"

namespace qwen_image::queue {

struct WorkerSettings {
  std::string name;                     // of this worker; no two have the same
  std::string queue_name;               // what jobs call the model
  std::string model_name;               // for the record inside the pictures
  std::filesystem::path resume_folder;  // empty: none
  std::chrono::milliseconds dead_after = std::chrono::seconds(30);
  draw::SourceMark mark = draw::SourceMark::kWritten;
  std::function<void(const std::string& line)> say;
};

// "host-1234-9f3a": the machine, the process, and what tells it from earlier ones.
std::string NewWorkerName();

class Worker {
 public:
  // All must outlive it.
  Worker(const Pipeline& pipeline, Board& board, Results& results, WorkerSettings settings,
         const CancelFlag& stop);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Until it is told to stop: a job that is being drawn goes back to the queue then. Throws Error where this
  // worker can be of no use: its results cannot be stored, or the server is gone for good.
  void Run();

 private:
  // A job that is being drawn.
  struct Drawing {
    Delivery delivery;
    std::string id;
    CancelFlag cancel;
    std::atomic<bool> cancelled_by_user = false;
    std::atomic<std::chrono::steady_clock::time_point> watched_until{}, last_progress{}, last_told{};
  };
  enum class Verdict { kDraw, kElsewhere, kSetAside };

  void Handle(const Delivery& delivery);
  void HandleKnown(const Delivery& delivery, const std::string& id);
  std::optional<jobs::Request> Accept(const Delivery& delivery, const std::string& id, Board::Known& known);
  Verdict Judge(const std::string& id, const JobRecord& record);
  void Draw(const Delivery& delivery, Board::Known known, const jobs::Request& request);
  void DrawPictures(Drawing& drawing, const jobs::Request& request, jobs::Job& job);
  void GiveUp(const Delivery& delivery, Board::Known& known, const Error& error);
  void SetAside(const Delivery& delivery, JobRecord& record);
  void HandBack(const Delivery& delivery, Board::Known& known);
  void End(const Delivery& delivery, JobRecord record, jobs::State state);
  jobs::Request ReadRequest(const JobMessage& message) const;
  bool StillDraws(const std::string& worker, const std::string& id);

  void Beat();
  void TellPresence();
  void Control(const std::string& id, const std::string& what);
  std::string PresenceNow() const;
  // Again while the server is gone, which comes back by itself. Throws ServerGone if it does not, or if the
  // worker is to stop.
  template <typename Do>
  auto Insist(const Do& what) -> decltype(what());

  const Pipeline& pipeline_;
  Board& board_;
  Results& results_;
  const WorkerSettings settings_;
  const std::string build_;
  const CancelFlag& stop_;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  Drawing* drawing_ = nullptr;
  bool presence_is_new_ = false;  // others have not been told yet
  bool ended_ = false;
  std::thread beating_;
};

}  // namespace qwen_image::queue
