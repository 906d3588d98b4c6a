#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <string>

#include "qwen_image/error.h"
#include "targets.h"

namespace qwen_image {
namespace {

[[noreturn]] void Report(const char* what, const std::string& message) {
  std::fprintf(stderr, "fuzz: %s: %s\n", what, message.c_str());
  std::abort();
}

// Names and values of a file stand in messages; they must not reach a terminal as they are.
bool IsShowable(const std::string& message) {
  return !message.empty() && std::none_of(message.begin(), message.end(), [](unsigned char c) {
    return (c < 0x20 && c != '\n') || c == 0x7f;
  });
}

}  // namespace

const FuzzTarget* FindTarget(std::string_view name) {
  const auto* found = std::find_if(std::begin(kFuzzTargets), std::end(kFuzzTargets),
                                   [&](const FuzzTarget& target) { return target.name == name; });
  return found == std::end(kFuzzTargets) ? nullptr : found;
}

void RunTarget(const FuzzTarget& target, std::string_view bytes) {
  try {
    target.run(bytes);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kBadInput) Report("an error of a wrong kind", error.message());
    if (!IsShowable(error.message())) Report("a message that cannot be shown", error.message());
  } catch (const std::exception& error) {
    Report("an exception that is no Error", error.what());
  }
}

}  // namespace qwen_image
