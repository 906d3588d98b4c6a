#include "files/png.h"

#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <exception>
#include <functional>
#include <span>
#include <string_view>
#include <type_traits>

#include "core/fail.h"
#include "files/mmap.h"
#include "files/output_file.h"
#include "files/text.h"

namespace qwen_image {
namespace {

constexpr int64_t kMaxSide = 16384;
constexpr int64_t kMaxPixels = 100'000'000;
// For the text of one chunk once unpacked, and for the number of chunks: together they bound the memory.
constexpr png_alloc_size_t kMaxTextBytes = 4 << 20;
constexpr png_uint_32 kMaxChunks = 64;
constexpr uint64_t kMaxDeflateRatio = 1032;  // zlib cannot pack tighter

// What libpng's callbacks reach through their pointers.
struct Context {
  char message[200] = "";            // of the last error
  std::span<const std::byte> input;  // what is not read yet
  std::function<void(const void* bytes, size_t size)> write;
  std::exception_ptr exception;  // thrown by `write`
};

[[noreturn]] void OnError(png_structp png, png_const_charp message) {
  Context& context = *static_cast<Context*>(png_get_error_ptr(png));
  std::strncpy(context.message, message, sizeof(context.message) - 1);
  png_longjmp(png, 1);
}

void OnWarning(png_structp, png_const_charp) {}  // the library never prints

void OnRead(png_structp png, png_bytep to, size_t size) {
  Context& context = *static_cast<Context*>(png_get_io_ptr(png));
  if (size > context.input.size()) png_error(png, "the file ends too early; it may be incomplete");
  std::memcpy(to, context.input.data(), size);
  context.input = context.input.subspan(size);
}

void OnWrite(png_structp png, png_bytep from, size_t size) {
  Context& context = *static_cast<Context*>(png_get_io_ptr(png));
  try {
    context.write(from, size);
    return;
  } catch (...) {  // an exception must not cross libpng's C code
    context.exception = std::current_exception();
  }
  png_error(png, "cannot write");
}

void OnFlush(png_structp) {}

// libpng reports errors with longjmp, which skips destructors. So its functions are called only inside
// Guarded(), by a lambda that has no objects with destructors: then nothing is skipped, and the jump ends in
// this frame. Not inlined, so that the caller's variables are not kept in registers that the jump restores.
template <typename Calls>
[[gnu::noinline]] bool Guarded(png_structp png, const Calls& calls) {
  static_assert(std::is_trivially_destructible_v<Calls>);
  if (setjmp(png_jmpbuf(png))) return false;
  calls();
  return true;
}

class Reader {
 public:
  Reader(std::span<const std::byte> bytes, const std::string& where) : where_(where) {
    context_.input = bytes;
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &context_, OnError, OnWarning);
    if (png_) info_ = png_create_info_struct(png_);
    if (!info_) {
      png_destroy_read_struct(&png_, nullptr, nullptr);
      Fail(ErrorKind::kOutOfMemory, "not enough memory to read {}", where_);
    }
  }
  ~Reader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  template <typename Calls>
  void Call(const Calls& calls) {
    if (!Guarded(png_, calls)) {
      Fail(ErrorKind::kBadInput, "{} is a broken PNG picture: {}", where_, Printable(context_.message));
    }
  }
  png_structp png() { return png_; }
  png_infop info() { return info_; }
  // Reads all that precedes the pixels. Only inside Call().
  void Begin() {
    png_set_read_fn(png_, &context_, OnRead);
    png_set_crc_action(png_, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
    png_read_info(png_, info_);
  }

 private:
  Context context_;
  const std::string& where_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

struct Header {
  int64_t width = 0;
  int64_t height = 0;
};

int64_t ReadBigEndian(std::span<const std::byte> bytes, size_t at) {
  int64_t value = 0;
  for (const std::byte byte : bytes.subspan(at, 4)) value = value << 8 | std::to_integer<int64_t>(byte);
  return value;
}

// libpng allocates what a chunk claims to hold, up to 2 GB, before it finds that the file has less.
void CheckChunks(std::span<const std::byte> bytes, const std::string& where) {
  constexpr size_t kAround = 12;  // length, name and checksum
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::string_view name;
  for (size_t at = 8; name != "IEND";) {
    const size_t left = bytes.size() - at;
    const auto length = left < kAround ? 0 : static_cast<size_t>(ReadBigEndian(bytes, at));
    if (left < kAround || length > left - kAround)
      Fail(ErrorKind::kBadInput, "{} is a broken PNG picture: it ends too early", where);
    name = text.substr(at + 4, 4);
    at += kAround + length;
  }
}

// Reads the picture's size before libpng does, to refuse what is too large with its size in the message.
Header CheckHeader(std::span<const std::byte> bytes, const std::string& where) {
  constexpr std::string_view kSignature = "\x89PNG\r\n\x1a\n";
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(kSignature)) Fail(ErrorKind::kBadInput, "{} is not a PNG picture", where);
  if (text.size() < 33 || text.substr(12, 4) != "IHDR") {
    Fail(ErrorKind::kBadInput, "{} is a broken PNG picture: it has no header; it may be incomplete", where);
  }
  const Header header{ReadBigEndian(bytes, 16), ReadBigEndian(bytes, 20)};
  if (header.width < 1 || header.height < 1 || header.width > kMaxSide || header.height > kMaxSide ||
      header.width * header.height > kMaxPixels) {
    Fail(ErrorKind::kBadInput,
         "{} is a PNG picture of {} x {} pixels; 1 to {} a side and {} in all are accepted", where,
         header.width, header.height, kMaxSide, kMaxPixels);
  }
  const auto depth = std::to_integer<int64_t>(bytes[24]), color_type = std::to_integer<int64_t>(bytes[25]);
  const int64_t channels = color_type == PNG_COLOR_TYPE_RGB          ? 3
                           : color_type == PNG_COLOR_TYPE_RGB_ALPHA  ? 4
                           : color_type == PNG_COLOR_TYPE_GRAY_ALPHA ? 2
                                                                     : 1;
  const uint64_t unpacked = static_cast<uint64_t>(header.height * (header.width * channels * depth / 8));
  if (unpacked / kMaxDeflateRatio > bytes.size()) {
    Fail(ErrorKind::kBadInput,
         "{} has {} bytes, too few for the {} x {} pixels it claims; it may be incomplete", where,
         bytes.size(), header.width, header.height);
  }
  CheckChunks(bytes, where);
  return header;
}

// Brings every kind of PNG to 8-bit RGBA.
void SetConversions(png_structp png) {
  png_set_expand(png);    // palettes, 1 to 4 bits, and transparency as an alpha channel
  png_set_strip_16(png);  // the high byte, as Pillow does
  png_set_gray_to_rgb(png);
  png_set_add_alpha(png, 0xff, PNG_FILLER_AFTER);
}

uint8_t OnWhite(uint8_t value, uint8_t alpha) {
  return static_cast<uint8_t>((value * alpha + 255 * (255 - alpha) + 127) / 255);
}

std::string FromLatin1(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const uint8_t byte = static_cast<uint8_t>(c);
    if (byte < 0x80) {
      result += c;
    } else {
      result += static_cast<char>(0xc0 | byte >> 6);
      result += static_cast<char>(0x80 | (byte & 0x3f));
    }
  }
  return result;
}

class Writer {
 public:
  explicit Writer(std::function<void(const void* bytes, size_t size)> write) {
    context_.write = std::move(write);
    png_ = png_create_write_struct(PNG_LIBPNG_VER_STRING, &context_, OnError, OnWarning);
    if (png_) info_ = png_create_info_struct(png_);
    if (!info_) {
      png_destroy_write_struct(&png_, nullptr);
      Fail(ErrorKind::kOutOfMemory, "not enough memory to write a PNG picture");
    }
  }
  ~Writer() { png_destroy_write_struct(&png_, &info_); }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void Write(const RgbImage& image, std::span<const png_text> text) {
    const bool written = Guarded(png_, [&] {
      png_set_write_fn(png_, &context_, OnWrite, OnFlush);
      png_set_user_limits(png_, kMaxSide, kMaxSide);
      png_set_IHDR(png_, info_, static_cast<png_uint_32>(image.width), static_cast<png_uint_32>(image.height),
                   8, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                   PNG_FILTER_TYPE_DEFAULT);
      png_set_text(png_, info_, text.data(), static_cast<int>(text.size()));
      png_write_info(png_, info_);
      for (int64_t y = 0; y < image.height; ++y)
        png_write_row(png_, image.pixels.data() + y * image.width * 3);
      png_write_end(png_, info_);
    });
    if (!written) {
      if (context_.exception) std::rethrow_exception(context_.exception);
      Fail(ErrorKind::kInternal, "libpng refuses the picture: {}", Printable(context_.message));
    }
  }

