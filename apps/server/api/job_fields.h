// From a request's fields to a job, and from a job to JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/api/fields.h"
#include "server/api/job_pictures.h"
#include "server/jobs/state.h"

namespace qwen_image::api {

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

// The fields of POST /jobs. Throws FieldError where one field is to blame, else Error kUsage; nothing is left
// unchecked that Pipeline::Check checks.
jobs::Request ParseJobRequest(const Json& body, const Pipeline& pipeline, const RequestLimits& limits = {});

// The same from settings and what came as files. Fields that it does not know are the
// caller's business.
jobs::Request MakeJobRequest(const Fields& settings, const JobPictures& pictures, const Pipeline& pipeline,
                             const RequestLimits& limits = {});

Json JobJson(const jobs::Job& job);

}  // namespace qwen_image::api
