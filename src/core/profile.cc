#include "core/profile.h"

#include <utility>

namespace qwen_image {

Profile::Place Profile::Enter(const Place& place) {
  const Clock::time_point now = Clock::now();
  if (!place_.component.empty()) {
    Operations& operations = components_[std::string(place_.component)];
    operations[std::string(place_.operation)] +=
        std::chrono::duration<double, std::micro>(now - since_).count();
  }
  since_ = now;
  return std::exchange(place_, place);
}

}  // namespace qwen_image
