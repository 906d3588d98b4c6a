// Messages between machines: what a message-passing library has to offer. The implementation is a plugin
// (mpi_wire.cc), so that the program itself needs no such library.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace qwen_image::machines {

class Wire {
 public:
  virtual ~Wire() = default;  // every machine must do this; waits for the others

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string host() const = 0;

  // A message on its way. Its memory must stay until it is done, or until the program ends.
  class Message {
   public:
    virtual ~Message() = default;
    virtual bool Done() = 0;
  };
  // Any thread may send and receive. Messages from one machine to another with the same tag arrive in the
  // order in which they were sent; a message has at most kMostBytes.
  static constexpr size_t kMostBytes = size_t{1} << 30;
  virtual std::unique_ptr<Message> Send(int to, int tag, std::span<const std::byte> bytes) = 0;
  virtual std::unique_ptr<Message> Receive(int from, int tag, std::span<std::byte> bytes) = 0;

  // Ends the program on all machines.
  [[noreturn]] virtual void Abort(int exit_code) = 0;
};

// What a plugin exports under the name kOpenWire. Null: `error` says why. `version` is the program's: a
// plugin of another build of it is refused.
inline constexpr const char* kOpenWire = "qwen_image_open_wire";
using OpenWire = Wire* (*)(const char* version, char* error, size_t error_bytes);

}  // namespace qwen_image::machines
