#include "parity/report/html_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>

#include "files/base64.h"
#include "files/npy.h"
#include "files/png.h"
#include "files/testing.h"
#include "parity/compare/runs.h"
#include "parity/hints/causes.h"

namespace qwen_image::report {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Every tag that is opened is closed again, in order.
void ExpectBalanced(const std::string& html) {
  const std::set<std::string> alone = {"!DOCTYPE", "meta", "br", "img", "input"};
  std::vector<std::string> open;
  for (size_t at = html.find('<'); at != html.npos; at = html.find('<', at + 1)) {
    const size_t end = html.find('>', at);
    ASSERT_NE(end, html.npos);
    const bool closes = html[at + 1] == '/';
    const size_t begin = at + (closes ? 2 : 1);
    const std::string tag = html.substr(begin, html.find_first_of(" >\n", begin) - begin);
    if (closes) {
      ASSERT_FALSE(open.empty()) << tag;
      ASSERT_EQ(open.back(), tag) << html.substr(at > 200 ? at - 200 : 0, 220);
      open.pop_back();
    } else if (!alone.contains(tag) && html[end - 1] != '/') {
      open.push_back(tag);
    }
    if (!closes && (tag == "script" || tag == "style"))
      at = html.find("</" + tag, end) - 1;  // no HTML inside
  }
  EXPECT_TRUE(open.empty()) << testing::PrintToString(open);
}

void ExpectOffline(std::string html) {
  for (size_t at; (at = html.find("http-equiv")) != html.npos;) html.erase(at, 10);
  EXPECT_EQ(html.find("http"), html.npos);
  EXPECT_EQ(html.find("url("), html.npos);
  EXPECT_EQ(html.find("@import"), html.npos);
}

class HtmlReportTest : public testing::Test {
 protected:
  void Save(const TempFolder& side, const std::string& name, std::vector<float> values, const Shape& shape) {
    std::filesystem::create_directories((side.path() / (name + ".npy")).parent_path());
    WriteNpy(side.path() / (name + ".npy"), values.data(), shape);
  }
  // The same on both sides, with `error` added to the run's first element.
  void SaveBoth(const std::string& name, const Shape& shape, float error) {
    std::vector<float> values(static_cast<size_t>(ElementCount(shape)));
    for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
    Save(ref_, name, values, shape);
    values[0] += error;
    Save(run_, name, values, shape);
  }
  std::string Report(const std::function<void(compare::Comparison&)>& change = {}) {
    const record::TensorSet ref = record::TensorSet::Open(ref_.path()),
                            run = record::TensorSet::Open(run_.path());
    compare::Comparison comparison = compare::CompareSets(ref, run, {});
    for (compare::TensorComparison& t : comparison.tensors) {
      if (!t.passed) t.hints = hints::FindHints(t, hints::MakeHintContext(ref, run));
    }
    if (change) change(comparison);
    WriteHtmlReport(out_.path() / "report.html", comparison, ref, run);
    const std::string html = ReadBytes(out_.path() / "report.html");
    ExpectBalanced(html);
    ExpectOffline(html);
    return html;
  }

