#include "server/http/log_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

namespace qwen_image::http {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string ReadToEnd(int descriptor) {
  std::string text;
  char block[4096];
  for (ssize_t size; (size = read(descriptor, block, sizeof block)) > 0;)
    text.append(block, static_cast<size_t>(size));
  return text;
}

TEST(LogWriter, AReaderThatStallsHoldsUpNobody) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const std::string line(1000, 'x');
  {
    LogWriter log(ends[1], 10'000);
    for (int i = 0; i < 1000; ++i) log.Write(line);  // more than pipe and queue hold
    std::string text;
    char block[4096];
    while (text.find("dropped_lines") == text.npos) {
      const ssize_t size = read(ends[0], block, sizeof block);
      ASSERT_GT(size, 0);
      text.append(block, static_cast<size_t>(size));
    }
    EXPECT_THAT(text, StartsWith(line + "\n"));
    log.Write("the last one");
  }
  close(ends[1]);
  EXPECT_THAT(ReadToEnd(ends[0]), HasSubstr("the last one\n"));
  close(ends[0]);
}

TEST(LogWriter, EndsWhileNobodyReads) {
  std::signal(SIGPIPE, SIG_IGN);  // as the program does
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  {
    LogWriter log(ends[1], 1 << 20);
    for (int i = 0; i < 1000; ++i) log.Write(std::string(1000, 'x'));
  }
  // Its thread is let go: it ends with the process, or when somebody reads.
  close(ends[0]);
}

}  // namespace
}  // namespace qwen_image::http
