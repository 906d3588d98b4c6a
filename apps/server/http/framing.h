// How a request was cut into header and body: forms that programs on its way may read differently are
// refused.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "server/http/wire.h"

namespace qwen_image::http {

// Of the bytes at the start of a request: whether its header may go on behind them. Stops at the first byte
// of what is no HTTP at all.
bool HeaderGoesOn(std::string_view bytes);
// Whether a line of the header is continued in the next one, which HTTP has given up. Beast joins them
// unseen.
bool HasFoldedLine(std::string_view bytes);

// The encodings of the body: chunks or none.
std::optional<Refusal> CheckEncoding(const Parser& parser);

// Counts what a body in chunks holds besides its data, which is all that the parser's limit counts.
class ChunkMeter {
 public:
  explicit ChunkMeter(uint64_t most) : most_(most) {}
  void operator()(uint64_t size, boost::beast::string_view extensions, boost::system::error_code& error);

 private:
  const uint64_t most_;
  uint64_t bytes_ = 0;
};

}  // namespace qwen_image::http
