// From a request's fields to a job, and from a job to JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fields.h"
#include "job.h"

namespace qwen_image::server {

// What one request may ask for. A model on CPUs takes seconds to minutes for each step of a picture; what is
// refused here would hold up everybody else for hours, or fill the memory.
struct RequestLimits {
  int64_t pixels = 2400 * 1792;  // of a picture that is drawn: the largest that a published model recommends
  int64_t n = 10;                // as OpenAI's
  int64_t steps = 200;
  size_t prompt_bytes = 32 << 10;  // about 16 times what a model reads
  int64_t images = 10;             // to edit
  // Of all pictures that come with a request, decoded, with margins: waiting jobs hold them in memory.
  int64_t image_pixels = 32'000'000;
};

// The pictures of a request, as files.
struct JobPictures {
  std::vector<std::string> input_images;
  std::optional<std::string> init_image, mask;
  // What the request calls them, for messages.
  std::string input_name = "input_images", init_name = "init_image";
  // A mask with transparent parts is redrawn there, whatever its colours: OpenAI's rule. Otherwise see
  // DecodeMask.
  bool mask_is_hole = false;
  bool invert_mask = false;
  bool crop_to_size =
      false;  // the middle of the initial image and its mask, in the shape of width and height
};

// The fields of POST /jobs. Throws FieldError where one field is to blame, else Error kUsage; nothing is left
// unchecked that Pipeline::Check checks.
JobRequest ParseJobRequest(const Json& body, const Pipeline& pipeline, const RequestLimits& limits = {});

// The same from settings (all fields but the pictures) and pictures. Fields that it does not know are the
// caller's business.
JobRequest MakeJobRequest(const Fields& settings, const JobPictures& pictures, const Pipeline& pipeline,
                          const RequestLimits& limits = {});

// A picture in JSON: base64, or a data: URL with base64. Throws Error kUsage, for other URLs too.
std::string DecodePictureText(const std::string& name, const Json& value);

// A number, or -1, "random" or absent for one that is drawn.
uint64_t SeedOf(const Fields& fields);

Json JobJson(const Job& job);

}  // namespace qwen_image::server
