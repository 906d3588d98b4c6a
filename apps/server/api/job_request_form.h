// A job's request as the JSON that POST /jobs takes, for those who send it on.
#pragma once

#include "files/json.h"
#include "server/jobs/state.h"

namespace qwen_image::api {

// ParseJobRequest reads the same request from it: pictures are PNG files, which keep every pixel, and noise
// is a .npy file.
Json JobRequestJson(const jobs::Request& job);

}  // namespace qwen_image::api
