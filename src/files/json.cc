#include "files/json.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "core/fail.h"
#include "files/mmap.h"
#include "files/text.h"

namespace qwen_image {
namespace {

constexpr size_t kMaxJsonDepth = 64;

// Reads characters and leaves its position behind for messages: the SAX interface does not tell where it is.
class PositionIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  PositionIterator(const char* at, const char** position) : at_(at), position_(position) {}
  reference operator*() const { return *at_; }
  PositionIterator& operator++() {
    *position_ = ++at_;
    return *this;
  }
  bool operator==(const PositionIterator& other) const { return at_ == other.at_; }

 private:
  const char* at_;
  const char** position_;
};

std::string LineAndColumn(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, offset);
  const size_t line_start = before.rfind('\n') + 1;  // npos + 1 == 0
  return fmt::format("line {}, column {}", 1 + std::count(before.begin(), before.end(), '\n'),
                     offset - line_start);
}

// Builds the value like nlohmann's own parser, which would keep the last of duplicate keys and knows no
// limits.
class StrictBuilder : public nlohmann::json_sax<Json> {
 public:
  StrictBuilder(std::string_view text, std::string_view where, size_t max_values)
      : text_(text), where_(where), max_values_(max_values) {}

  Json Parse() {
    Json::sax_parse(PositionIterator(text_.data(), &position_),
                    PositionIterator(text_.data() + text_.size(), &position_), this);
    return std::move(root_);
  }

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value); }
  bool number_float(number_float_t value, const string_t&) override { return Add(value); }
  bool string(string_t& value) override { return Add(std::move(value)); }
  bool binary(binary_t&) override { Refuse("binary data"); }
  bool start_object(size_t) override { return Open(Json::object()); }
  bool start_array(size_t) override { return Open(Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(string_t& name) override {
    const auto [at, inserted] = open_.back()->emplace(name, nullptr);
    if (!inserted) Refuse("the key " + Quoted(name) + " occurs twice");
    member_ = &*at;
    return true;
  }

  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    std::string_view message = error.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 2: …": the bracket tells a user
    // nothing.
    if (const size_t end = message.find("] "); end != message.npos) message.remove_prefix(end + 2);
    Fail(ErrorKind::kBadInput, "{} is not valid JSON: {}", where_, Printable(message, 300));
  }

 private:
  [[noreturn]] void Refuse(const std::string& what) const {
    Fail(ErrorKind::kBadInput, "{} is not acceptable JSON: {} ({})", where_, what,
         LineAndColumn(text_, static_cast<size_t>(position_ - text_.data())));
  }

  Json* Place(Json&& value) {
    if (++values_ > max_values_) Refuse(fmt::format("more than {} values", max_values_));
    if (open_.empty()) return &(root_ = std::move(value));
    if (!open_.back()->is_array()) return &(*member_ = std::move(value));
    open_.back()->push_back(std::move(value));
    return &open_.back()->back();
  }

  bool Add(Json&& value) {
    Place(std::move(value));
    return true;
  }

  bool Open(Json&& container) {
    if (open_.size() == kMaxJsonDepth) Refuse(fmt::format("nested deeper than {} levels", kMaxJsonDepth));
    // The pointers stay valid: a container does not grow while one inside it is open.
    open_.push_back(Place(std::move(container)));
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  std::string_view text_;
  std::string_view where_;
  const size_t max_values_;
  const char* position_ = text_.data();
  Json root_;
  std::vector<Json*> open_;  // the containers around the current position, outermost first
  Json* member_ = nullptr;   // the place of the key read last
  size_t values_ = 0;
};

}  // namespace

Json ParseJson(std::string_view text, std::string_view where, size_t max_values) {
  // nlohmann takes a NUL for the end of the text, and would not see what stands behind it.
  if (const size_t nul = text.find('\0'); nul != text.npos) {
    Fail(ErrorKind::kBadInput, "{} is not valid JSON: a NUL byte at {}", where, LineAndColumn(text, nul + 1));
  }
  return StrictBuilder(text, where, max_values).Parse();
}

Json ReadJsonFile(const std::filesystem::path& path, size_t max_bytes) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  if (bytes.size() > max_bytes) {
    Fail(ErrorKind::kBadInput, "{} has {} bytes; a JSON file here may have at most {}", path.string(),
         bytes.size(), max_bytes);
  }
  if (bytes.empty()) {
    Fail(ErrorKind::kBadInput, "{} is empty; JSON is expected. The download may be incomplete",
         path.string());
  }
  Json json = ParseJson({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string());
  file.ThrowIfDamaged();
  return json;
}

}  // namespace qwen_image
