// What came with a request as files: pictures, masks, noise.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "options/field.h"
#include "server/api/fields.h"
#include "server/jobs/state.h"

namespace qwen_image::api {

struct RequestLimits;

struct JobPictures {
  std::map<std::string, std::vector<std::string>, std::less<>> files = {};  // by the name of the setting
  std::map<std::string, std::string, std::less<>> names =
      {};  // what the request calls it, where that is another
  // A mask with transparent parts is redrawn there, whatever its colours: OpenAI's rule. Otherwise see
  // DecodeMask.
  bool mask_is_hole = false;
  bool invert_mask = false;
  bool crop_to_size =
      false;  // the middle of the initial image and its mask, in the shape of width and height

  // For messages.
  std::string NameOf(std::string_view setting) const;
};

// Of a JSON object: files as base64, for every setting that is data and `wanted`.
JobPictures PicturesIn(const Fields& fields, const RequestLimits& limits,
                       const std::function<bool(const options::Field&)>& wanted);

// A file in JSON: base64, or a data: URL with base64. `what` it should be, for messages. Throws FieldError,
// for other URLs too.
std::string DecodeFileText(const std::string& name, const Json& value, const std::string& what = "a picture");

// Decodes the files into the request's settings. Throws FieldError.
void ReadFiles(const JobPictures& pictures, const Pipeline& pipeline, const RequestLimits& limits,
               jobs::Request& job);

}  // namespace qwen_image::api
