// Where the time of a run goes: microseconds of each operation of each component.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <string_view>

namespace qwen_image {

// Filled by the thread that draws. Time is counted once: that of a scope inside another is the inner one's.
class Profile {
 public:
  using Operations = std::map<std::string, double, std::less<>>;  // microseconds by name

  class Scope;
  const std::map<std::string, Operations, std::less<>>& components() const { return components_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Place {
    std::string_view component = {}, operation = {};
  };
  // Gives the time since the last change to the place it was spent in. Returns that place.
  Place Enter(const Place& place);

  Place place_;
  Clock::time_point since_;
  std::map<std::string, Operations, std::less<>> components_;
};

// From its beginning to its end, time belongs to an operation. Names must outlive the scope. Without a
// profile it does nothing.
class Profile::Scope {
 public:
  // A component: what its operations do not account for is "other".
  static Scope Component(Profile* profile, std::string_view name) { return {profile, Place{name, "other"}}; }
  // Of the component around it.
  Scope(Profile* profile, std::string_view operation)
      : Scope(profile, Place{profile ? profile->place_.component : std::string_view(), operation}) {}
  ~Scope() {
    if (profile_) profile_->Enter(around_);
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Scope(Profile* profile, const Place& place) : profile_(profile) {
    if (profile_) around_ = profile_->Enter(place);
  }

  Profile* const profile_;
  Place around_;
};

}  // namespace qwen_image
