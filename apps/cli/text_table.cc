#include "text_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace qwen_image::cli {
namespace {

std::string Scaled(double value, const std::vector<const char*>& units) {
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < units.size()) {
    value /= 1000;
    ++unit;
  }
  const int decimals = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}", value, decimals, units[unit]);
}

}  // namespace

size_t DisplayWidth(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(),
                                           [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; }));
}

std::vector<std::string> TextTable::Lines() const {
  std::vector<size_t> widths(columns_.size());
  std::vector<bool> used(columns_.size());
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], DisplayWidth(row[i]));
      used[i] = used[i] || !row[i].empty();
    }
  }
  std::vector<std::string> lines;
  const auto add = [&](const auto& cell_of) {
    std::string line;
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (!used[i]) continue;
      const std::string& cell = cell_of(i);
      const std::string padding(widths[i] - std::min(widths[i], DisplayWidth(cell)), ' ');
      if (!line.empty() || i > 0) line += "  ";
      line += columns_[i].right ? padding + cell : cell + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back(std::move(line));
  };
  for (size_t i = 0; i < columns_.size(); ++i)
    widths[i] = std::max(widths[i], DisplayWidth(columns_[i].title));
  add([&](size_t i) -> const std::string& { return columns_[i].title; });
  static const std::string kEmpty;
  for (const auto& row : rows_)
    add([&](size_t i) -> const std::string& { return i < row.size() ? row[i] : kEmpty; });
  return lines;
}

std::string Wrap(std::string_view text, std::string_view first, size_t width) {
  const std::string indent(DisplayWidth(first), ' ');
  std::string result(first);
  size_t column = indent.size();
  bool begins = true;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!begins && column + 1 + DisplayWidth(word) > width) {
      result += "\n" + indent;
      column = indent.size();
      begins = true;
    }
    if (!begins) {
      result += ' ';
      ++column;
    }
    result += word;
    column += DisplayWidth(word);
    begins = false;
  }
  return result + "\n";
}

std::string HumanBytes(int64_t bytes) {
  return Scaled(static_cast<double>(bytes), {"B", "kB", "MB", "GB", "TB", "PB", "EB"});
}

std::string HumanCount(int64_t count) {
  if (count < 1000) return std::to_string(count);
  return Scaled(static_cast<double>(count), {"", "k", "M", "B", "T"});
}

std::string ShortNumber(double number) { return fmt::format("{:.3g}", number); }

}  // namespace qwen_image::cli
