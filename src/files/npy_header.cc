#include "files/npy_header.h"

#include <algorithm>
#include <optional>
#include <string>

#include "core/fail.h"
#include "files/text.h"

namespace qwen_image {
namespace {

constexpr size_t kMaxHeaderText = 65536;
constexpr size_t kMaxNpyDimensions = 64;  // NumPy's own limit

// The header of a .npy file: a Python dictionary with the keys descr (a string), fortran_order (a bool) and
// shape (a tuple of ints), each once, in any order.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, std::string_view where) : text_(text), where_(where) {}

  std::optional<std::string> descr;
  std::optional<bool> fortran_order;
  std::optional<Shape> shape;

  void Parse() {
    Expect('{');
    while (!TryTake('}')) {
      const std::string key = String();
      Expect(':');
      if (key == "descr" && !descr) {
        if (Peek() == '[') Refuse("structured data (a dtype with fields), which is not supported");
        descr = String();
      } else if (key == "fortran_order" && !fortran_order) {
        fortran_order = Bool();
      } else if (key == "shape" && !shape) {
        shape = Tuple();
      } else {
        Refuse("the key " + Quoted(key) + " is unknown or there twice");
      }
      if (!TryTake(',')) {
        Expect('}');
        break;
      }
    }
    SkipSpace();
    if (at_ != text_.size()) Refuse("characters after the dictionary");
    if (!descr || !fortran_order || !shape) Refuse("one of descr, fortran_order and shape is missing");
  }

 private:
  [[noreturn]] void Refuse(const std::string& what) const {
    Fail(ErrorKind::kBadInput, "{}: the header of this .npy file has {} (at character {})", where_, what,
         at_);
  }

  void SkipSpace() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }

  char Peek() {
    SkipSpace();
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  bool TryTake(char c) {
    if (Peek() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }

  void Expect(char c) {
    if (!TryTake(c)) Refuse(fmt::format("no '{}' where one is expected", c));
  }

  std::string String() {
    const char quote = Peek();
    if (quote != '\'' && quote != '"') Refuse("no string where one is expected");
    const size_t end = text_.find(quote, at_ + 1);
    if (end == text_.npos) Refuse("a string without an end");
    const std::string_view value = text_.substr(at_ + 1, end - at_ - 1);
    if (value.find('\\') != value.npos) Refuse("a string with a backslash");
    at_ = end + 1;
    return std::string(value);
  }

  bool Bool() {
    SkipSpace();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return value;
      }
    }
    Refuse("neither True nor False for fortran_order");
  }

  int64_t Dimension() {
    SkipSpace();
    const size_t start = at_;
    int64_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      if (__builtin_mul_overflow(value, 10, &value) ||
          __builtin_add_overflow(value, text_[at_] - '0', &value)) {
        Refuse("a dimension larger than any memory");
      }
    }
    if (at_ == start) Refuse("no dimension (a number that is not negative) where one is expected");
    return value;
  }

  Shape Tuple() {
    Shape dimensions;
    Expect('(');
    while (!TryTake(')')) {
      if (dimensions.size() == kMaxNpyDimensions)
        Refuse(fmt::format("more than {} dimensions", kMaxNpyDimensions));
      dimensions.push_back(Dimension());
      if (!TryTake(',')) {
        if (dimensions.size() == 1) Refuse("(n) where a tuple, (n,), is expected");
        Expect(')');
        break;
      }
    }
    return dimensions;
  }

  std::string_view text_;
  std::string_view where_;
  size_t at_ = 0;
};

const BlockFormat* FindType(const std::string& descr, std::string_view where) {
  const std::string little = descr.starts_with('>') ? "<" + descr.substr(1) : descr;
  if (const BlockFormat* type = FindNpyType(little)) return type;
  std::string_view hint;
  if (descr.find('O') != descr.npos) hint = " (Python objects are never read: they can run code)";
  if (descr.ends_with("V2")) hint = " (bfloat16? save it with .astype(numpy.float32))";
  Fail(ErrorKind::kBadInput,
       "{}: elements of type {} are not supported{}; expected one of <f2 <f4 <f8, <i2 <i4 <i8 |i1, <u2 <u4 "
       "<u8 |u1, |b1",
       where, Quoted(descr), hint);
}

