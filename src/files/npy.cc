#include "files/npy.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "core/dtype.h"
#include "core/fail.h"
#include "files/mmap.h"
#include "files/output_file.h"
#include "files/text.h"

namespace qwen_image {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are copied as they lie in the file");

constexpr std::string_view kMagic = "\x93NUMPY";
// NumPy itself refuses more than 10,000 characters unless told otherwise; a true header has about 120.
constexpr size_t kMaxHeaderBytes = 65536;
constexpr size_t kMaxDimensions = 64;  // NumPy's own limit

enum class Element { kF16, kF32, kF64, kBool, kU8, kI32, kI64 };

struct ElementType {
  std::string_view descr;
  Element element;
  size_t size;
};

constexpr ElementType kElementTypes[] = {{"<f2", Element::kF16, 2}, {"<f4", Element::kF32, 4},
                                         {"<f8", Element::kF64, 8}, {"|b1", Element::kBool, 1},
                                         {"|u1", Element::kU8, 1},  {"<i4", Element::kI32, 4},
                                         {"<i8", Element::kI64, 8}};

bool IsFloat(Element element) {
  return element == Element::kF16 || element == Element::kF32 || element == Element::kF64;
}

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
      if (dimensions.size() == kMaxDimensions) Refuse(fmt::format("more than {} dimensions", kMaxDimensions));
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

// A checked header and the bytes it describes.
struct View {
  Shape shape;
  ElementType type;
  int64_t count = 0;
  const std::byte* data = nullptr;
};

ElementType FindType(const std::string& descr, std::string_view where) {
  for (const ElementType& type : kElementTypes) {
    if (type.descr == descr) return type;
  }
  std::string_view hint;
  if (descr.find('O') != descr.npos) hint = " (Python objects are never read: they can run code)";
  if (descr.starts_with('>')) hint = " (big-endian; save it with .astype() to a little-endian type)";
  Fail(ErrorKind::kBadInput,
       "{}: elements of type {} are not supported{}; expected one of <f4 <f8 <f2 <i8 <i4 |u1 |b1", where,
       Quoted(descr), hint);
}

std::string_view ReadHeaderText(std::span<const std::byte> bytes, std::string_view where) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(kMagic) || text.size() < 10) {
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
  if (length > kMaxHeaderBytes || length > text.size() - start) {
    Fail(ErrorKind::kBadInput, "{}: a .npy header of {} bytes is announced; at most {} are possible here",
         where, length, std::min(kMaxHeaderBytes, text.size() - start));
  }
  return text.substr(start, length);
}

View ParseView(std::span<const std::byte> bytes, std::string_view where) {
  const std::string_view header_text = ReadHeaderText(bytes, where);
  HeaderParser header(header_text, where);
  header.Parse();
  View view;
  view.type = FindType(*header.descr, where);
  view.shape = *header.shape;
  // Checked for the product of the other dimensions too when one is 0, so that no part of the shape can wrap
  // later.
  int64_t size = static_cast<int64_t>(view.type.size);
  bool empty = false;
  int64_t long_dimensions = 0;
  for (const int64_t dimension : view.shape) {
    if (dimension == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(size, dimension, &size)) {
      Fail(ErrorKind::kBadInput, "{}: shape {} is larger than any memory", where, ToString(view.shape));
    }
    if (dimension > 1) ++long_dimensions;
  }
  if (empty) size = 0;
  view.count = size / static_cast<int64_t>(view.type.size);
  // With at most one dimension longer than 1 both orders are the same.
  if (*header.fortran_order && !empty && long_dimensions > 1) {
    Fail(ErrorKind::kBadInput, "{}: Fortran order is not supported; save it with numpy.ascontiguousarray()",
         where);
  }
  const size_t start = static_cast<size_t>(header_text.data() + header_text.size() -
                                           reinterpret_cast<const char*>(bytes.data()));
  const size_t present = bytes.size() - start;
  if (present != static_cast<size_t>(size)) {
    Fail(ErrorKind::kBadInput, "{}: {} bytes of data found, but shape {} of {} needs {}{}", where, present,
         ToString(view.shape), view.type.descr, size,
         present < static_cast<size_t>(size) ? "; the file may be incomplete" : "");
  }
  view.data = bytes.data() + start;
  return view;
}

