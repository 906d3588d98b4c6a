#include "server/page/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <utility>

namespace qwen_image::page {
namespace {

using ::testing::HasSubstr;

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(Page, HasEveryFileOfItsFolderByteByByte) {
  const std::filesystem::path folder = std::filesystem::path(QWEN_IMAGE_SOURCE_DIR) / "apps/server/page";
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string(), kind = entry.path().extension().string();
    if (kind != ".html" && kind != ".css" && kind != ".js" && kind != ".svg") continue;
    const http::Response* reply = FindFile(name == "index.html" ? "/" : "/" + name);
    ASSERT_NE(reply, nullptr) << name << " is missing in apps/server/page/CMakeLists.txt";
    EXPECT_EQ(reply->body, ReadFile(entry.path())) << name;
    ++files;
  }
  EXPECT_GE(files, 4);
}

TEST(Page, RepliesSayWhatTheyAre) {
  EXPECT_EQ(FindFile("/")->content_type, "text/html; charset=utf-8");
  EXPECT_EQ(FindFile("/style.css")->content_type, "text/css; charset=utf-8");
  EXPECT_EQ(FindFile("/app.js")->content_type, "text/javascript; charset=utf-8");
  EXPECT_EQ(FindFile("/icon.svg")->content_type, "image/svg+xml");
  EXPECT_EQ(FindFile("/")->status, 200);
  EXPECT_THAT(FindFile("/")->headers, ::testing::Contains(std::make_pair("Cache-Control", "no-cache")));
}

TEST(Page, HasNothingElse) {
  for (const char* path :
       {"", "//", "/index.html", "/files.cc", "/../files.cc", "/APP.JS", "/app.js/", "app.js"})
    EXPECT_EQ(FindFile(path), nullptr) << path;
}

// The content security policy forbids all of these; a browser would silently leave them out.
TEST(Page, HasNoInlineScriptOrStyleAndNoForeignAddress) {
  const std::string& html = FindFile("/")->body;
  EXPECT_FALSE(std::regex_search(html, std::regex(R"(\sstyle=|<style|\son[a-z]+=|javascript:)")));
  EXPECT_FALSE(std::regex_search(html, std::regex(R"(<script(?![^>]* src="/))")));
  EXPECT_FALSE(
      std::regex_search(html + FindFile("/style.css")->body, std::regex(R"(https?://|@import|url\()")));
}

}  // namespace
}  // namespace qwen_image::page
