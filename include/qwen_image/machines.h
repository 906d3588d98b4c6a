// Several machines that draw one picture together. A launcher starts the same program on all of them
// (mpirun -n 4 PROGRAM); each joins the others before it does anything else:
//
//   const std::shared_ptr<qwen_image::Machines> machines = qwen_image::Machines::Join();
//   if (machines && machines->rank() > 0) return machines->Follow();
//   qwen_image::Pipeline pipeline("models/tiny", {.machines = machines});
//
// The first one then uses the pipeline as if it were alone. The pictures have the same bits.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "qwen_image/export.h"

namespace qwen_image {

namespace machines {
class Session;
}

// What each machine computes of a step.
enum class Split {
  // One of the two prompts and, of that, some of the tokens and of the heads of attention. Every machine
  // needs
  // memory for all weights. The faster one.
  kSequence,
  // Some of the transformer's blocks, for machines that cannot hold all. They work at the same time only
  // where there is guidance.
  kLayers,
};

class QWEN_IMAGE_API Machines {
 public:
  // Null: no launcher started several processes, or Slurm did without a message-passing library. Throws
  // ErrorKind::kUsage if a launcher did, but nothing is here that talks by its library.
  static std::shared_ptr<Machines> Join();

  // Throws ErrorKind::kUsage if the plugin that Join needs for Open MPI is not there.
  static void CheckPlugin();

  // The first machine's dismisses the others.
  ~Machines();
  Machines(const Machines&) = delete;
  Machines& operator=(const Machines&) = delete;

  int rank() const;  // 0: the first machine
  int size() const;
  std::string NameOf(int rank) const;  // "node7 (rank 2)"

  // Of all machines but the first: computes with the others what the first one asks for, until it ends.
  // Returns the exit code for the program. Where this machine fails all are ended.
  int Follow();

  // Of the first machine: what the program ends with. Where the others cannot be dismissed in good order,
  // they are ended with it.
  void set_exit_code(int code);

  machines::Session& session() const { return *session_; }  // the library's own

 private:
  explicit Machines(std::unique_ptr<machines::Session> session);
  std::unique_ptr<machines::Session> session_;
};

}  // namespace qwen_image
