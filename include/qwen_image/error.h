// The one error type of the library. The library never prints, aborts or exits: it throws Error, the command
// line maps the kind to an exit code and the server maps it to an HTTP status.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "qwen_image/export.h"

namespace qwen_image {

enum class ErrorKind {
  kUsage,        // the caller asked for something impossible (a size of 100x100, zero steps)
  kBadInput,     // a file is broken, or is not what it should be
  kOutOfMemory,  // the model or the picture does not fit
  kCannotWrite,  // the output cannot be written
  kInterrupted,  // the caller asked to stop
  kMachine,      // another machine that draws the same picture cannot go on
  kInternal,     // a bug in this program
};

class QWEN_IMAGE_API Error : public std::exception {
 public:
  Error(ErrorKind kind, std::string message) : kind_(kind), message_(std::move(message)) {}
  ErrorKind kind() const { return kind_; }
  const std::string& message() const { return message_; }
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  ErrorKind kind_;
  std::string message_;
};

}  // namespace qwen_image
