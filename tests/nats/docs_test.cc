// What docs/machines.md tells a user to type about jobs on a NATS server is typed here, with the address of
// the test's.
#include <fstream>

#include "nats_fixture.h"

namespace qwen_image {
namespace {

constexpr std::string_view kProgram = "build/release/qwen-image ";
constexpr std::string_view kUrl = "nats://127.0.0.1:4222";

Arguments WordsOf(std::string line, const std::string& url) {
  line = line.substr(kProgram.size(), line.find(" #") - kProgram.size());
  if (const size_t at = line.find(kUrl); at != line.npos) line.replace(at, kUrl.size(), url);
  std::istringstream words(line);
  return {std::istream_iterator<std::string>(words), {}};
}

TEST_F(Nats, TheCommandsOfTheDocumentWork) {
  const NatsServer server(folder_.path());
  std::ifstream document(kSource / "docs/machines.md");
  std::vector<std::unique_ptr<RunningProgram>> running;
  RunOptions options;
  options.folder = folder_.path();
  std::string jobs;
  for (std::string line; std::getline(document, line);) {
    if (line.starts_with("{\"prompt\"")) jobs += line + "\n";
  }
  folder_.Write("jobs.jsonl", jobs);
  document.clear();
  document.seekg(0);
  int submitted = 0;
  for (std::string line; std::getline(document, line);) {
    if (!line.starts_with(kProgram) || line.find("--nats") == line.npos) continue;
    const Arguments words = WordsOf(line, server.url());
    if (words.front() == "submit") {
      const RunResult result = Run(words);
      EXPECT_EQ(result.exit_code, 0) << line << "\n" << result.err;
      ++submitted;
    } else {
      running.push_back(std::make_unique<RunningProgram>(words, options));
      EXPECT_NE(running.back()->WaitForOutput("\n"), "") << line;
    }
  }
  EXPECT_EQ(running.size(), 2u);
  EXPECT_EQ(submitted, 1);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(Path("pictures")), {}), 3);
}

}  // namespace
}  // namespace qwen_image
