#include "draw/record.h"

#include <fmt/format.h>

#include "options/names.h"
#include "options/record.h"
#include "qwen_image/image_file.h"

namespace qwen_image::draw {
namespace {

// IPTC's digital source type, in an XMP packet.
constexpr const char* kGeneratedXmp =
    "<?xpacket begin=\"\uFEFF\" id=\"W5M0MpCehiHzreSzNTczkc9d\"?>"
    "<x:xmpmeta xmlns:x=\"adobe:ns:meta/\"><rdf:RDF "
    "xmlns:rdf=\"http://www.w3.org/1999/02/22-rdf-syntax-ns#\">"
    "<rdf:Description rdf:about=\"\" xmlns:Iptc4xmpExt=\"http://iptc.org/std/Iptc4xmpExt/2008-02-29/\" "
    "Iptc4xmpExt:DigitalSourceType="
    "\"http://cv.iptc.org/newscodes/digitalsourcetype/trainedAlgorithmicMedia\"/>"
    "</rdf:RDF></x:xmpmeta><?xpacket end=\"r\"?>";

// The request with what the picture was drawn with where it left that to the model.
GenerateRequest Drawn(const Picture& picture, const GenerateRequest& request) {
  GenerateRequest drawn = options::WithoutData(request);
  drawn.negative_prompt = picture.negative_prompt;
  drawn.width = picture.width;
  drawn.height = picture.height;
  drawn.steps = picture.steps;
  drawn.cfg = picture.cfg;
  drawn.strength = picture.strength;
  return drawn;
}

void AddSource(const Picture& picture, const GenerateRequest& request, Json& record) {
  // The result may have another size than it was drawn at. The record holds the size that was asked for.
  if (!picture.source) return;
  const bool asked = request.width || request.height;
  record[options::kSizeName] =
      asked ? fmt::format("{}x{}", picture.source->working_width, picture.source->working_height)
            : options::kSizeOfInput;
}

}  // namespace

Json DrawnRecord(const Picture& picture, const GenerateRequest& request, const std::string& model_name,
                 const OpenedModel& model) {
  Json record = {{"version", Version()},
                 {"model", model_name},
                 {"precision", NameOf(model.precision)},
                 {"device", NameOf(model.device)}};  // information only: other devices draw the same
  options::WriteRecord(Drawn(picture, request), record);
  AddSource(picture, request, record);
  for (const AppliedLora& lora : model.model->loras().applied()) {
    record["loras"].push_back({{"file", lora.name},
                               {"scale", lora.scale},
                               {"layers", lora.layers},
                               {"total_layers", lora.total},
                               {"min_rank", lora.min_rank},
                               {"max_rank", lora.max_rank},
                               {"lightning_steps", lora.lightning_steps}});
  }
  return record;
}

Json LibraryRecord(const Picture& picture, const GenerateRequest& request, const OpenedModel& model) {
  Json record = DrawnRecord(picture, request, model.name, model);
  NameSources(request, "given", record);
  return record;
}

void NameSources(const GenerateRequest& request, const std::string& names, Json& record) {
  for (const options::Field& field : options::Fields()) {
    if (!options::IsData(field) || options::IsDefault(field, request)) continue;
    options::VisitValue(
        field, request,
        options::ByType{[&](const std::vector<Image>& images) {
                          for (size_t i = 0; i < images.size(); ++i)
                            record[field.name].push_back(fmt::format("{}-{}", names, i + 1));
                        },
                        [&](const std::optional<Image>&) { record[field.name] = names; },
                        [&](const auto&) { record[field.name] = fmt::format("{}-{}", names, field.name); }});
  }
}

std::string RecordText(const Json& record) {
  return record.dump(-1, ' ', false, Json::error_handler_t::replace);
}

PictureText FileText(const Json& record, SourceMark mark) {
  PictureText text = {{kRecordKey, RecordText(record)},
                      {kSoftwareKey, std::string("qwen-image.cpp ") + Version()}};
  if (mark == SourceMark::kWritten) text[kXmpKey] = kGeneratedXmp;
  return text;
}

}  // namespace qwen_image::draw

namespace qwen_image {

void Picture::SavePng(const std::filesystem::path& path) const { WritePng(path, image(), png_text); }

}  // namespace qwen_image