 private:
  Context context_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

void CheckPicture(const RgbImage& image) {
  if (image.width < 1 || image.height < 1 || image.width > kMaxSide || image.height > kMaxSide ||
      image.pixels.size() != static_cast<size_t>(image.width * image.height * 3)) {
    Fail(ErrorKind::kInternal, "a picture of {} x {} with {} bytes cannot be written", image.width,
         image.height, image.pixels.size());
  }
}

}  // namespace

void WritePng(const std::filesystem::path& path, const RgbImage& image,
              const std::map<std::string, std::string>& text) {
  CheckPicture(image);
  std::map<std::string, std::string> texts = text;
  std::vector<png_text> chunks;
  for (auto& [key, value] : texts) {
    const auto is_plain = [](char c) { return c > ' ' && c <= '~'; };
    if (key.empty() || key.size() > 79 || !std::all_of(key.begin(), key.end(), is_plain)) {
      Fail(ErrorKind::kInternal, "{} cannot be a keyword of a PNG picture", Quoted(key));
    }
    // PNG ends a text at a NUL. A picture that took an hour is not thrown away for one in the prompt.
    for (size_t at = 0; (at = value.find('\0', at)) != value.npos;) value.replace(at, 1, "\uFFFD");
    png_text& chunk = chunks.emplace_back();
    chunk.compression = PNG_ITXT_COMPRESSION_NONE;
    chunk.key = const_cast<char*>(key.c_str());  // libpng copies it
    chunk.text = value.data();
  }
  OutputFile file(path);
  Writer([&](const void* bytes, size_t size) { file.Write(bytes, size); }).Write(image, chunks);
  file.Commit();
}

std::string EncodePng(const RgbImage& image) {
  CheckPicture(image);
  std::string png;
  Writer([&](const void* bytes, size_t size) {
    png.append(static_cast<const char*>(bytes), size);
  }).Write(image, {});
  return png;
}

RgbImage ReadPng(const std::filesystem::path& path) {
  const MappedFile file(path);
  const std::string where = path.string();
  const Header header = CheckHeader(file.bytes(), where);
  Reader reader(file.bytes(), where);
  reader.Call([&reader] {
    reader.Begin();
    SetConversions(reader.png());
    png_set_interlace_handling(reader.png());
    png_read_update_info(reader.png(), reader.info());
  });
  const size_t stride = static_cast<size_t>(header.width) * 4;
  if (png_get_rowbytes(reader.png(), reader.info()) != stride) {
    Fail(ErrorKind::kBadInput, "{} is a PNG picture of an unknown kind", where);
  }
  const size_t height = static_cast<size_t>(header.height);
  std::vector<uint8_t> rgba(stride * height);
  std::vector<png_bytep> rows(height);
  for (size_t y = 0; y < height; ++y) rows[y] = rgba.data() + y * stride;
  reader.Call([&reader, &rows] {
    png_read_image(reader.png(), rows.data());
    png_read_end(reader.png(), nullptr);
  });
  RgbImage image{header.width, header.height, std::vector<uint8_t>(rgba.size() / 4 * 3)};
  for (size_t i = 0; i < rgba.size() / 4; ++i) {
    for (size_t c = 0; c < 3; ++c) image.pixels[i * 3 + c] = OnWhite(rgba[i * 4 + c], rgba[i * 4 + 3]);
  }
  file.ThrowIfDamaged();
  return image;
}

std::map<std::string, std::string> ReadPngText(const std::filesystem::path& path) {
  const MappedFile file(path);
  const std::string where = path.string();
  CheckHeader(file.bytes(), where);
  Reader reader(file.bytes(), where);
  png_textp chunks = nullptr;
  int count = 0;
  reader.Call([&] {
    png_set_chunk_malloc_max(reader.png(), kMaxTextBytes);
    png_set_chunk_cache_max(reader.png(), kMaxChunks);
    reader.Begin();
    // Unpacks the pixels and drops them: without this call libpng would take them for the next chunks.
    png_start_read_image(reader.png());
    png_read_end(reader.png(), reader.info());
    png_get_text(reader.png(), reader.info(), &chunks, &count);
  });
  std::map<std::string, std::string> texts;
  for (const png_text& chunk : std::span(chunks, static_cast<size_t>(count))) {
    const bool international = chunk.compression >= PNG_ITXT_COMPRESSION_NONE;
    std::string text(chunk.text ? chunk.text : "",
                     chunk.text ? (international ? chunk.itxt_length : chunk.text_length) : 0);
    // iTXt is UTF-8, the older kinds are Latin-1; callers may rely on UTF-8.
    if (!international || !IsUtf8(text)) text = FromLatin1(text);
    texts.emplace(FromLatin1(chunk.key), std::move(text));
  }
  file.ThrowIfDamaged();
  return texts;
}

}  // namespace qwen_image
