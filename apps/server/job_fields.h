// From a request's fields to a job, and from a job to JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fields.h"
#include "job.h"
#include "job_pictures.h"

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

// The fields of POST /jobs. Throws FieldError where one field is to blame, else Error kUsage; nothing is left
// unchecked that Pipeline::Check checks.
JobRequest ParseJobRequest(const Json& body, const Pipeline& pipeline, const RequestLimits& limits = {});

// The same from settings and what came as files. Fields that it does not know are the
// caller's business.
JobRequest MakeJobRequest(const Fields& settings, const JobPictures& pictures, const Pipeline& pipeline,
                          const RequestLimits& limits = {});

Json JobJson(const Job& job);

}  // namespace qwen_image::server
