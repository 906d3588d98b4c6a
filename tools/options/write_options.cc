// Writes what is made from the declarations of settings into the files that hold it, between two lines that
// say so; with
// --check it only says which files are out of date.
//
//   write_options FOLDER [--check]
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "options/python_form.h"
#include "tables.h"

namespace qwen_image::options {
namespace {

struct Place {
  const char* file;
  std::string begin, end;  // lines, without their indentation
  std::string text;
};

std::vector<Place> Places() {
  const auto in_document = [](const char* file, const std::string& what, std::string text) -> Place {
    return {file, "<!-- " + what + ": written by ./run options -->", "<!-- end of " + what + " -->",
            std::move(text)};
  };
  const std::string begin = "# Settings: written by `./run options`.", end = "# End of the settings.";
  return {in_document("docs/options.md", "settings", OptionsTable()),
          in_document("docs/options.md", "gaps", WhyNotTable()),
          in_document("docs/server.md", "fields", ServerTable()),
          in_document("docs/server.md", "OpenAI's", OpenAiList()),
          in_document("docs/library.md", "keywords", PythonList()),
          {"python/qwen_image/__init__.py", begin, end, PythonParameters()}};
}

// `contents` with the text of a place; empty: the place is not there.
std::string WithText(const std::string& contents, const Place& place) {
  const size_t begin = contents.find(place.begin + "\n");
  const size_t end = contents.find(place.end, begin == contents.npos ? 0 : begin);
  if (begin == contents.npos || end == contents.npos) return "";
  const size_t from = begin + place.begin.size() + 1, to = contents.rfind('\n', end) + 1;
  return contents.substr(0, from) + place.text + contents.substr(to);
}

int Run(const std::filesystem::path& folder, bool check) {
  int wrong = 0;
  for (const Place& place : Places()) {
    const std::filesystem::path path = folder / place.file;
    std::ostringstream read;
    read << std::ifstream(path).rdbuf();
    const std::string wanted = WithText(read.str(), place);
    if (wanted == read.str()) continue;
    if (wanted.empty()) {
      std::fprintf(stderr, "%s: the line \"%s\" is missing, or its end\n", place.file, place.begin.c_str());
      ++wrong;
    } else if (check) {
      std::fprintf(stderr, "%s is out of date behind \"%s\"; ./run options writes it\n", place.file,
                   place.begin.c_str());
      ++wrong;
    } else {
      std::ofstream(path) << wanted;
    }
  }
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace qwen_image::options

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  return qwen_image::options::Run(argv[1], argc > 2 && std::string(argv[2]) == "--check");
}
