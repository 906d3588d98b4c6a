// How fast bytes arrive, by what the last seconds brought: a line that was slow an hour ago says nothing
// about the time that is left.
#pragma once

#include <cstdint>
#include <deque>

namespace qwen_image::hub {

class TransferRate {
 public:
  // `bytes` in all, `seconds` after any fixed moment. Neither should go back.
  void Update(double seconds, uint64_t bytes) {
    constexpr double kWindow = 20, kSpacing = 0.25;
    last_ = {seconds, bytes};
    if (samples_.empty() || seconds - samples_.back().seconds >= kSpacing) samples_.push_back(last_);
    while (samples_.size() > 1 && seconds - samples_[1].seconds >= kWindow) samples_.pop_front();
  }

  // 0: not known yet.
  double BytesPerSecond() const {
    if (samples_.empty() || last_.bytes <= samples_.front().bytes) return 0;
    const double seconds = last_.seconds - samples_.front().seconds;
    return seconds > 0 ? static_cast<double>(last_.bytes - samples_.front().bytes) / seconds : 0;
  }

 private:
  struct Sample {
    double seconds = 0;
    uint64_t bytes = 0;
  };
  std::deque<Sample> samples_;  // of the window, the oldest first
  Sample last_;
};

}  // namespace qwen_image::hub
