#include "files/webp.h"

#include <webp/decode.h>
#include <webp/demux.h>

#include <cstdint>
#include <memory>

#include "core/fail.h"

namespace qwen_image {
namespace {

[[noreturn]] void Refuse(VP8StatusCode status, const std::string& where) {
  if (status == VP8_STATUS_OUT_OF_MEMORY)
    Fail(ErrorKind::kOutOfMemory, "not enough memory to read {}", where);
  Fail(ErrorKind::kBadInput, "{} is a broken WebP picture: {}", where,
       status == VP8_STATUS_NOT_ENOUGH_DATA       ? "the file ends too early; it may be incomplete"
       : status == VP8_STATUS_UNSUPPORTED_FEATURE ? "it uses a feature that is not known"
                                                  : "its data makes no sense");
}

const uint8_t* Data(std::string_view bytes) { return reinterpret_cast<const uint8_t*>(bytes.data()); }

struct DeleteDemuxer {
  void operator()(WebPDemuxer* demuxer) const { WebPDemuxDelete(demuxer); }
};
using Demuxer = std::unique_ptr<WebPDemuxer, DeleteDemuxer>;

class Frame {
 public:
  Frame(const Demuxer& demuxer, const std::string& where) {
    if (!WebPDemuxGetFrame(demuxer.get(), 1, &frame_)) Refuse(VP8_STATUS_BITSTREAM_ERROR, where);
  }
  ~Frame() { WebPDemuxReleaseIterator(&frame_); }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;
  const WebPIterator* operator->() const { return &frame_; }

 private:
  WebPIterator frame_{};
};

std::string Chunk(const Demuxer& demuxer, const char* name) {
  WebPChunkIterator chunk{};
  std::string bytes;
  if (WebPDemuxGetChunk(demuxer.get(), name, 1, &chunk))
    bytes.assign(reinterpret_cast<const char*>(chunk.chunk.bytes), chunk.chunk.size);
  WebPDemuxReleaseChunkIterator(&chunk);
  return bytes;
}

// Into its place on the canvas, which is zero around it.
void DecodeFrame(const Frame& frame, DecodedImage& image, const std::string& where) {
  WebPDecoderConfig config;
  if (!WebPInitDecoderConfig(&config)) Fail(ErrorKind::kInternal, "libwebp is of another version");
  const int64_t x = frame->x_offset, y = frame->y_offset;
  VP8StatusCode status = WebPGetFeatures(frame->fragment.bytes, frame->fragment.size, &config.input);
  if (status != VP8_STATUS_OK) Refuse(status, where);
  if (x < 0 || y < 0 || x + config.input.width > image.width || y + config.input.height > image.height)
    Fail(ErrorKind::kBadInput, "{} is a broken WebP picture: a part of it lies outside of it", where);
  const size_t start = static_cast<size_t>((y * image.width + x) * image.channels);
  config.output.colorspace = image.channels == 4 ? MODE_RGBA : MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA = {.rgba = image.pixels.data() + start,
                          .stride = static_cast<int>(image.width * image.channels),
                          .size = image.pixels.size() - start};
  status = WebPDecode(frame->fragment.bytes, frame->fragment.size, &config);
  WebPFreeDecBuffer(&config.output);
  if (status != VP8_STATUS_OK) Refuse(status, where);
}

}  // namespace

DecodedImage DecodeWebp(std::string_view bytes, const std::string& where, const ImageLimits& limits) {
  WebPBitstreamFeatures features;
  const VP8StatusCode status = WebPGetFeatures(Data(bytes), bytes.size(), &features);
  if (status != VP8_STATUS_OK) Refuse(status, where);
  CheckImageSize(where, "WebP", features.width, features.height, limits);
  const WebPData data{Data(bytes), bytes.size()};
  WebPDemuxState state = WEBP_DEMUX_PARSE_ERROR;
  const Demuxer demuxer(WebPDemuxPartial(&data, &state));
  if (!demuxer || state != WEBP_DEMUX_DONE) {
    Refuse(state == WEBP_DEMUX_PARSE_ERROR ? VP8_STATUS_BITSTREAM_ERROR : VP8_STATUS_NOT_ENOUGH_DATA, where);
  }
  const bool transparent = WebPDemuxGetI(demuxer.get(), WEBP_FF_FORMAT_FLAGS) & ALPHA_FLAG;
  DecodedImage image{.width = WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH),
                     .height = WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT),
                     .channels = transparent ? 4 : 3,
                     .exif = Chunk(demuxer, "EXIF"),
                     .xmp = Chunk(demuxer, "XMP ")};
  CheckImageSize(where, "WebP", image.width, image.height, limits);
  const Frame frame(demuxer, where);
  image.pixels.resize(static_cast<size_t>(image.width * image.height * image.channels));
  DecodeFrame(frame, image, where);
  if (WebPDemuxGetI(demuxer.get(), WEBP_FF_FRAME_COUNT) > 1)
    image.notes.emplace_back("an animation: its first picture is used");
  return image;
}

}  // namespace qwen_image
