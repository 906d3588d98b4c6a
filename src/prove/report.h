// What a proof leaves: one document, from which both files of the report are made, and its pictures.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "files/json.h"
#include "qwen_image/image.h"

namespace qwen_image::prove {

// Of the document. docs/prove.md describes it.
inline constexpr int kSchema = 1;

inline constexpr const char *kPassed = "passed", *kFailed = "failed", *kNotDone = "not done";

struct ReportPicture {
  std::string file;
  Image image;
  std::map<std::string, std::string> text;  // of the PNG
};

struct Report {
  Json document;
  std::vector<ReportPicture> pictures;

  bool passed() const { return document.at("passed").get<bool>(); }
};

}  // namespace qwen_image::prove
