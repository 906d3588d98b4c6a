#include <webp/encode.h>

#include <string_view>
#include <utility>

#include "core/fail.h"
#include "files/webp.h"

namespace qwen_image {
namespace {

struct EncodedWebp {
  EncodedWebp() { WebPMemoryWriterInit(&writer); }
  ~EncodedWebp() { WebPMemoryWriterClear(&writer); }
  EncodedWebp(const EncodedWebp&) = delete;
  EncodedWebp& operator=(const EncodedWebp&) = delete;
  std::string_view bytes() const { return {reinterpret_cast<const char*>(writer.mem), writer.size}; }
  WebPMemoryWriter writer;
};

class WebpSource {
 public:
  explicit WebpSource(const Image& image, bool lossless) {
    if (!WebPPictureInit(&picture_)) Fail(ErrorKind::kInternal, "libwebp is of another version");
    picture_.use_argb = lossless;
    picture_.width = static_cast<int>(image.width);
    picture_.height = static_cast<int>(image.height);
    const auto import = image.has_alpha() ? WebPPictureImportRGBA : WebPPictureImportRGB;
    if (!import(&picture_, image.pixels.data(), static_cast<int>(image.width * image.channels))) {
      WebPPictureFree(&picture_);
      Fail(ErrorKind::kOutOfMemory, "not enough memory to write a WebP picture");
    }
  }
  ~WebpSource() { WebPPictureFree(&picture_); }
  WebpSource(const WebpSource&) = delete;
  WebpSource& operator=(const WebpSource&) = delete;
  WebPPicture& picture() { return picture_; }

 private:
  WebPPicture picture_;
};

void AppendNumber(std::string& bytes, uint64_t value, int size) {
  for (int i = 0; i < size; ++i) bytes += static_cast<char>(value >> 8 * i & 0xff);
}

void AppendChunk(std::string& bytes, std::string_view name, std::string_view data) {
  if (data.empty()) return;
  bytes += name;
  AppendNumber(bytes, data.size(), 4);
  bytes += data;
  if (data.size() % 2 != 0) bytes += '\0';
}

// The encoder's file without its outermost header and without "VP8X", the header of extended files.
std::string_view ChunksOfPixels(std::string_view webp) {
  constexpr size_t kHeader = 12, kExtended = 18;
  webp.remove_prefix(kHeader);
  if (webp.starts_with("VP8X")) webp.remove_prefix(kExtended);
  return webp;
}

// libwebp writes the pixels; its part that adds metadata is a library of its own.
std::string WithMetadata(std::string_view webp, const Image& image, const PictureMetadata& metadata) {
  constexpr int kAlpha = 0x10, kExif = 0x08, kXmp = 0x04;
  const int flags = (image.has_alpha() ? kAlpha : 0) | (metadata.exif.empty() ? 0 : kExif) |
                    (metadata.xmp.empty() ? 0 : kXmp);
  std::string extended;
  AppendNumber(extended, static_cast<uint64_t>(flags), 4);
  AppendNumber(extended, static_cast<uint64_t>(image.width - 1), 3);
  AppendNumber(extended, static_cast<uint64_t>(image.height - 1), 3);
  std::string chunks = "WEBP";
  AppendChunk(chunks, "VP8X", extended);
  chunks += ChunksOfPixels(webp);
  AppendChunk(chunks, "EXIF", metadata.exif);
  AppendChunk(chunks, "XMP ", metadata.xmp);
  std::string file;
  AppendChunk(file, "RIFF", chunks);
  return file;
}

}  // namespace

std::string EncodeWebp(const Image& image, int quality, const PictureMetadata& metadata) {
  constexpr int64_t kMaxSide = WEBP_MAX_DIMENSION;
  CheckPicture(image, kMaxSide);
  WebPConfig config;
  if (!WebPConfigInit(&config)) Fail(ErrorKind::kInternal, "libwebp is of another version");
  config.lossless = quality == 100;
  config.exact = 1;  // the colours of transparent parts, too
  // Of lossless pictures it is how long the encoder tries.
  config.quality = config.lossless ? 75 : static_cast<float>(quality);
  WebpSource source(image, config.lossless);
  EncodedWebp encoded;
  source.picture().writer = WebPMemoryWrite;
  source.picture().custom_ptr = &encoded.writer;
  if (!WebPEncode(&config, &source.picture()))
    Fail(ErrorKind::kOutOfMemory, "the WebP picture cannot be written: libwebp's error {}",
         static_cast<int>(source.picture().error_code));
  return WithMetadata(encoded.bytes(), image, metadata);
}

}  // namespace qwen_image
