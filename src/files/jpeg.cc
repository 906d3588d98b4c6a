#include "files/jpeg.h"

#include <cstdio>
// libjpeg's header wants <cstdio> before it.
#include <jerror.h>
#include <jpeglib.h>

#include <cstdint>
#include <cstring>

#include "core/fail.h"
#include "files/longjmp.h"
#include "files/text.h"

namespace qwen_image {
namespace {

using namespace std::string_view_literals;  // for bytes with NULs in them

// A block of 8 x 8 pixels takes a bit or more in a Huffman-coded file, and a component may have a half of its
// blocks; arithmetic coding could do with less, for a picture of one colour.
constexpr int64_t kMaxPixelsPerByte = 1024;
// Each scan of a progressive picture visits all of it. Real ones have about 10.
constexpr int kMaxScans = 100;

// What libjpeg's callbacks reach through client_data.
struct Context {
  jpeg_error_mgr errors;
  jpeg_source_mgr source;
  jpeg_progress_mgr progress;
  std::jmp_buf jump;
  bool out_of_memory = false;
  char error[JMSG_LENGTH_MAX] = "";
  char warning[JMSG_LENGTH_MAX] = "";  // the first
};

Context& ContextOf(j_common_ptr info) { return *static_cast<Context*>(info->client_data); }

[[noreturn]] void Stop(j_common_ptr info, const char* message) {
  Context& context = ContextOf(info);
  std::strncpy(context.error, message, sizeof(context.error) - 1);
  std::longjmp(context.jump, 1);
}

void OnError(j_common_ptr info) {
  Context& context = ContextOf(info);
  context.out_of_memory = info->err->msg_code == JERR_OUT_OF_MEMORY;
  info->err->format_message(info, context.error);
  std::longjmp(context.jump, 1);
}

void OnMessage(j_common_ptr info, int level) {
  constexpr int kWarning = -1;
  if (level != kWarning) return;
  if (info->err->num_warnings++ == 0) info->err->format_message(info, ContextOf(info).warning);
}

void OnOutput(j_common_ptr) {}  // the library never prints

void OnProgress(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number > kMaxScans)
    Stop(info, "it has more than 100 scans");
}

void OnStart(j_decompress_ptr) {}
void OnEnd(j_decompress_ptr) {}

// All bytes are there from the start. A request for more means that the file ends too early.
boolean OnFill(j_decompress_ptr info) {
  Stop(reinterpret_cast<j_common_ptr>(info), "the file ends too early; it may be incomplete");
}

void OnSkip(j_decompress_ptr info, long count) {
  if (count <= 0) return;
  if (static_cast<size_t>(count) > info->src->bytes_in_buffer) OnFill(info);
  info->src->next_input_byte += count;
  info->src->bytes_in_buffer -= static_cast<size_t>(count);
}

class Reader {
 public:
  Reader(std::string_view bytes, const std::string& where) : where_(where) {
    info_.err = jpeg_std_error(&context_.errors);
    context_.errors.error_exit = OnError;
    context_.errors.emit_message = OnMessage;
    context_.errors.output_message = OnOutput;
    context_.source = {.next_input_byte = reinterpret_cast<const JOCTET*>(bytes.data()),
                       .bytes_in_buffer = bytes.size(),
                       .init_source = OnStart,
                       .fill_input_buffer = OnFill,
                       .skip_input_data = OnSkip,
                       .resync_to_restart = jpeg_resync_to_restart,
                       .term_source = OnEnd};
    context_.progress = {.progress_monitor = OnProgress};
    info_.client_data = &context_;
  }
  ~Reader() { jpeg_destroy_decompress(&info_); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  template <typename Calls>
  void Call(const Calls& calls) {
    if (ReturnsFrom(context_.jump, calls)) return;
    if (context_.out_of_memory) Fail(ErrorKind::kOutOfMemory, "not enough memory to read {}", where_);
    Fail(ErrorKind::kBadInput, "{} is a broken JPEG picture: {}", where_, Printable(context_.error));
  }
  void ReadHeader() {
    Call([this] {
      jpeg_create_decompress(&info_);
      info_.src = &context_.source;
      info_.progress = &context_.progress;
      jpeg_save_markers(&info_, JPEG_APP0 + 1, 0xffff);  // EXIF and XMP
      jpeg_read_header(&info_, TRUE);
    });
  }
  jpeg_decompress_struct& info() { return info_; }
  std::string_view warning() const { return context_.warning; }

 private:
  Context context_;
  const std::string& where_;
  jpeg_decompress_struct info_{};
};

// Of inverted CMYK, as Adobe's programs write it; Pillow takes every CMYK picture for one of these.
void CmykToRgb(const uint8_t* cmyk, int64_t count, uint8_t* rgb) {
  for (int64_t i = 0; i < count; ++i, cmyk += 4) {
    const int light = cmyk[3];
    for (int c = 0; c < 3; ++c) {
      const int product = (255 - cmyk[c]) * light + 128;
      *rgb++ = static_cast<uint8_t>(light - ((product + (product >> 8)) >> 8));
    }
  }
}

// Only inside Call(). cmyk_row: [width, 4], used for CMYK pictures only.
void ReadRows(jpeg_decompress_struct& info, uint8_t* cmyk_row, uint8_t* rgb) {
  const bool cmyk = info.num_components == 4;
  info.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
  jpeg_start_decompress(&info);
  while (info.output_scanline < info.output_height) {
    uint8_t* to = rgb + int64_t{info.output_scanline} * info.output_width * 3;
    JSAMPROW row = cmyk ? cmyk_row : to;
    jpeg_read_scanlines(&info, &row, 1);
    if (cmyk) CmykToRgb(cmyk_row, info.output_width, to);
  }
  jpeg_finish_decompress(&info);  // reads to the end mark, so that a file that lacks it is found out
}

void AddMetadata(jpeg_saved_marker_ptr marker, DecodedImage& image) {
  constexpr std::string_view kExif = "Exif\0\0"sv, kXmp = "http://ns.adobe.com/xap/1.0/\0"sv;
  for (; marker; marker = marker->next) {
    std::string_view data(reinterpret_cast<const char*>(marker->data), marker->data_length);
    if (data.starts_with(kExif)) image.exif += data.substr(kExif.size());  // long ones are cut in pieces
    if (data.starts_with(kXmp)) image.xmp = data.substr(kXmp.size());
  }
}

}  // namespace

DecodedImage DecodeJpeg(std::string_view bytes, const std::string& where, const ImageLimits& limits) {
  Reader reader(bytes, where);
  reader.ReadHeader();
  jpeg_decompress_struct& info = reader.info();
  DecodedImage image{.width = info.image_width, .height = info.image_height};
  CheckImageSize(where, "JPEG", image.width, image.height, limits);
  if (image.width * image.height / kMaxPixelsPerByte > static_cast<int64_t>(bytes.size())) {
    Fail(ErrorKind::kBadInput,
         "{} has {} bytes, too few for the {} x {} pixels it claims; it may be incomplete", where,
         bytes.size(), image.width, image.height);
  }
  if (info.num_components != 1 && info.num_components != 3 && info.num_components != 4) {
    Fail(ErrorKind::kBadInput, "{} is a JPEG picture with {} channels; 1, 3 and 4 are read", where,
         info.num_components);
  }
  AddMetadata(info.marker_list, image);  // which are gone once the pixels are read
  image.pixels.resize(static_cast<size_t>(image.width * image.height * 3));
  std::vector<uint8_t> row(static_cast<size_t>(image.width * 4));
  reader.Call([&] { ReadRows(info, row.data(), image.pixels.data()); });
  if (info.num_components == 4) image.notes.emplace_back("CMYK, converted to RGB");
  if (!reader.warning().empty())
    image.notes.push_back("damaged, parts of it may be wrong: " + Printable(reader.warning()));
  return image;
}

}  // namespace qwen_image
