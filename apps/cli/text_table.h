// Lines of aligned columns, and figures that people can read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace qwen_image::cli {

size_t DisplayWidth(std::string_view text);  // characters, for text without wide ones

class TextTable {
 public:
  struct Column {
    std::string title;
    bool right = true;  // aligned
  };
  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

  void AddRow(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // Empty columns are left out. The first line has the titles.
  std::vector<std::string> Lines() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

constexpr size_t kReportWidth = 110;  // of running text

// Breaks at spaces; the first line begins with `first`, the others with as many spaces.
std::string Wrap(std::string_view text, std::string_view first, size_t width);

std::string HumanBytes(int64_t bytes);   // "512 B", "4.99 MB", "40.9 GB"
std::string HumanCount(int64_t count);   // "12", "2.48 M", "20.4 B"
std::string ShortNumber(double number);  // three digits: "-0.000138", "1.2e-08"

}  // namespace qwen_image::cli