std::string_view ReadHeaderText(std::span<const std::byte> bytes, std::string_view where) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(kNpyMagic) || text.size() < 10) {
    Fail(ErrorKind::kBadInput, "{} is not a .npy file: it does not start with \\x93NUMPY and a version",
         where);
  }
  const auto byte = [&](size_t i) { return static_cast<size_t>(static_cast<uint8_t>(text[i])); };
  const size_t major = byte(6);
  if (major < 1 || major > 3 || byte(7) != 0) {
    Fail(ErrorKind::kBadInput, "{}: version {}.{} of the .npy format; 1.0, 2.0 and 3.0 are known", where,
         major, byte(7));
  }
  const size_t length_bytes = major == 1 ? 2 : 4;
  const size_t start = 8 + length_bytes;
  if (text.size() < start) Fail(ErrorKind::kBadInput, "{} ends inside its .npy header", where);
  size_t length = 0;
  for (size_t i = 0; i < length_bytes; ++i) length |= byte(8 + i) << (8 * i);
  if (length > kMaxHeaderText || length > text.size() - start) {
    Fail(ErrorKind::kBadInput, "{}: a .npy header of {} bytes is announced; at most {} are possible here",
         where, length, std::min(kMaxHeaderText, text.size() - start));
  }
  return text.substr(start, length);
}

}  // namespace

NpyHeader ParseNpyHeader(std::span<const std::byte> start, uint64_t file_bytes, std::string_view where) {
  const std::string_view text = ReadHeaderText(start, where);
  HeaderParser parser(text, where);
  parser.Parse();
  NpyHeader header{.shape = *parser.shape, .type = FindType(*parser.descr, where)};
  // Checked for the product of the other dimensions too when one is 0, so that no part of the shape can wrap
  // later.
  int64_t size = header.type->bytes;
  bool empty = false;
  int64_t long_dimensions = 0;
  for (const int64_t dimension : header.shape) {
    if (dimension == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(size, dimension, &size)) {
      Fail(ErrorKind::kBadInput, "{}: shape {} is larger than any memory", where, ToString(header.shape));
    }
    if (dimension > 1) ++long_dimensions;
  }
  if (empty) size = 0;
  header.count = size / header.type->bytes;
  header.big_endian = parser.descr->starts_with('>');
  // With at most one dimension longer than 1 both orders are the same.
  header.fortran_order = *parser.fortran_order && !empty && long_dimensions > 1;
  header.data_begin =
      static_cast<size_t>(text.data() + text.size() - reinterpret_cast<const char*>(start.data()));
  const uint64_t present = file_bytes - header.data_begin;
  if (present != static_cast<uint64_t>(size)) {
    Fail(ErrorKind::kBadInput, "{}: {} bytes of data found, but shape {} of {} needs {}{}", where, present,
         ToString(header.shape), header.type->npy, size,
         present < static_cast<uint64_t>(size) ? "; the file may be incomplete" : "");
  }
  return header;
}

std::vector<std::byte> PlainElements(const NpyHeader& header, std::span<const std::byte> data, int64_t begin,
                                     int64_t count) {
  const auto bytes = static_cast<size_t>(header.type->bytes);
  std::vector<std::byte> plain(static_cast<size_t>(count) * bytes);
  for (int64_t i = 0; i < count; ++i) {
    int64_t from = begin + i;
    if (header.fortran_order) {
      // The place of the element in a file whose first axis is the innermost.
      int64_t rest = from, stride = header.count;
      from = 0;
      for (size_t axis = header.shape.size(); axis-- > 0;) {
        stride /= header.shape[axis];
        from += rest % header.shape[axis] * stride;
        rest /= header.shape[axis];
      }
    }
    const std::span<const std::byte> element = data.subspan(static_cast<size_t>(from) * bytes, bytes);
    std::byte* to = plain.data() + static_cast<size_t>(i) * bytes;
    if (header.big_endian) {
      std::reverse_copy(element.begin(), element.end(), to);
    } else {
      std::copy(element.begin(), element.end(), to);
    }
  }
  return plain;
}

}  // namespace qwen_image
