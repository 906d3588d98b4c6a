#include "prove/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "files/testing.h"
#include "prove/folder.h"

namespace qwen_image::prove {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Report WithPart(Json part) {
  return {
      .document = {{"schema", kSchema}, {"version", "1"}, {"passed", false}, {"parts", {std::move(part)}}},
      .pictures = {}};
}

TEST(Page, TextIsEscaped) {
  const std::string html = PageHtml(WithPart({{"name", "loading"},
                                              {"title", "loading"},
                                              {"status", kFailed},
                                              {"why", "<script>alert(1)</script>"}}));
  EXPECT_THAT(html, AllOf(HasSubstr("&lt;script&gt;alert"), Not(HasSubstr("<script>")), HasSubstr("FAILED")));
}

TEST(Page, BrokenValuesAreShown) {
  const Json row = {{"block", 3},  {"stream", "img"}, {"isolated", nullptr}, {"accumulated", 1e-5},
                    {"min", -2.0}, {"max", 4.5e7},    {"rms", 1.0},          {"nan", 7},
                    {"inf", 0},    {"unusual", true}};
  const std::string html = PageHtml(WithPart({{"name", "diffusers"},
                                              {"title", "t"},
                                              {"status", kFailed},
                                              {"why", "NaN"},
                                              {"versions", Json::object()},
                                              {"drawn", Json::object()},
                                              {"blocks", {row}},
                                              {"steps", Json::array()}}));
  EXPECT_THAT(html,
              AllOf(HasSubstr("<tr class=\"bad\"><td>3 img</td><td>NaN</td>"), HasSubstr("<td>7, 0</td>"),
                    HasSubstr("4.5e+07"), HasSubstr("beyond the known range"), HasSubstr("<svg")));
}

TEST(ReportFolder, RefusesWhatIsNotItsOwn) {
  const TempFolder folder;
  folder.Write("report/holiday.jpg", "x");
  EXPECT_THAT(MessageOf(ErrorKind::kUsage, [&] { ReportFolder{folder.path() / "report"}; }),
              HasSubstr("holiday.jpg"));
  const fs::path file = folder.Write("file", "x");
  EXPECT_THAT(MessageOf(ErrorKind::kUsage, [&] { ReportFolder{file}; }), HasSubstr("is a file"));
  EXPECT_THAT(MessageOf(ErrorKind::kCannotWrite, [&] { ReportFolder{file / "below"}; }), HasSubstr("cannot"));
}

TEST(ReportFolder, LeavesNothingWithoutAReport) {
  const TempFolder folder;
  { const ReportFolder unused(folder.path() / "a"); }
  EXPECT_EQ(folder.FileCount(), 0u);
}

TEST(ReportFolder, ReplacesAnEarlierReport) {
  const TempFolder folder;
  folder.Write("a/prove.json", "old");
  folder.Write("a/edit.png", "old");
  const ReportFolder report(folder.path() / "a");
  report.Write(WithPart({{"name", "loading"}, {"title", "loading"}, {"status", kPassed}, {"why", ""}}));
  EXPECT_THAT(ReadBytes(report.document()), HasSubstr("\"schema\": 1"));
  EXPECT_TRUE(fs::exists(report.page()));
  EXPECT_FALSE(fs::exists(folder.path() / "a/edit.png"));
}

}  // namespace
}  // namespace qwen_image::prove
