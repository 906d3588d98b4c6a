#include <png.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <span>
#include <vector>

#include "core/fail.h"
#include "files/decoded_image.h"
#include "files/longjmp.h"
#include "files/output_file.h"
#include "files/png.h"
#include "files/png_calls.h"
#include "files/text.h"

namespace qwen_image {
namespace {

constexpr int64_t kMaxSide = ImageLimits{}.max_side;  // what can be read again

struct Output {
  std::function<void(const void* bytes, size_t size)> write;
  std::exception_ptr exception;  // thrown by `write`
};

void OnWrite(png_structp png, png_bytep from, size_t size) {
  Output& output = *static_cast<Output*>(png_get_io_ptr(png));
  try {
    output.write(from, size);
    return;
  } catch (...) {  // an exception must not cross libpng's C code
    output.exception = std::current_exception();
  }
  png_error(png, "cannot write");
}

void OnFlush(png_structp) {}

// They point into the texts.
std::vector<png_text> ChunksOf(std::map<std::string, std::string>& texts) {
  std::vector<png_text> chunks;
  for (auto& [key, value] : texts) {
    const auto is_plain = [](char c) { return c > ' ' && c <= '~'; };
    if (key.empty() || key.size() > 79 || !std::all_of(key.begin(), key.end(), is_plain)) {
      Fail(ErrorKind::kUsage, "{} cannot be a keyword of a PNG picture: 1 to 79 letters of ASCII can",
           Quoted(key));
    }
    // PNG ends a text at a NUL. A picture that took an hour is not thrown away for one in the prompt.
    for (size_t at = 0; (at = value.find('\0', at)) != value.npos;) value.replace(at, 1, "\uFFFD");
    png_text& chunk = chunks.emplace_back();
    chunk.compression = PNG_ITXT_COMPRESSION_NONE;
    chunk.key = const_cast<char*>(key.c_str());  // libpng copies it
    chunk.text = value.data();
  }
  return chunks;
}

class Writer {
 public:
  explicit Writer(std::function<void(const void* bytes, size_t size)> write) {
    output_.write = std::move(write);
    png_ = png_create_write_struct(PNG_LIBPNG_VER_STRING, &message_, OnPngError, OnPngWarning);
    if (png_) info_ = png_create_info_struct(png_);
    if (!info_) {
      png_destroy_write_struct(&png_, nullptr);
      Fail(ErrorKind::kOutOfMemory, "not enough memory to write a PNG picture");
    }
  }
  ~Writer() { png_destroy_write_struct(&png_, &info_); }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void Write(const Image& image, std::map<std::string, std::string> texts) {
    const std::vector<png_text> text = ChunksOf(texts);
    const bool written = ReturnsFrom(png_jmpbuf(png_), [&] {
      png_set_write_fn(png_, &output_, OnWrite, OnFlush);
      png_set_user_limits(png_, kMaxSide, kMaxSide);
      png_set_IHDR(png_, info_, static_cast<png_uint_32>(image.width), static_cast<png_uint_32>(image.height),
                   8, image.has_alpha() ? PNG_COLOR_TYPE_RGB_ALPHA : PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
                   PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
      png_set_text(png_, info_, text.data(), static_cast<int>(text.size()));
      png_write_info(png_, info_);
      for (int64_t y = 0; y < image.height; ++y)
        png_write_row(png_, image.pixels.data() + y * image.width * image.channels);
      png_write_end(png_, info_);
    });
    if (!written) {
      if (output_.exception) std::rethrow_exception(output_.exception);
      Fail(ErrorKind::kInternal, "libpng refuses the picture: {}", Printable(message_.text));
    }
  }

 private:
  PngMessage message_;
  Output output_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

}  // namespace

void WritePng(const std::filesystem::path& path, const Image& image,
              const std::map<std::string, std::string>& text) {
  CheckPicture(image, kMaxSide);
  OutputFile file(path);
  Writer([&](const void* bytes, size_t size) { file.Write(bytes, size); }).Write(image, text);
  file.Commit();
}

std::string EncodePng(const Image& image, const std::map<std::string, std::string>& text) {
  CheckPicture(image, kMaxSide);
  std::string png;
  Writer([&](const void* bytes, size_t size) {
    png.append(static_cast<const char*>(bytes), size);
  }).Write(image, text);
  return png;
}

}  // namespace qwen_image
