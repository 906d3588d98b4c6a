#include "files/picture_file.h"

#include <algorithm>
#include <utility>

#include "core/fail.h"
#include "files/decoded_image.h"
#include "files/exif.h"
#include "files/jpeg.h"
#include "files/json.h"
#include "files/mmap.h"
#include "files/output_file.h"
#include "files/png.h"
#include "files/text.h"
#include "files/webp.h"

namespace qwen_image {
namespace {

constexpr std::pair<PictureFormat, std::string_view> kNames[] = {
    {PictureFormat::kPng, "png"}, {PictureFormat::kJpeg, "jpeg"}, {PictureFormat::kWebp, "webp"}};

PictureMetadata MetadataOf(const PictureText& text) {
  Json others = Json::object();
  PictureMetadata metadata;
  std::string software;
  for (const auto& [key, value] : text) {
    if (key == kSoftwareKey) {
      software = value;
    } else if (key == kXmpKey) {
      metadata.xmp = value;
    } else {
      others[key] = value;
    }
  }
  metadata.exif = ExifWith(others.dump(-1, ' ', false, Json::error_handler_t::replace), software);
  return metadata;
}

// What other programs wrote there is no object of texts, and none of ours.
PictureText TextOfComment(std::string_view comment, const std::string& where) {
  constexpr size_t kMaxBytes = 1 << 20, kMaxValues = 1000;
  PictureText text;
  if (!comment.starts_with('{') || comment.size() > kMaxBytes) return text;
  const Json json = ParseJson(comment, where + ": the comment in its EXIF data", kMaxValues);
  for (const auto& [key, value] : json.items()) {
    if (value.is_string()) text[key] = value.get<std::string>();
  }
  return text;
}

}  // namespace

std::string_view NameOf(PictureFormat format) {
  for (const auto& [value, name] : kNames) {
    if (value == format) return name;
  }
  return "?";
}

std::optional<PictureFormat> FormatNamed(std::string_view name) {
  for (const auto& [format, known] : kNames) {
    if (known == name) return format;
  }
  return std::nullopt;
}

std::optional<PictureFormat> FormatOfFile(const std::filesystem::path& path) {
  std::string ending = path.extension().string();
  for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (ending.empty()) return PictureFormat::kPng;
  return FormatNamed(ending == ".jpg" ? "jpeg" : ending.substr(1));
}

std::string EncodePicture(const Image& image, const EncodedAs& as, const PictureText& text) {
  switch (as.format) {
    case PictureFormat::kJpeg:
      return EncodeJpeg(image, as.quality, MetadataOf(text));
    case PictureFormat::kWebp:
      return EncodeWebp(image, as.quality, MetadataOf(text));
    case PictureFormat::kPng:
      break;
  }
  return EncodePng(image, text);
}

void WritePicture(const std::filesystem::path& path, const Image& image, const EncodedAs& as,
                  const PictureText& text) {
  if (as.format == PictureFormat::kPng) return WritePng(path, image, text);
  const std::string bytes = EncodePicture(image, as, text);
  OutputFile file(path);
  file.Write(bytes.data(), bytes.size());
  file.Commit();
}

PictureText DecodePictureText(std::string_view bytes, const std::string& where) {
  if (IsPng(bytes)) return DecodePngText(bytes, where);
  return TextOfComment(ExifComment(DecodePixels(bytes, where, {}).exif), where);
}

PictureText ReadPictureText(const std::filesystem::path& path) {
  const MappedFile file(path);
  PictureText text = DecodePictureText(file.text(), path.string());
  file.ThrowIfDamaged();
  return text;
}

}  // namespace qwen_image
