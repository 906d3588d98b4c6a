// Rows of floats as the bytes of a message.
#pragma once

#include <cstddef>
#include <span>

#include "core/fail.h"
#include "core/view.h"

namespace qwen_image::split {

inline std::span<const std::byte> BytesOf(ConstView rows) {
  if (!rows.dense()) Fail(ErrorKind::kInternal, "rows of a message do not lie one behind the other");
  return std::as_bytes(std::span(rows.data, static_cast<size_t>(rows.size())));
}
inline std::span<std::byte> BytesOf(View rows) {
  if (!rows.dense()) Fail(ErrorKind::kInternal, "rows of a message do not lie one behind the other");
  return std::as_writable_bytes(std::span(rows.data, static_cast<size_t>(rows.size())));
}

}  // namespace qwen_image::split
