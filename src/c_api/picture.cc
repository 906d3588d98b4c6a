// Pictures for C.
#include <memory>
#include <utility>

#include "c_api/guard.h"
#include "c_api/handles.h"
#include "draw/record.h"
#include "qwen_image/image_file.h"

using qwen_image::Guarded;
using qwen_image::Need;
using qwen_image::NeedText;

namespace {

qwen_image_status ReadPicture(const char* path, qwen_image::Transparency transparency,
                              qwen_image_picture** picture) {
  return Guarded([&] {
    Need(picture, "picture") = nullptr;
    qwen_image::Image image = qwen_image::ReadImage(NeedText(path, "path"), {}, transparency).image;
    auto read = std::make_unique<qwen_image_picture>();
    read->picture.width = image.width;
    read->picture.height = image.height;
    read->picture.channels = image.channels;
    read->picture.pixels = std::move(image.pixels);
    read->picture.cfg = 0;
    *picture = read.release();
  });
}

}  // namespace

qwen_image_status qwen_image_picture_read(const char* path, qwen_image_picture** picture) {
  return ReadPicture(path, qwen_image::Transparency::kOnWhite, picture);
}

qwen_image_status qwen_image_picture_read_alpha(const char* path, qwen_image_picture** picture) {
  return ReadPicture(path, qwen_image::Transparency::kKept, picture);
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

qwen_image_status qwen_image_picture_save_png(const qwen_image_picture* picture, const char* path) {
  return Guarded([&] {
    const qwen_image::Picture& drawn = Need(picture, "picture").picture;
    drawn.SavePng(NeedText(path, "path"));
  });
}
