// Pictures for C.
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

#include "c_api/guard.h"
#include "c_api/handles.h"
#include "c_api/pixels.h"
#include "draw/record.h"
#include "qwen_image/image_file.h"

using qwen_image::ErrorKind;
using qwen_image::Fail;
using qwen_image::Guarded;
using qwen_image::Need;
using qwen_image::NeedText;
using qwen_image::Transparency;

namespace {

// A handle with the pixels of a file: an image's, or those of a mask.
template <typename Read>
qwen_image_status MakePicture(qwen_image_picture** picture, const Read& read) {
  return Guarded([&] {
    Need(picture, "picture") = nullptr;
    auto image = read();
    auto made = std::make_unique<qwen_image_picture>();
    made->picture.width = image.width;
    made->picture.height = image.height;
    made->picture.channels = 1;
    if constexpr (std::is_same_v<decltype(image), qwen_image::Image>) made->picture.channels = image.channels;
    made->picture.pixels = std::move(image.pixels);
    made->picture.cfg = 0;
    *picture = made.release();
  });
}

std::string_view BytesOf(const uint8_t* bytes, int64_t size) {
  if (size < 0) Fail(ErrorKind::kUsage, "a file of {} bytes cannot be", size);
  return {reinterpret_cast<const char*>(&Need(bytes, "bytes")), static_cast<size_t>(size)};
}

}  // namespace

void FillPicture(qwen_image::Picture drawn, qwen_image_picture& picture) {
  picture.picture = std::move(drawn);
  picture.alignment.reset();
  const auto& source = picture.picture.source;
  if (!source || !source->alignment.measurable) return;
  const qwen_image::Alignment& a = source->alignment;
  picture.alignment = {a.shift_x, a.shift_y, a.scale_x, a.scale_y, a.confidence, a.uncertainty};
}

qwen_image_status qwen_image_picture_read(const char* path, qwen_image_picture** picture) {
  return MakePicture(picture, [&] {
    return qwen_image::ReadImage(NeedText(path, "path"), {}, Transparency::kOnWhite).image;
  });
}

qwen_image_status qwen_image_picture_read_alpha(const char* path, qwen_image_picture** picture) {
  return MakePicture(
      picture, [&] { return qwen_image::ReadImage(NeedText(path, "path"), {}, Transparency::kKept).image; });
}

qwen_image_status qwen_image_picture_decode_alpha(const uint8_t* bytes, int64_t size, const char* where,
                                                  qwen_image_picture** picture) {
  return MakePicture(picture, [&] {
    return qwen_image::DecodeImage(BytesOf(bytes, size), NeedText(where, "where"), {}, Transparency::kKept)
        .image;
  });
}

qwen_image_status qwen_image_picture_read_mask(const char* path, qwen_image_picture** picture) {
  return MakePicture(picture, [&] { return qwen_image::ReadMask(NeedText(path, "path")).image; });
}

qwen_image_status qwen_image_picture_decode_mask(const uint8_t* bytes, int64_t size, const char* where,
                                                 qwen_image_picture** picture) {
  return MakePicture(
      picture, [&] { return qwen_image::DecodeMask(BytesOf(bytes, size), NeedText(where, "where")).image; });
}

void qwen_image_picture_free(qwen_image_picture* picture) { delete picture; }

int64_t qwen_image_picture_width(const qwen_image_picture* picture) {
  return picture ? picture->picture.width : 0;
}

int64_t qwen_image_picture_height(const qwen_image_picture* picture) {
  return picture ? picture->picture.height : 0;
}

int qwen_image_picture_channels(const qwen_image_picture* picture) {
  return picture ? static_cast<int>(picture->picture.channels) : 0;
}

const uint8_t* qwen_image_picture_pixels(const qwen_image_picture* picture) {
  return picture ? picture->picture.pixels.data() : nullptr;
}

uint64_t qwen_image_picture_seed(const qwen_image_picture* picture) {
  return picture ? picture->picture.seed : 0;
}

int64_t qwen_image_picture_steps(const qwen_image_picture* picture) {
  return picture ? picture->picture.steps : 0;
}

double qwen_image_picture_cfg(const qwen_image_picture* picture) {
  return picture ? picture->picture.cfg : 0;
}

const char* qwen_image_picture_settings(const qwen_image_picture* picture) {
  if (!picture) return "";
  const auto found = picture->picture.png_text.find(qwen_image::draw::kRecordKey);
  return found == picture->picture.png_text.end() ? "" : found->second.c_str();
}

int64_t qwen_image_picture_note_count(const qwen_image_picture* picture) {
  return picture ? static_cast<int64_t>(picture->picture.notes.size()) : 0;
}

const char* qwen_image_picture_note(const qwen_image_picture* picture, int64_t index) {
  if (index < 0 || index >= qwen_image_picture_note_count(picture)) return "";
  return picture->picture.notes[static_cast<size_t>(index)].c_str();
}

int qwen_image_picture_prompt_truncated(const qwen_image_picture* picture) {
  return picture && picture->picture.prompt_truncated ? 1 : 0;
}

qwen_image_status qwen_image_picture_seconds(const qwen_image_picture* picture, double* encode_prompt,
                                             double* encode_pictures, double* denoise, double* decode) {
  return Guarded([&] {
    const qwen_image::StageSeconds& seconds = Need(picture, "picture").picture.seconds;
    if (encode_prompt) *encode_prompt = seconds.encode_prompt;
    if (encode_pictures) *encode_pictures = seconds.encode_pictures;
    if (denoise) *denoise = seconds.denoise;
    if (decode) *decode = seconds.decode;
  });
}

const qwen_image_alignment* qwen_image_picture_alignment(const qwen_image_picture* picture) {
  return picture && picture->alignment ? &*picture->alignment : nullptr;
}

int64_t qwen_image_picture_steps_resumed(const qwen_image_picture* picture) {
  return picture ? picture->picture.steps_resumed : 0;
}

qwen_image_status qwen_image_picture_remove_resume_state(const qwen_image_picture* picture) {
  return Guarded([&] { qwen_image::RemoveResumeState(Need(picture, "picture").picture); });
}

const char* qwen_image_picture_resume_file(const qwen_image_picture* picture) {
  return picture ? picture->picture.resume_file.c_str() : "";
}

qwen_image_status qwen_image_remove_resume_state(const char* resume_file) {
  return Guarded([&] {
    qwen_image::Picture picture;
    picture.resume_file = NeedText(resume_file, "resume_file");
    qwen_image::RemoveResumeState(picture);
  });
}

qwen_image_status qwen_image_picture_save_png(const qwen_image_picture* picture, const char* path) {
  return Guarded([&] {
    const qwen_image::Picture& drawn = Need(picture, "picture").picture;
    drawn.SavePng(NeedText(path, "path"));
  });
}

qwen_image_status qwen_image_write_png(const char* path, int64_t width, int64_t height, int channels,
                                       const uint8_t* pixels, const char* settings) {
  return Guarded([&] {
    const qwen_image::Image image = qwen_image::CopyImage(width, height, channels, pixels);
    const std::string_view record = settings ? settings : "";
    std::map<std::string, std::string> text;
    if (!record.empty()) text = qwen_image::draw::FileText(qwen_image::ParseJson(record, "the settings"));
    qwen_image::WritePng(NeedText(path, "path"), image, text);
  });
}