template <typename From, typename To>
void Convert(const std::byte* from, int64_t count, To* to) {
  for (int64_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, from + i * static_cast<int64_t>(sizeof(From)), sizeof(From));  // may be unaligned
    to[i] = static_cast<To>(value);
  }
}

void CopyFloats(const View& view, float* to) {
  if (view.count == 0) return;
  switch (view.type.element) {
    case Element::kF64:
      return Convert<double>(view.data, view.count, to);
    case Element::kF16:
      return ConvertToFloat(view.data, DType::kF16, view.count, to);
    default:
      return ConvertToFloat(view.data, DType::kF32, view.count, to);
  }
}

void CopyIntegers(const View& view, int64_t* to) {
  if (view.count == 0) return;
  switch (view.type.element) {
    case Element::kI64:
      return Convert<int64_t>(view.data, view.count, to);
    case Element::kI32:
      return Convert<int32_t>(view.data, view.count, to);
    default:
      break;
  }
  Convert<uint8_t>(view.data, view.count, to);
  if (view.type.element == Element::kBool) {
    for (int64_t i = 0; i < view.count; ++i) to[i] = to[i] != 0;
  }
}

void WriteArray(const std::filesystem::path& path, const void* data, size_t element_size,
                std::string_view descr, const Shape& shape) {
  const size_t count = static_cast<size_t>(ElementCount(shape));
  std::string tuple;
  for (const int64_t dimension : shape) tuple += fmt::format("{}, ", dimension);
  if (shape.size() > 1) tuple.resize(tuple.size() - 2);
  if (shape.size() == 1) tuple.resize(tuple.size() - 1);
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, tuple);
  // As NumPy does: the data start at a multiple of 64 bytes, and the header ends with a line feed.
  const size_t before = kMagic.size() + 2 + 2;
  header.resize((before + header.size() + 1 + 63) / 64 * 64 - before - 1, ' ');
  header += '\n';
  if (header.size() > 0xffff)
    Fail(ErrorKind::kInternal, "too many dimensions for a .npy file: {}", shape.size());
  std::string start(kMagic);
  start += '\x01';
  start += '\0';
  start += static_cast<char>(header.size() & 0xff);
  start += static_cast<char>(header.size() >> 8);
  start += header;
  OutputFile file(path);
  file.Write(start.data(), start.size());
  file.Write(data, count * element_size);
  file.Commit();
}

}  // namespace

NpyArray ParseNpy(std::span<const std::byte> bytes, std::string_view where) {
  const View view = ParseView(bytes, where);
  NpyArray array{view.shape, std::string(view.type.descr), {}};
  if (IsFloat(view.type.element)) {
    CopyFloats(view, array.values.emplace<std::vector<float>>(static_cast<size_t>(view.count)).data());
  } else {
    CopyIntegers(view, array.values.emplace<std::vector<int64_t>>(static_cast<size_t>(view.count)).data());
  }
  return array;
}

NpyArray ReadNpy(const std::filesystem::path& path) {
  const MappedFile file(path);
  return ParseNpy(file.bytes(), path.string());
}

Tensor ReadNpyFloat(const std::filesystem::path& path) {
  const MappedFile file(path);
  const View view = ParseView(file.bytes(), path.string());
  if (!IsFloat(view.type.element)) {
    Fail(ErrorKind::kBadInput, "{} holds elements of type {}; floats are expected", path.string(),
         view.type.descr);
  }
  Tensor tensor(view.shape);
  CopyFloats(view, tensor.data());
  return tensor;
}

void WriteNpy(const std::filesystem::path& path, const float* data, const Shape& shape) {
  WriteArray(path, data, sizeof(*data), "<f4", shape);
}

void WriteNpy(const std::filesystem::path& path, const int64_t* data, const Shape& shape) {
  WriteArray(path, data, sizeof(*data), "<i8", shape);
}

void WriteNpy(const std::filesystem::path& path, const uint8_t* data, const Shape& shape) {
  WriteArray(path, data, sizeof(*data), "|u1", shape);
}

}  // namespace qwen_image
