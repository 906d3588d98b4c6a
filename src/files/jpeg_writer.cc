#include <cstdio>
// libjpeg's header wants <cstdio> before it.
#include <jpeglib.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "core/fail.h"
#include "files/colour.h"
#include "files/jpeg.h"
#include "files/longjmp.h"
#include "files/text.h"

namespace qwen_image {
namespace {

using namespace std::string_view_literals;  // for bytes with NULs in them

constexpr size_t kMaxSegment = 65533;

struct EncoderContext {
  jpeg_error_mgr errors;
  std::jmp_buf jump;
  char error[JMSG_LENGTH_MAX] = "";
};

void OnEncoderError(j_common_ptr info) {
  EncoderContext& context = *static_cast<EncoderContext*>(info->client_data);
  info->err->format_message(info, context.error);
  std::longjmp(context.jump, 1);
}

void OnEncoderMessage(j_common_ptr, int) {}
void OnEncoderOutput(j_common_ptr) {}  // the library never prints

// Only inside Call(). Long data goes on in further segments, each with the name before it.
void WriteSegments(jpeg_compress_struct& info, std::string_view name, std::string_view data) {
  const size_t most = kMaxSegment - name.size();
  while (!data.empty()) {
    const std::string_view piece = data.substr(0, most);
    jpeg_write_m_header(&info, JPEG_APP0 + 1, static_cast<unsigned>(name.size() + piece.size()));
    for (const char byte : name) jpeg_write_m_byte(&info, static_cast<uint8_t>(byte));
    for (const char byte : piece) jpeg_write_m_byte(&info, static_cast<uint8_t>(byte));
    data.remove_prefix(piece.size());
  }
}

class JpegEncoder {
 public:
  JpegEncoder() {
    info_.err = jpeg_std_error(&context_.errors);
    context_.errors.error_exit = OnEncoderError;
    context_.errors.emit_message = OnEncoderMessage;
    context_.errors.output_message = OnEncoderOutput;
    info_.client_data = &context_;
    Call([this] { jpeg_create_compress(&info_); });
  }
  ~JpegEncoder() {
    jpeg_destroy_compress(&info_);
    std::free(bytes_);
  }
  JpegEncoder(const JpegEncoder&) = delete;
  JpegEncoder& operator=(const JpegEncoder&) = delete;

  std::string Write(const Image& image, int quality, const PictureMetadata& metadata) {
    Call([this, &image, quality, &metadata] {
      jpeg_mem_dest(&info_, &bytes_, &size_);
      info_.image_width = static_cast<JDIMENSION>(image.width);
      info_.image_height = static_cast<JDIMENSION>(image.height);
      info_.input_components = 3;
      info_.in_color_space = JCS_RGB;
      jpeg_set_defaults(&info_);
      jpeg_set_quality(&info_, quality, TRUE);
      info_.optimize_coding = TRUE;
      if (quality >= kFullColours) info_.comp_info[0].h_samp_factor = info_.comp_info[0].v_samp_factor = 1;
      jpeg_start_compress(&info_, TRUE);
      WriteSegments(info_, "Exif\0\0"sv, metadata.exif);
      WriteSegments(info_, "http://ns.adobe.com/xap/1.0/\0"sv, metadata.xmp);
      while (info_.next_scanline < info_.image_height) {
        auto* row =
            const_cast<uint8_t*>(image.pixels.data() + int64_t{info_.next_scanline} * image.width * 3);
        jpeg_write_scanlines(&info_, &row, 1);
      }
      jpeg_finish_compress(&info_);
    });
    return {reinterpret_cast<const char*>(bytes_), size_};
  }

 private:
  static constexpr int kFullColours = 90;

  template <typename Calls>
  void Call(const Calls& calls) {
    if (!ReturnsFrom(context_.jump, calls))
      Fail(ErrorKind::kOutOfMemory, "the JPEG picture cannot be written: {}", Printable(context_.error));
  }

  EncoderContext context_;
  jpeg_compress_struct info_{};
  unsigned char* bytes_ = nullptr;  // libjpeg's, by malloc
  unsigned long size_ = 0;          // NOLINT: the type is libjpeg's
};

}  // namespace

std::string EncodeJpeg(const Image& image, int quality, const PictureMetadata& metadata) {
  constexpr int64_t kMaxSide = 65500;
  CheckPicture(image, kMaxSide);
  if (image.has_alpha()) return JpegEncoder().Write(Flatten(image), quality, metadata);
  return JpegEncoder().Write(image, quality, metadata);
}

}  // namespace qwen_image
