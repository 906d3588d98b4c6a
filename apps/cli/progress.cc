#include "progress.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>

#include "print.h"

namespace qwen_image::cli {
namespace {

constexpr auto kBarInterval = std::chrono::milliseconds(100);
constexpr auto kLineInterval = std::chrono::seconds(2);

double Seconds(std::chrono::steady_clock::duration d) { return std::chrono::duration<double>(d).count(); }

double DoneFraction(const Progress& p) {
  if (p.stage != Progress::Stage::kDenoise) return p.fraction;
  return p.steps > 0 ? (static_cast<double>(p.step) + p.fraction) / static_cast<double>(p.steps) : 0;
}

}  // namespace

std::string HumanSeconds(double seconds) {
  if (seconds < 10) return fmt::format("{:.2f} s", seconds);
  const auto whole = static_cast<int64_t>(std::lround(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

ProgressPrinter::Style ProgressPrinter::StyleFor(bool quiet) {
  if (quiet) return Style::kSilent;
  return isatty(STDERR_FILENO) ? Style::kBar : Style::kLines;
}

void ProgressPrinter::Update(const Progress& progress) {
  if (style_ == Style::kSilent) return;
  const auto now = Clock::now();
  const bool new_stage = !started_ || progress.stage != last_.stage;
  const bool new_step = new_stage || progress.step != last_.step;
  if (new_stage) stage_start_ = now;
  if (progress.resumed > 0 && last_.resumed == 0) PrintResumed(progress);
  started_ = true;
  last_ = progress;
  const bool last_step = progress.stage == Progress::Stage::kDenoise && progress.step == progress.steps;
  if (style_ == Style::kBar) {
    if (!new_step && now - last_print_ < kBarInterval) return;
    PrintBar(progress);
  } else {
    if (!new_stage && !last_step && now - last_print_ < kLineInterval) return;
    PrintLine(progress);
  }
  last_print_ = now;
}

// "step 7/20, 1.32 s/step, 17 s left"
std::string ProgressPrinter::Describe(const Progress& p) {
  if (p.stage != Progress::Stage::kDenoise) {
    const char* what = p.stage == Progress::Stage::kDecode           ? "decoding the picture"
                       : p.stage == Progress::Stage::kEncodePictures ? "encoding the input picture"
                                                                     : "encoding the prompt";
    return p.fraction > 0 ? fmt::format("{}, {:.0f} %", what, 100 * p.fraction) : what;
  }
  std::string text = fmt::format("step {}/{}", p.step, p.steps);
  const auto steps = static_cast<double>(p.steps);
  const double now = DoneFraction(p) * steps, done = now - static_cast<double>(p.resumed);
  const double elapsed = Seconds(Clock::now() - stage_start_);
  if (done > 0) {
    text += fmt::format(", {}/step", HumanSeconds(elapsed / done));
    if (now < steps) text += fmt::format(", {} left", HumanSeconds(elapsed / done * (steps - now)));
  }
  return text;
}

void ProgressPrinter::PrintBar(const Progress& p) {
  constexpr int kWidth = 20;  // with a long text behind it still less than 80 columns
  const int filled = static_cast<int>(std::lround(DoneFraction(p) * kWidth));
  std::string bar;
  for (int i = 0; i < kWidth; ++i) bar += i < filled ? "█" : "░";
  Print(stderr, "\r\x1b[2K{}{} {}", title_, bar, Describe(p));
  bar_shown_ = true;
}

void ProgressPrinter::PrintLine(const Progress& p) { Print(stderr, "{}{}\n", title_, Describe(p)); }

void ProgressPrinter::PrintResumed(const Progress& p) {
  Clear();
  Print(stderr, "{}resuming after step {} of {}\n", title_, p.resumed, p.steps);
}

void ProgressPrinter::Note(const std::string& text) {
  Clear();
  if (style_ != Style::kSilent) Print(stderr, "{}note: {}\n", title_, text);
}

void ProgressPrinter::Clear() {
  if (!bar_shown_) return;
  Print(stderr, "\r\x1b[2K");
  bar_shown_ = false;
}

}  // namespace qwen_image::cli
