// A report as one page for a browser, made from its document alone: what is not in there cannot be here.
#pragma once

#include <string>

#include "prove/report.h"

namespace qwen_image::prove {

std::string PageHtml(const Report& report);

}  // namespace qwen_image::prove
