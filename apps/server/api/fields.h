// The members of a request's JSON object. Every error is kUsage and names the field, what came and what is
// allowed.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "files/json.h"
#include "files/text.h"
#include "qwen_image/error.h"

namespace qwen_image::api {

// The body of a request. Throws Error kUsage if it is no JSON, or no object.
Json ParseBody(std::string_view body);

// Throws unless the text is UTF-8 without NUL and not longer.
void CheckText(const std::string& name, std::string_view text, size_t max_bytes);

// What is wrong with one field of a request.
class FieldError : public Error {
 public:
  // field: an index behind it ("input_images[1]") is left out
  FieldError(const std::string& field, std::string message)
      : Error(ErrorKind::kUsage, std::move(message)), field_(Printable(field.substr(0, field.find('[')))) {}
  const std::string& field() const { return field_; }

 private:
  std::string field_;
};

class Fields {
 public:
  explicit Fields(const Json& body);  // an object, which must outlive this

  // Null is as good as absent, for each of these.
  const Json* Find(const std::string& name) const;
  std::optional<std::string> Text(const std::string& name, size_t max_bytes) const;
  std::optional<int64_t> Whole(const std::string& name, int64_t least, int64_t most) const;  // 20 and 20.0
  std::optional<double> Number(const std::string& name) const;  // finite; who uses it knows the range
  std::optional<bool> Flag(const std::string& name) const;
  std::optional<std::string> OneOf(const std::string& name,
                                   std::initializer_list<std::string_view> allowed) const;

  // "steps must be a whole number from 1 to 200, not -1"
  [[noreturn]] void Refuse(const std::string& name, const std::string& allowed) const;
  void RefuseUnknown(const std::vector<std::string_view>& known) const;

 private:
  const Json& body_;
};

}  // namespace qwen_image::api
