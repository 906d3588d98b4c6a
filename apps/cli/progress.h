// Progress on stderr: a bar that is redrawn on a terminal, plain lines elsewhere.
#pragma once

#include <chrono>
#include <string>

#include "qwen_image/qwen_image.h"

namespace qwen_image::cli {

class ProgressPrinter {
 public:
  enum class Style { kSilent, kLines, kBar };
  static Style StyleFor(bool quiet);  // a bar if stderr is a terminal

  ProgressPrinter(Style style, std::string title) : style_(style), title_(std::move(title)) {}
  ~ProgressPrinter() { Clear(); }

  void Update(const Progress& progress);
  void Clear();  // removes the bar from the terminal
  void Note(const std::string& text);

 private:
  using Clock = std::chrono::steady_clock;
  std::string Describe(const Progress& progress);
  void PrintResumed(const Progress& progress);
  void PrintBar(const Progress& progress);
  void PrintLine(const Progress& progress);

  Style style_;
  std::string title_;
  Clock::time_point stage_start_ = Clock::now();
  Clock::time_point last_print_;
  Progress last_;
  bool started_ = false;
  bool bar_shown_ = false;
};

std::string HumanSeconds(double seconds);  // "0.42 s", "12 s", "3 min 05 s", "2 h 10 min"

}  // namespace qwen_image::cli
