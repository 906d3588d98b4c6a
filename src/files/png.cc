#include "files/png.h"

#include <png.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>

#include "core/fail.h"
#include "files/deflate.h"
#include "files/longjmp.h"
#include "files/mmap.h"
#include "files/png_calls.h"
#include "files/text.h"

namespace qwen_image {
namespace {

// For the text of one chunk once unpacked, and for the number of chunks: together they bound the memory.
constexpr png_alloc_size_t kMaxPngText = 4 << 20;
constexpr png_uint_32 kMaxChunks = 64;
// Packed data that may follow the last pixel. Honest files have the four bytes of a checksum there; libpng
// unpacks whatever it finds, and a megabyte is a gigabyte once unpacked.
constexpr size_t kMaxBehindPixels = 8 << 10;

void OnRead(png_structp png, png_bytep to, size_t size) {
  std::string_view& input = *static_cast<std::string_view*>(png_get_io_ptr(png));
  if (size > input.size()) png_error(png, "the file ends too early; it may be incomplete");
  std::memcpy(to, input.data(), size);
  input.remove_prefix(size);
}

class Reader {
 public:
  Reader(std::string_view bytes, const std::string& where) : where_(where) {
    input_ = bytes;
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &message_, OnPngError, OnPngWarning);
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
    if (!ReturnsFrom(png_jmpbuf(png_), calls)) {
      Fail(ErrorKind::kBadInput, "{} is a broken PNG picture: {}", where_, Printable(message_.text));
    }
  }
  png_structp png() { return png_; }
  png_infop info() { return info_; }
  size_t left() const { return input_.size(); }  // bytes that are not read yet
  // Reads all that precedes the pixels. Only inside Call().
  void Begin() {
    png_set_chunk_malloc_max(png_, kMaxPngText);
    png_set_chunk_cache_max(png_, kMaxChunks);
    png_set_read_fn(png_, &input_, OnRead);
    png_set_crc_action(png_, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
    png_read_info(png_, info_);
  }

 private:
  PngMessage message_;
  std::string_view input_;  // what is not read yet
  const std::string& where_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

int64_t ReadBigEndian(std::string_view bytes, size_t at) {
  int64_t value = 0;
  for (const char byte : bytes.substr(at, 4)) value = value << 8 | static_cast<uint8_t>(byte);
  return value;
}

struct Chunks {
  bool animated = false;
  size_t behind_pixels = 0;  // bytes behind the chunks with the pixels
  std::string_view exif;
};

// libpng allocates what a chunk claims to hold, up to 2 GB, before it finds that the file has less.
Chunks CheckChunks(std::string_view bytes, const std::string& where) {
  constexpr size_t kAround = 12;  // length, name and checksum
  Chunks chunks;
  std::string_view name;
  for (size_t at = 8; name != "IEND";) {
    const size_t left = bytes.size() - at;
    const auto length = left < kAround ? 0 : static_cast<size_t>(ReadBigEndian(bytes, at));
    if (left < kAround || length > left - kAround)
      Fail(ErrorKind::kBadInput, "{} is a broken PNG picture: it ends too early", where);
    name = bytes.substr(at + 4, 4);
    if (name == "acTL") chunks.animated = true;
    if (name == "eXIf") chunks.exif = bytes.substr(at + 8, length);
    at += kAround + length;
    if (name == "IDAT") chunks.behind_pixels = bytes.size() - at;
  }
  return chunks;
}

struct Header {
  int64_t width = 0;
  int64_t height = 0;
  int64_t bits = 0;  // per channel
  Chunks chunks;
};

// Reads the picture's size before libpng does, to refuse what is too large with its size in the message.
Header CheckHeader(std::string_view bytes, const std::string& where, const ImageLimits& limits) {
  constexpr std::string_view kSignature = "\x89PNG\r\n\x1a\n";
  if (!bytes.starts_with(kSignature)) Fail(ErrorKind::kBadInput, "{} is not a PNG picture", where);
  if (bytes.size() < 33 || bytes.substr(12, 4) != "IHDR") {
    Fail(ErrorKind::kBadInput, "{} is a broken PNG picture: it has no header; it may be incomplete", where);
  }
  Header header{ReadBigEndian(bytes, 16), ReadBigEndian(bytes, 20), static_cast<uint8_t>(bytes[24])};
  CheckImageSize(where, "PNG", header.width, header.height, limits);
  const uint8_t color_type = static_cast<uint8_t>(bytes[25]);
  const int64_t channels = color_type == PNG_COLOR_TYPE_RGB          ? 3
                           : color_type == PNG_COLOR_TYPE_RGB_ALPHA  ? 4
                           : color_type == PNG_COLOR_TYPE_GRAY_ALPHA ? 2
                                                                     : 1;
  const auto unpacked = static_cast<uint64_t>(header.height * (header.width * channels * header.bits / 8));
  if (unpacked / kMaxDeflateRatio > bytes.size()) {
    Fail(ErrorKind::kBadInput,
         "{} has {} bytes, too few for the {} x {} pixels it claims; it may be incomplete", where,
         bytes.size(), header.width, header.height);
  }
  header.chunks = CheckChunks(bytes, where);
  return header;
}

// Brings every kind of PNG to 8-bit RGB, or RGBA if it can be transparent.
void SetConversions(png_structp png) {
  png_set_expand(png);    // palettes, 1 to 4 bits, and transparency as an alpha channel
  png_set_strip_16(png);  // the high byte, as Pillow does for colours (its 16-bit greys are clipped to white)
  png_set_gray_to_rgb(png);
}

// Reads all rows, each to where `row_at` says, and what stands behind them. With the last row libpng unpacks
// whatever follows it, so how much that can be is checked before.
template <typename RowAt>
void ReadRows(const Header& header, const std::string& where, Reader& reader, const RowAt& row_at) {
  png_structp png = reader.png();
  reader.Call([&] {
    const int passes = png_set_interlace_handling(png);
    for (int64_t i = 0; i + 1 < passes * header.height; ++i)
      png_read_row(png, row_at(i % header.height), nullptr);
  });
  const size_t allowed =
      header.chunks.behind_pixels + png_get_rowbytes(png, reader.info()) + kMaxBehindPixels;
  if (reader.left() > allowed) {
    Fail(ErrorKind::kBadInput,
         "{} is a broken PNG picture: behind its {} x {} pixels there is more packed data", where,
         header.width, header.height);
  }
  reader.Call([&] {
    png_read_row(png, row_at(header.height - 1), nullptr);
    png_read_end(png, reader.info());
  });
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

std::map<std::string, std::string> Texts(Reader& reader) {
  png_textp chunks = nullptr;
  int count = 0;
  reader.Call([&] { png_get_text(reader.png(), reader.info(), &chunks, &count); });
  std::map<std::string, std::string> texts;
  for (const png_text& chunk : std::span(chunks, static_cast<size_t>(count))) {
    const bool international = chunk.compression >= PNG_ITXT_COMPRESSION_NONE;
    std::string text(chunk.text ? chunk.text : "",
                     chunk.text ? (international ? chunk.itxt_length : chunk.text_length) : 0);
    // iTXt is UTF-8, the older kinds are Latin-1; callers may rely on UTF-8.
    if (!international || !IsUtf8(text)) text = FromLatin1(text);
    texts.emplace(FromLatin1(chunk.key), std::move(text));
  }
  return texts;
}

// ImageMagick's: a new line, "exif", the size, then hexadecimal digits in lines.
std::string FromRawProfile(std::string_view text) {
  for (int line = 0; line < 3; ++line) text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
  };
  std::string bytes;
  int high = -1;
  for (const char c : text) {
    if (c == '\n') continue;
    const int value = digit(c);
    if (value < 0) break;
    if (high >= 0) bytes += static_cast<char>(high * 16 + value);
    high = high >= 0 ? -1 : value;
  }
  return bytes;
}

void AddMetadata(const Header& header, Reader& reader, DecodedImage& image) {
  const std::map<std::string, std::string> texts = Texts(reader);
  if (const auto xmp = texts.find("XML:com.adobe.xmp"); xmp != texts.end()) image.xmp = xmp->second;
  image.exif = header.chunks.exif;
  if (const auto raw = texts.find("Raw profile type exif"); image.exif.empty() && raw != texts.end())
    image.exif = FromRawProfile(raw->second);
  if (header.bits == 16) image.notes.emplace_back("16 bits per channel, reduced to 8");
  if (header.chunks.animated) image.notes.emplace_back("an animation: its first picture is used");
}

}  // namespace

DecodedImage DecodePng(std::string_view bytes, const std::string& where, const ImageLimits& limits) {
  const Header header = CheckHeader(bytes, where, limits);
  Reader reader(bytes, where);
  DecodedImage image{.width = header.width, .height = header.height};
  reader.Call([&reader, &image] {
    reader.Begin();
    SetConversions(reader.png());
    png_set_interlace_handling(reader.png());
    png_read_update_info(reader.png(), reader.info());
    image.channels = png_get_channels(reader.png(), reader.info());
  });
  const size_t stride = static_cast<size_t>(image.width * image.channels);
  if (image.channels < 3 || png_get_rowbytes(reader.png(), reader.info()) != stride) {
    Fail(ErrorKind::kBadInput, "{} is a PNG picture of an unknown kind", where);
  }
  image.pixels.resize(stride * static_cast<size_t>(header.height));
  ReadRows(header, where, reader,
           [&](int64_t y) { return image.pixels.data() + static_cast<size_t>(y) * stride; });
  AddMetadata(header, reader, image);
  return image;
}

Image ReadPng(const std::filesystem::path& path, Transparency transparency) {
  const MappedFile file(path);
  DecodedImage image = DecodePng(file.text(), path.string(), {});
  file.ThrowIfDamaged();
  return PixelsOf(std::move(image), transparency);
}

std::map<std::string, std::string> DecodePngText(std::string_view bytes, const std::string& where) {
  const Header header = CheckHeader(bytes, where, {});
  Reader reader(bytes, where);
  reader.Call([&] {
    reader.Begin();
    png_set_interlace_handling(reader.png());
    png_start_read_image(reader.png());
  });
  // The pixels are unpacked and dropped: what stands behind them is found by nothing else.
  ReadRows(header, where, reader, [](int64_t) { return nullptr; });
  return Texts(reader);
}

std::map<std::string, std::string> ReadPngText(const std::filesystem::path& path) {
  const MappedFile file(path);
  std::map<std::string, std::string> texts = DecodePngText(file.text(), path.string());
  file.ThrowIfDamaged();
  return texts;
}

}  // namespace qwen_image
