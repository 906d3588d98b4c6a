#include "server/jobs/progress.h"

#include <algorithm>

namespace qwen_image::jobs {
namespace {

// Shares of a picture's bar. The real ones differ from model to model, but steps are always most of it.
constexpr double kEncoded = 0.05, kDenoised = 0.95;

const char* StageName(Progress::Stage stage) {
  switch (stage) {
    case Progress::Stage::kEncodePrompt:
      return "encode prompt";
    case Progress::Stage::kEncodePictures:
      return "encode pictures";
    case Progress::Stage::kDenoise:
      return "denoise";
    case Progress::Stage::kDecode:
      break;
  }
  return "decode";
}

double Seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

double PictureFraction(const Progress& p, double steps_done) {
  switch (p.stage) {
    case Progress::Stage::kEncodePrompt:
      return kEncoded * 0.6 * p.fraction;
    case Progress::Stage::kEncodePictures:
      return kEncoded * (0.6 + 0.4 * p.fraction);
    case Progress::Stage::kDenoise:
      return kEncoded +
             (kDenoised - kEncoded) * steps_done / static_cast<double>(std::max<int64_t>(1, p.steps));
    case Progress::Stage::kDecode:
      break;
  }
  return kDenoised + (1 - kDenoised) * p.fraction;
}

}  // namespace

void ProgressMeter::BeginPicture(int64_t index) {
  const Clock::time_point now = Clock::now();
  if (index > 0) seconds_per_picture_ = Seconds(now - picture_begin_);
  picture_begin_ = now;
  denoising_ = false;
  now_.picture = index;
}

JobProgress ProgressMeter::Update(const Progress& p) {
  const Clock::time_point now = Clock::now();
  const bool denoise = p.stage == Progress::Stage::kDenoise;
  const double steps_done =
      static_cast<double>(p.step) + (denoise && p.step < p.steps ? std::clamp(p.fraction, 0.0, 1.0) : 0);
  if (denoise && !denoising_) {
    denoising_ = true;
    denoise_begin_ = now;
  }
  const double computed = steps_done - static_cast<double>(p.resumed);
  if (denoise && computed > 0) now_.seconds_per_step = Seconds(now - denoise_begin_) / computed;
  now_.stage = StageName(p.stage);
  now_.step = p.step;
  now_.steps = p.steps;
  const double fraction =
      (static_cast<double>(now_.picture) + PictureFraction(p, steps_done)) / static_cast<double>(pictures_);
  now_.fraction = std::max(now_.fraction, std::min(fraction, 1.0));  // a bar never goes back
  now_.seconds_left = 0;
  if (now_.seconds_per_step > 0) {
    const double steps = static_cast<double>(p.steps);
    const double picture = seconds_per_picture_ > 0 ? seconds_per_picture_ : steps * now_.seconds_per_step;
    const double later = static_cast<double>(pictures_ - now_.picture - 1) * picture;
    now_.seconds_left = (steps - steps_done) * now_.seconds_per_step + later;
  }
  return now_;
}

}  // namespace qwen_image::jobs
