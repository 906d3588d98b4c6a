// The wire over MPI. This file is a plugin by itself, built once for each MPI library.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "machines/wire.h"

namespace qwen_image::machines {
namespace {

class MpiWire final : public Wire {
 public:
  MpiWire() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    char name[MPI_MAX_PROCESSOR_NAME + 1] = {};
    int length = 0;
    MPI_Get_processor_name(name, &length);
    host_.assign(name, static_cast<size_t>(length));
  }
  ~MpiWire() override { MPI_Finalize(); }
  MpiWire(const MpiWire&) = delete;
  MpiWire& operator=(const MpiWire&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string host() const override { return host_; }

  std::unique_ptr<Message> Send(int to, int tag, std::span<const std::byte> bytes) override {
    auto message = std::make_unique<MpiMessage>(mutex_);
    const std::lock_guard lock(mutex_);
    MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, to, tag, MPI_COMM_WORLD,
              &message->request);
    return message;
  }

  std::unique_ptr<Message> Receive(int from, int tag, std::span<std::byte> bytes) override {
    auto message = std::make_unique<MpiMessage>(mutex_);
    const std::lock_guard lock(mutex_);
    MPI_Irecv(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, from, tag, MPI_COMM_WORLD,
              &message->request);
    return message;
  }

  [[noreturn]] void Abort(int exit_code) override {
    // Without the mutex: another thread may hang inside of MPI, which is what ends the program.
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    std::_Exit(exit_code);
  }

 private:
  // No call of MPI waits, so that one thread at a time is enough for it.
  struct MpiMessage final : Message {
    explicit MpiMessage(std::mutex& m) : mutex(m) {}
    bool Done() override {
      const std::lock_guard lock(mutex);
      int done = 0;
      MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      return done != 0;
    }

    std::mutex& mutex;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  std::mutex mutex_;
  int rank_ = 0, size_ = 1;
  std::string host_;
};

}  // namespace
}  // namespace qwen_image::machines

extern "C" __attribute__((visibility("default"))) qwen_image::machines::Wire* qwen_image_open_wire(
    const char* version, char* error, size_t error_bytes) {
  if (std::strcmp(version, QWEN_IMAGE_VERSION) != 0) {
    std::snprintf(error, error_bytes, "it is of version %s, the program of %s", QWEN_IMAGE_VERSION, version);
    return nullptr;
  }
  int provided = MPI_THREAD_SINGLE;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS ||
      provided < MPI_THREAD_SERIALIZED) {
    std::snprintf(error, error_bytes, "this MPI library does not support threads");
    return nullptr;
  }
  return new qwen_image::machines::MpiWire;
}
