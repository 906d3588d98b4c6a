// Between C++ and C: exceptions become status codes and a message for qwen_image_last_error.
#pragma once

#include <new>
#include <string>

#include "core/fail.h"
#include "qwen_image/c_api.h"

namespace qwen_image {

// Remembers what went wrong on this thread.
qwen_image_status Refuse(ErrorKind kind, const char* message) noexcept;

template <typename Function>
qwen_image_status Guarded(const Function& function) noexcept {
  try {
    function();
    return QWEN_IMAGE_OK;
  } catch (const Error& error) {
    return Refuse(error.kind(), error.what());
  } catch (const std::bad_alloc&) {
    return Refuse(ErrorKind::kOutOfMemory, "out of memory");
  } catch (const std::exception& error) {
    return Refuse(ErrorKind::kInternal, error.what());
  } catch (...) {
    return Refuse(ErrorKind::kInternal, "an exception of unknown type");
  }
}

// `pointer` unless it is NULL, which is the caller's mistake. `name` is that of the parameter.
template <typename T>
T& Need(T* pointer, const char* name) {
  if (!pointer) Fail(ErrorKind::kUsage, "{} is NULL", name);
  return *pointer;
}

inline const char* NeedText(const char* text, const char* name) { return &Need(text, name); }

}  // namespace qwen_image
