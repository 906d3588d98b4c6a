// What tests that need a queue share: a tiny model, jobs for it, and waiting for them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "server/jobs/queue.h"

namespace qwen_image::jobs {

const Pipeline& TinyPipeline();  // loaded once

Request QuickJob(uint64_t seed = 1);  // drawn in no time
Request LongJob();                    // drawn for longer than any test takes; to be cancelled

// Returns when the job has ended; the job as it is then.
Job WaitForEnd(Queue& queue, const std::string& id);
// Returns when the job has begun to denoise.
void WaitForSteps(Queue& queue, const std::string& id);

}  // namespace qwen_image::jobs
