// What reading and writing PNG pictures share: libpng's errors without its jumps and prints.
#pragma once

#include <png.h>

#include <cstring>

namespace qwen_image {

struct PngMessage {
  char text[200] = "";  // of the last error
};

// For png_create_…_struct, with a PngMessage as the error pointer.
[[noreturn]] inline void OnPngError(png_structp png, png_const_charp message) {
  PngMessage& last = *static_cast<PngMessage*>(png_get_error_ptr(png));
  std::strncpy(last.text, message, sizeof(last.text) - 1);
  png_longjmp(png, 1);
}

inline void OnPngWarning(png_structp, png_const_charp) {}  // the library never prints

}  // namespace qwen_image
