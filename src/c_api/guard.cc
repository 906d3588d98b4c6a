#include "c_api/guard.h"

namespace qwen_image {
namespace {

std::string& LastError() {
  thread_local std::string message;
  return message;
}

qwen_image_status StatusOf(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUsage:
      return QWEN_IMAGE_USAGE;
    case ErrorKind::kBadInput:
      return QWEN_IMAGE_BAD_INPUT;
    case ErrorKind::kOutOfMemory:
      return QWEN_IMAGE_OUT_OF_MEMORY;
    case ErrorKind::kCannotWrite:
      return QWEN_IMAGE_CANNOT_WRITE;
    case ErrorKind::kInterrupted:
      return QWEN_IMAGE_INTERRUPTED;
    case ErrorKind::kMachine:
      return QWEN_IMAGE_MACHINE;
    case ErrorKind::kInternal:
      break;
  }
  return QWEN_IMAGE_INTERNAL;
}

}  // namespace

qwen_image_status Refuse(ErrorKind kind, const char* message) noexcept {
  try {
    LastError() = message;
  } catch (const std::bad_alloc&) {
    LastError().clear();  // the status says enough
  }
  return StatusOf(kind);
}

}  // namespace qwen_image

extern "C" const char* qwen_image_last_error(void) { return qwen_image::LastError().c_str(); }
