// Drawing a picture of a proof: what it was drawn with, how long each stage took, and the memory it had.
#pragma once

#include <string>

#include "core/checkpoint.h"
#include "prove/proof.h"
#include "prove/report.h"

namespace qwen_image::prove {

// The program's own prompts: a user's are none of a report's business.
inline constexpr const char* kPlainPrompt = "a red circle on a blue background";
inline constexpr const char* kRichPrompt =
    "A small bookshop at dusk, warm light in its window, wet cobblestones, and above the door a wooden sign "
    "that reads \"OPEN LATE\"";
inline constexpr const char* kEditPrompt = "make the circle green";

struct Drawn {
  Picture picture;
  Json facts;  // settings, seconds, memory
};

// `what` is for the terminal.
Drawn Draw(const Pipeline& pipeline, const GenerateRequest& request, const std::string& what,
           const Watch& watch, CheckpointSink* sink = nullptr);

// A picture for the report. Its metadata names the model's kind instead of its folder.
ReportPicture ForReport(std::string file, const Drawn& drawn, const GenerateRequest& request,
                        const Pipeline& pipeline);

// A size of about 256 pixels, or the model's own if that is smaller.
std::pair<int64_t, int64_t> SmallSize(const Pipeline& pipeline);

// So many steps, or as many as the model was made for.
std::optional<int64_t> StepsFor(const Pipeline& pipeline, int64_t most);

}  // namespace qwen_image::prove