  const TempFolder ref_, run_, out_;
};

TEST_F(HtmlReportTest, ShowsVerdictDivergenceHintsAndEveryCheckpoint) {
  SaveBoth("text_encoder/a", {1, 3, 8}, 0);
  SaveBoth("transformer/step000/img_in", {1, 3, 8}, 0.5f);
  SaveBoth("vae/c", {1, 2, 1, 4, 5}, 0);
  Save(ref_, "transformer/step000/txt_in", {1, 2, 3, 4, 5, 6, 7, 8}, {8});
  Save(run_, "transformer/step000/txt_in", {-1, -2, -3, -4, -5, -6, -7, -8}, {8});
  const std::string html = Report();
  EXPECT_THAT(html, HasSubstr("FAILED</span> 4 checkpoints compared, 2 failed"));
  EXPECT_THAT(html, HasSubstr("First divergence: <code>transformer/step000/img_in</code>"));
  EXPECT_THAT(html, HasSubstr("<b>sign</b>"));
  EXPECT_THAT(html, HasSubstr("id=\"network\""));
  EXPECT_THAT(html, HasSubstr("rows: axis 1 (3), columns: axis 2 (8)"));
  for (const char* name :
       {"text_encoder/a", "transformer/step000/img_in", "transformer/step000/txt_in", "vae/c"})
    EXPECT_THAT(html, HasSubstr("<td>" + std::string(name) + "</td>"));
}

TEST_F(HtmlReportTest, SaysThatTheOrderIsUnknown) {
  for (const char* name : {"a", "b"}) SaveBoth(name, {4, 4}, 0.5f);
  const std::string html = Report();
  EXPECT_THAT(html, HasSubstr("<b>Order unknown</b>: 2 tensors differ"));
  EXPECT_THAT(html, Not(HasSubstr("First divergence")));
  EXPECT_THAT(html, HasSubstr("<title>Runs part"));
}

TEST_F(HtmlReportTest, PassingRunsShowWhatIsNearestToItsLimit) {
  SaveBoth("a", {4, 4}, 1e-7f);
  const std::string html = Report();
  EXPECT_THAT(html, HasSubstr("passed</span> 1 checkpoints compared, 0 failed"));
  EXPECT_THAT(html, HasSubstr("nearest to their limits"));
  EXPECT_THAT(html, Not(HasSubstr("First divergence")));
}

TEST_F(HtmlReportTest, EscapesEverythingThatIsUntrusted) {
  const std::string attack = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>\x1b[31m\xff";
  SaveBoth("a", {4, 4}, 1);
  const std::string html = Report([&](compare::Comparison& c) {
    c.ref_path = attack;
    c.run_path = attack;
    c.ref_manifest = Json{{"prompt", "<script>alert(3)</script>"}};
    c.manifest_differences = {{attack, attack, attack, true}};
    c.missing = {attack};
    c.extra = {attack};
    c.notes = {attack};
    c.pictures.push_back({.what = attack, .problem = attack});
    c.tensors[0].run_name = attack;
    c.tensors[0].problem = attack;
    c.tensors[0].ref.dtype = attack;
    c.tensors[0].hints = {{attack, attack, 1, 0}};
    compare::TensorComparison other = c.tensors[0];
    other.name = attack + "/step000/" + attack;
    c.tensors.push_back(other);
    other.name = "noise_pred_step0";
    for (int i = 0; i < 3; ++i) c.tensors.push_back(other);
  });
  EXPECT_THAT(html, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(html, Not(HasSubstr("<img src=x")));
  EXPECT_THAT(html, Not(HasSubstr("\x1b")));
  EXPECT_THAT(html, Not(HasSubstr("\xff")));
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;alert(3)"));
}

TEST_F(HtmlReportTest, NanAndInfinityAreShownNotSpread) {
  SaveBoth("a", {4, 4}, NAN);
  SaveBoth("b", {4, 4}, INFINITY);
  SaveBoth("c", {16}, 0);
  Save(ref_, "d", std::vector<float>(8, NAN), {8});
  Save(run_, "d", std::vector<float>(8, INFINITY), {8});
  const std::string html = Report();
  EXPECT_THAT(html, HasSubstr("turquoise: NaN or infinite"));
  EXPECT_THAT(html, HasSubstr("<td>NaN</td>"));
  EXPECT_THAT(html, Not(HasSubstr("=\"nan")));  // no coordinate is NaN
  EXPECT_THAT(html, Not(HasSubstr("Mnan")));
  EXPECT_THAT(html, Not(HasSubstr(" nan")));
  EXPECT_THAT(html, Not(HasSubstr("inf\"")));
}

TEST_F(HtmlReportTest, OtherShapesAndMissingTensorsAreListed) {
  Save(ref_, "a", {1, 2, 3, 4}, {2, 2});
  Save(run_, "a", {1, 2, 3, 4}, {4});
  Save(ref_, "only_ref", {1}, {1});
  Save(run_, "only_run", {1}, {1});
  const std::string html = Report();
  EXPECT_THAT(html, HasSubstr("<code>only_ref</code>"));
  EXPECT_THAT(html, HasSubstr("<code>only_run</code>"));
  EXPECT_THAT(html, HasSubstr("<b>other_shape</b>"));
}

TEST_F(HtmlReportTest, AnEmptyComparisonSaysSo) {
  WriteHtmlReport(out_.path() / "report.html", compare::Comparison());
  const std::string html = ReadBytes(out_.path() / "report.html");
  ExpectBalanced(html);
  ExpectOffline(html);
  EXPECT_THAT(html, HasSubstr("Nothing was compared."));
}

TEST_F(HtmlReportTest, PicturesOfTensorsAndOfFiles) {
  SaveBoth("image", {1, 3, 4, 6}, 0.5f);
  const std::string tensors = Report();
  EXPECT_THAT(tensors, HasSubstr("difference × "));

  const auto ref = ref_.path() / "a.png", run = run_.path() / "b.png";
  WritePng(ref, {2, 1, {0, 0, 0, 9, 9, 9}}, {});
  WritePng(run, {2, 1, {0, 5, 0, 9, 9, 9}}, {});
  WriteHtmlReport(out_.path() / "png.html", compare::ComparePngFiles(ref, run));
  const std::string files = ReadBytes(out_.path() / "png.html");
  ExpectBalanced(files);
  EXPECT_THAT(files, HasSubstr("difference × 51 (the largest is 5 of 255 levels)"));
}

TEST_F(HtmlReportTest, PicturesWithAlphaLieOnACheckerboard) {
  SaveBoth("image", {1, 4, 4, 6}, 0.5f);
  EXPECT_THAT(Report(), HasSubstr("difference of alpha"));

  const auto ref = ref_.path() / "a.png", run = run_.path() / "b.png";
  WritePng(ref, {2, 1, {0, 0, 0, 255, 9, 9, 9, 0}, 4}, {});
  WritePng(run, {2, 1, {0, 5, 0, 255, 9, 9, 9, 51}, 4}, {});
  WriteHtmlReport(out_.path() / "png.html", compare::ComparePngFiles(ref, run));
  const std::string files = ReadBytes(out_.path() / "png.html");
  ExpectBalanced(files);
  ExpectOffline(files);
  EXPECT_THAT(files, HasSubstr("difference of the colours × 51 (the largest is 5 of 255 levels)"));
  EXPECT_THAT(files, HasSubstr("difference of alpha × 5 (the largest is 51 of 255 levels)"));
  EXPECT_THAT(files, HasSubstr("<img class=\"picture clear\""));
  EXPECT_THAT(files, HasSubstr("A: 127.5 ± 127.5"));

  WritePng(run, {2, 1, {0, 0, 0, 9, 9, 9}}, {});
  WriteHtmlReport(out_.path() / "png.html", compare::ComparePngFiles(ref, run));
  EXPECT_THAT(ReadBytes(out_.path() / "png.html"), HasSubstr("the run has no alpha, and counts as opaque"));
}

// Larger pictures are shrunk. A pixel counts by its alpha.
TEST_F(HtmlReportTest, LargePicturesWithAlphaAreShrunk) {
  Image image{1280, 2, {}, 4};
  for (int i = 0; i < 1280; ++i) {
    for (const int value : i % 2 ? std::array{200, 0, 0, 255} : std::array{0, 255, 0, 0})
      image.pixels.push_back(static_cast<uint8_t>(value));
  }
  const std::vector<uint8_t> row = image.pixels;
  image.pixels.insert(image.pixels.end(), row.begin(), row.end());
  const auto path = ref_.path() / "a.png";
  WritePng(path, image, {});
  WriteHtmlReport(out_.path() / "png.html", compare::ComparePngFiles(path, path));
  Image small{640, 1, {}, 4};
  for (int i = 0; i < 640; ++i) {
    for (const int value : {200, 0, 0, 128}) small.pixels.push_back(static_cast<uint8_t>(value));
  }
  EXPECT_THAT(ReadBytes(out_.path() / "png.html"), HasSubstr(EncodeBase64(EncodePng(small))));
}

TEST_F(HtmlReportTest, TwentyThousandCheckpointsStaySmall) {
  SaveBoth("a", {4, 4}, 1);
  const std::string html = Report([](compare::Comparison& c) {
    compare::TensorComparison t = c.tensors[0];
    t.hints.clear();
    for (int i = 0; i < 20000; ++i) {
      t.name = "transformer/step" + std::to_string(i / 500) + "/transformer_blocks." +
               std::to_string(i % 60) + ".attn.norm_added_q";
      c.tensors.push_back(t);
    }
  });
  EXPECT_LT(html.size(), size_t{15} << 20);
}

TEST_F(HtmlReportTest, CannotBeWrittenWhereThereIsNoFolder) {
  MessageOf(ErrorKind::kCannotWrite,
            [&] { WriteHtmlReport(out_.path() / "no/report.html", compare::Comparison()); });
  EXPECT_EQ(out_.FileCount(), 0u);
}

}  // namespace
}  // namespace qwen_image::report
