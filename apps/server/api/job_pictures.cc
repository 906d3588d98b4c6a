#include "server/api/job_pictures.h"

#include <span>

#include "core/fail.h"
#include "files/base64.h"
#include "files/npy.h"
#include "files/text.h"
#include "options/text_form.h"
#include "qwen_image/image_file.h"
#include "server/api/job_fields.h"

namespace qwen_image::api {
namespace {

// Decodes what came as files, within a request's budget of pixels.
class DataReader {
 public:
  // The channels are the model's: what it cannot use is not kept while a job waits.
  DataReader(const JobPictures& pictures, const Pipeline& pipeline, const RequestLimits& limits,
             jobs::Request& job)
      : pictures_(pictures),
        limits_(limits),
        job_(job),
        pixels_(limits.image_pixels),
        transparency_(pipeline.channels() == 4 ? Transparency::kKept : Transparency::kOnWhite) {}

  void Read() {
    for (const options::Field& field : options::Fields()) {
      const auto found = pictures_.files.find(field.name);
      if (found == pictures_.files.end() || found->second.empty()) continue;
      options::VisitValue(field, job_.request,
                          [&](auto& value) { Set(pictures_.NameOf(field.name), found->second, value); });
    }
  }

 private:
  using Files = std::vector<std::string>;

  template <typename Decode>
  auto Decoded(const std::string& name, const Decode& decode) {
    try {
      auto file = decode();
      pixels_ -= file.image.width * file.image.height;
      for (const std::string& note : file.notes) job_.notes.push_back(fmt::format("{}: {}", name, note));
      return std::move(file.image);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kBadInput) throw;
      std::string message = error.message();
      const std::string left = std::to_string(pixels_);
      if (pixels_ < limits_.image_pixels && message.find(left) != message.npos)
        message += fmt::format(": all pictures of a request may have {} together, and {} of these are left",
                               limits_.image_pixels, left);
      throw FieldError(name, message);
    }
  }

  void Set(const std::string& name, const Files& files, std::vector<Image>& images) {
    if (static_cast<int64_t>(files.size()) > limits_.images)
      throw FieldError(name, fmt::format("{} input images are too many; at most {} are taken", files.size(),
                                         limits_.images));
    for (size_t i = 0; i < files.size(); ++i)
      images.push_back(Picture(fmt::format("{}[{}]", name, i), files[i]));
  }
  void Set(const std::string& name, const Files& files, std::optional<Image>& image) {
    image = Picture(name, files.front());
  }
  void Set(const std::string& name, const Files& files, std::optional<GreyImage>& mask) {
    const MaskRule rule = pictures_.mask_is_hole ? MaskRule::kHole : MaskRule::kByColours;
    mask = Decoded(name, [&] { return DecodeMask(files.front(), name, {.max_pixels = pixels_}, rule); });
  }
  void Set(const std::string& name, const Files& files, std::optional<InitialLatents>& latents) {
    try {
      NpyArray array = ParseNpy(std::as_bytes(std::span(files.front())), name);
      auto* values = std::get_if<std::vector<float>>(&array.values);
      if (!values) throw FieldError(name, fmt::format("{} holds {}, not floats", name, array.dtype));
      latents = InitialLatents{array.shape, std::move(*values)};
    } catch (const Error& error) {
      throw FieldError(name, error.message());
    }
  }
  template <typename Setting>
  void Set(const std::string&, const Files&, Setting&) {}

  Image Picture(const std::string& name, const std::string& file) {
    return Decoded(name, [&] { return DecodeImage(file, name, {.max_pixels = pixels_}, transparency_); });
  }

  const JobPictures& pictures_;
  const RequestLimits& limits_;
  jobs::Request& job_;
  int64_t pixels_;  // left
  const Transparency transparency_;
};

bool IsList(const options::Field& field) {
  return std::holds_alternative<std::vector<Image> GenerateRequest::*>(field.member);
}

}  // namespace

std::string JobPictures::NameOf(std::string_view setting) const {
  const auto found = names.find(setting);
  return found == names.end() ? std::string(setting) : found->second;
}

JobPictures PicturesIn(const Fields& fields, const RequestLimits& limits,
                       const std::function<bool(const options::Field&)>& wanted) {
  JobPictures pictures;
  for (const options::Field& field : options::Fields()) {
    const Json* value = fields.Find(field.name);
    if (!value || !options::IsData(field) || !wanted(field)) continue;
    std::vector<std::string>& files = pictures.files[field.name];
    if (!IsList(field)) {
      files.push_back(DecodeFileText(field.name, *value, options::KindOf(field)));
      continue;
    }
    if (!value->is_array() || static_cast<int64_t>(value->size()) > limits.images)
      fields.Refuse(field.name, fmt::format("a list of at most {} pictures", limits.images));
    for (size_t i = 0; i < value->size(); ++i)
      files.push_back(DecodeFileText(fmt::format("{}[{}]", field.name, i), (*value)[i]));
  }
  return pictures;
}

std::string DecodeFileText(const std::string& name, const Json& value, const std::string& what) {
  if (!value.is_string())
    throw FieldError(name,
                     fmt::format("{} must be {}: its file as base64, or a data: URL with it", name, what));
  std::string_view text = value.get_ref<const std::string&>();
  if (text.starts_with("data:")) {
    const size_t comma = text.substr(0, 200).find(',');
    if (comma == text.npos || !text.substr(0, comma).ends_with(";base64"))
      throw FieldError(name, fmt::format("{} is a data: URL without \";base64,\" at its start: {}", name,
                                         Quoted(text.substr(0, 60))));
    text.remove_prefix(comma + 1);
  } else if (text.substr(0, 40).find("://") != text.npos) {
    throw FieldError(
        name,
        fmt::format("{} is a URL, {}; this server fetches nothing: send {} itself, as base64 or a data: URL",
                    name, Quoted(text.substr(0, 60)), what));
  }
  std::optional<std::string> file = DecodeBase64(text);
  if (!file || file->empty())
    throw FieldError(name,
                     fmt::format("{} is not base64 of {} (letters, digits, + and /, padded with =, no line "
                                 "breaks): {}",
                                 name, what, text.empty() ? "it is empty" : Quoted(text.substr(0, 40))));
  return *std::move(file);
}

void ReadFiles(const JobPictures& pictures, const Pipeline& pipeline, const RequestLimits& limits,
               jobs::Request& job) {
  DataReader(pictures, pipeline, limits, job).Read();
}

}  // namespace qwen_image::api
