#include "files/gguf_value.h"

#include <bit>
#include <iterator>
#include <limits>

#include "files/text.h"

namespace qwen_image {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are copied from the file");

struct TypeTraits {
  std::string_view name;
  uint64_t min_bytes;  // of a value in the file; all have so many, except strings and arrays
};
constexpr TypeTraits kTraits[] = {{"uint8", 1},  {"int8", 1},    {"uint16", 2}, {"int16", 2},  {"uint32", 4},
                                  {"int32", 4},  {"float32", 4}, {"bool", 1},   {"string", 8}, {"array", 12},
                                  {"uint64", 8}, {"int64", 8},   {"float64", 8}};

// No writer nests arrays so far; the limit keeps a hostile file from exhausting the stack.
constexpr int kMaxArrayDepth = 4;

const TypeTraits& TraitsOf(GgufType type) { return kTraits[static_cast<size_t>(type)]; }

GgufArray SkipArray(GgufCursor& cursor, int depth) {
  if (depth > kMaxArrayDepth)
    cursor.RefuseHere("arrays within arrays deeper than {}; the file may be damaged", kMaxArrayDepth);
  GgufArray array;
  array.type = ReadType(cursor);
  array.count = cursor.Read<uint64_t>();
  array.begin = cursor.position();
  const uint64_t min_bytes = TraitsOf(array.type).min_bytes;
  if (array.count > cursor.left() / min_bytes) {
    cursor.RefuseHere(
        "an array of {} values of type {} is announced, and the file has {} more bytes; it may be damaged or "
        "incomplete",
        array.count, NameOf(array.type), cursor.left());
  }
  if (array.type == GgufType::kString) {
    for (uint64_t i = 0; i < array.count; ++i) cursor.ReadString();
  } else if (array.type == GgufType::kArray) {
    for (uint64_t i = 0; i < array.count; ++i) SkipArray(cursor, depth + 1);
  } else {
    cursor.Skip(array.count * min_bytes);
  }
  return array;
}

}  // namespace

const std::byte* GgufCursor::Take(uint64_t count) {
  if (count > left()) {
    Refuse(
        "the file ends within {}: {} bytes are expected at byte {}, {} are left; the download may be "
        "incomplete",
        place_, count, position_, left());
  }
  const std::byte* taken = bytes_.data() + position_;
  position_ += count;
  return taken;
}

std::string_view GgufCursor::ReadString() {
  const auto length = Read<uint64_t>();
  return {reinterpret_cast<const char*>(Take(length)), length};
}

std::string_view NameOf(GgufType type) { return TraitsOf(type).name; }

bool IsInteger(GgufType type) {
  return type <= GgufType::kI32 || type == GgufType::kU64 || type == GgufType::kI64;
}

GgufType ReadType(GgufCursor& cursor) {
  const auto number = cursor.Read<uint32_t>();
  if (number >= std::size(kTraits)) {
    cursor.RefuseHere("type {}, and 0 to {} are known; the file may be damaged or newer than this program",
                      number, std::size(kTraits) - 1);
  }
  return static_cast<GgufType>(number);
}

int64_t ReadInteger(GgufType type, GgufCursor& cursor) {
  switch (type) {
    case GgufType::kU8:
      return cursor.Read<uint8_t>();
    case GgufType::kI8:
      return cursor.Read<int8_t>();
    case GgufType::kU16:
      return cursor.Read<uint16_t>();
    case GgufType::kI16:
      return cursor.Read<int16_t>();
    case GgufType::kU32:
      return cursor.Read<uint32_t>();
    case GgufType::kI32:
      return cursor.Read<int32_t>();
    case GgufType::kI64:
      return cursor.Read<int64_t>();
    case GgufType::kU64: {
      const auto value = cursor.Read<uint64_t>();
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        cursor.RefuseHere("{} is larger than any number that is expected", value);
      }
      return static_cast<int64_t>(value);
    }
    default:
      Fail(ErrorKind::kInternal, "{} is not an integer type", NameOf(type));
  }
}

std::string ReadAsText(GgufType type, GgufCursor& cursor) {
  switch (type) {
    case GgufType::kString: {
      const std::string_view text = cursor.ReadString();
      if (!IsUtf8(text)) cursor.RefuseHere("{} is not UTF-8; the file may be damaged", Quoted(text));
      return std::string(text);
    }
    case GgufType::kBool: {
      const auto value = cursor.Read<uint8_t>();
      if (value > 1) cursor.RefuseHere("a bool of {}, 0 or 1 is expected; the file may be damaged", value);
      return value ? "true" : "false";
    }
    case GgufType::kU64:
      return fmt::format("{}", cursor.Read<uint64_t>());
    case GgufType::kF32:
      return fmt::format("{}", cursor.Read<float>());
    case GgufType::kF64:
      return fmt::format("{}", cursor.Read<double>());
    default:
      return fmt::format("{}", ReadInteger(type, cursor));
  }
}

GgufArray SkipArray(GgufCursor& cursor) { return SkipArray(cursor, 1); }

}  // namespace qwen_image
