#include "server/http/multipart.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "core/fail.h"
#include "files/text.h"
#include "server/http/lower.h"

namespace qwen_image::http {
namespace {

constexpr std::string_view kBlanks = " \t", kLineEnd = "\r\n";

std::string_view Trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

// A header's value: `form-data; name="a"; filename="b"`.
struct HeaderValue {
  std::string value;                              // in lower case
  std::map<std::string, std::string> parameters;  // names in lower case
};

// Takes the text in quotes from the front of `rest`. \" and \\ are a quote and a backslash; before anything
// else a backslash is itself, as in names of files on Windows.
std::string TakeQuoted(std::string_view& rest) {
  std::string text;
  size_t i = 1;
  for (; i < rest.size() && rest[i] != '"'; ++i) {
    const bool escapes =
        rest[i] == '\\' && i + 1 < rest.size() && (rest[i + 1] == '"' || rest[i + 1] == '\\');
    text += rest[escapes ? ++i : i];
  }
  if (i == rest.size())
    Fail(ErrorKind::kBadInput, "a form's header has a quote without an end: {}", Quoted(rest));
  rest.remove_prefix(i + 1);
  return text;
}

HeaderValue ParseHeaderValue(std::string_view text) {
  size_t end = std::min(text.find(';'), text.size());
  HeaderValue header{Lower(Trimmed(text.substr(0, end))), {}};
  std::string_view rest = text.substr(end);
  while (!rest.empty()) {
    if (!rest.starts_with(';'))
      Fail(ErrorKind::kBadInput, "a form's header has {} where ; or its end is expected", Quoted(rest));
    rest.remove_prefix(1);
    if (Trimmed(rest).empty()) break;  // "form-data;"
    const size_t equals = rest.find('=');
    if (equals == rest.npos)
      Fail(ErrorKind::kBadInput, "a form's header has a parameter without =: {}", Quoted(rest));
    const std::string name = Lower(Trimmed(rest.substr(0, equals)));
    rest.remove_prefix(equals + 1);
    rest.remove_prefix(std::min(rest.find_first_not_of(kBlanks), rest.size()));
    std::string value;
    if (rest.starts_with('"')) {
      value = TakeQuoted(rest);
      rest.remove_prefix(std::min(rest.find_first_not_of(kBlanks), rest.size()));
    } else {
      end = std::min(rest.find(';'), rest.size());
      value = Trimmed(rest.substr(0, end));
      rest.remove_prefix(end);
    }
    if (!header.parameters.emplace(name, value).second)
      Fail(ErrorKind::kBadInput, "a form's header names {} twice", Quoted(name));
  }
  return header;
}

std::string BoundaryOf(std::string_view content_type) {
  const HeaderValue header = ParseHeaderValue(content_type);
  if (header.value != "multipart/form-data")
    Fail(ErrorKind::kBadInput, "the request's Content-Type is {}; multipart/form-data is expected",
         Quoted(header.value));
  const auto found = header.parameters.find("boundary");
  if (found == header.parameters.end())
    Fail(ErrorKind::kBadInput, "the request's Content-Type, multipart/form-data, names no boundary");
  const std::string& boundary = found->second;
  // RFC 2046, 5.1.1
  const auto allowed = [](unsigned char c) {
    return std::isalnum(c) ||
           std::string_view("'()+_,-./:=? ").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (boundary.empty() || boundary.size() > 70 || boundary.ends_with(' ') ||
      !std::all_of(boundary.begin(), boundary.end(), allowed))
    Fail(ErrorKind::kBadInput,
         "the boundary of multipart/form-data is {}; 1 to 70 letters, digits and '()+_,-./:=? are allowed",
         Quoted(boundary));
  return boundary;
}

// What browsers write for the characters that would end a name.
std::string Unescaped(const std::string& name) {
  std::string text;
  for (size_t i = 0; i < name.size(); ++i) {
    const std::string code = Lower(std::string_view(name).substr(i, 3));
    const char c = code == "%22" ? '"' : code == "%0d" ? '\r' : code == "%0a" ? '\n' : '\0';
    text += c ? c : name[i];
    if (c) i += 2;
  }
  return text;
}

// headers: lines, each with its end
FormPart ReadHeaders(std::string_view headers) {
  FormPart part;
  bool named = false;
  while (!headers.empty()) {
    const size_t end = headers.find(kLineEnd);
    const std::string_view line = headers.substr(0, end);
    headers.remove_prefix(end + kLineEnd.size());
    const size_t colon = line.find(':');
    const bool fine = colon != line.npos && colon > 0 &&
                      line.find_first_of(std::string_view("\r\n\0", 3)) == line.npos &&
                      line.find_first_of(kBlanks) > colon;
    if (!fine) Fail(ErrorKind::kBadInput, "a part of the form has a header that is none: {}", Quoted(line));
    const std::string name = Lower(line.substr(0, colon));
    const HeaderValue header = name == "content-disposition" || name == "content-transfer-encoding"
                                   ? ParseHeaderValue(line.substr(colon + 1))
                                   : HeaderValue{};
    if (name == "content-transfer-encoding" && header.value != "binary" && header.value != "8bit" &&
        header.value != "7bit")
      Fail(ErrorKind::kBadInput, "a part of the form is encoded as {}; send it as it is",
           Quoted(header.value));
    if (name != "content-disposition") continue;
    const auto found = header.parameters.find("name");
    if (named || header.value != "form-data" || found == header.parameters.end())
      Fail(ErrorKind::kBadInput,
           "a part of the form has the header {}; one form-data with a name is expected", Quoted(line));
    named = true;
    part.name = Unescaped(found->second);
    part.is_file = header.parameters.contains("filename") || header.parameters.contains("filename*");
  }
  if (!named) Fail(ErrorKind::kBadInput, "a part of the form has no Content-Disposition, and so no name");
  return part;
}

// Walks over a form's body.
class FormReader {
 public:
  FormReader(std::string_view body, const std::string& boundary, const MultipartLimits& limits)
      : rest_(body), delimiter_("\r\n--" + boundary), limits_(limits) {
    // The first line has no line end before it.
    if (!rest_.starts_with(std::string_view(delimiter_).substr(kLineEnd.size())))
      Fail(ErrorKind::kBadInput, "the form does not begin with its boundary");
    rest_.remove_prefix(delimiter_.size() - kLineEnd.size());
  }

  // What follows a boundary: a part, or the end.
  bool AtEnd() {
    if (rest_.starts_with("--")) return true;
    rest_.remove_prefix(std::min(rest_.find_first_not_of(kBlanks), rest_.size()));
    if (!rest_.starts_with(kLineEnd))
      Fail(ErrorKind::kBadInput, "the form is cut off, or has something else behind a boundary");
    rest_.remove_prefix(kLineEnd.size());
    return false;
  }

  FormPart Next() {
    // An empty line ends the headers.
    const std::string_view window = rest_.substr(0, limits_.header_bytes);
    const size_t blank = window.starts_with(kLineEnd) ? 0 : window.find("\r\n\r\n");
    if (blank == window.npos)
      Fail(ErrorKind::kBadInput, "a part of the form has headers without an end, or of more than {} bytes",
           limits_.header_bytes);
    const size_t headers = blank == 0 ? 0 : blank + kLineEnd.size();
    FormPart part = ReadHeaders(rest_.substr(0, headers));
    rest_.remove_prefix(headers + kLineEnd.size());
    const size_t end = FindBoundary();
    part.contents = rest_.substr(0, end);
    rest_.remove_prefix(end + delimiter_.size());
    return part;
  }

 private:
  // The same characters at the start of a longer line are contents.
  size_t FindBoundary() const {
    for (size_t at = rest_.find(delimiter_); at != rest_.npos; at = rest_.find(delimiter_, at + 1)) {
      const std::string_view after = rest_.substr(at + delimiter_.size());
      const size_t text = std::min(after.find_first_not_of(kBlanks), after.size());
      if (after.starts_with("--") || after.substr(text).starts_with(kLineEnd)) return at;
    }
    Fail(ErrorKind::kBadInput, "the form ends without its last boundary: it is cut off");
  }

  std::string_view rest_;
  std::string delimiter_;
  const MultipartLimits& limits_;
};

}  // namespace

bool IsMultipart(std::string_view content_type) {
  return Lower(Trimmed(content_type.substr(0, content_type.find(';')))) == "multipart/form-data";
}

std::vector<FormPart> ParseMultipart(std::string_view content_type, std::string_view body,
                                     const MultipartLimits& limits) {
  FormReader reader(body, BoundaryOf(content_type), limits);
  std::vector<FormPart> parts;
  while (!reader.AtEnd()) {
    if (parts.size() == limits.parts)
      Fail(ErrorKind::kBadInput, "the form has more than {} parts", limits.parts);
    parts.push_back(reader.Next());
  }
  return parts;
}

}  // namespace qwen_image::http
