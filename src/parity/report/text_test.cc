#include "parity/report/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "parity/compare/tensor.h"
#include "parity/report/tools.h"

namespace qwen_image::report {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

compare::TensorComparison CompareValues(const std::string& name, const std::vector<float>& ref,
                                        const std::vector<float>& run) {
  return compare::CompareTensor(
      name, compare::SourceOf(ref.data(), {1, static_cast<int64_t>(ref.size())}),
      compare::SourceOf(run.data(), {1, static_cast<int64_t>(run.size())}), [](const compare::TensorStats&) {
        return compare::Criterion{.kind = compare::Criterion::Kind::kAllClose, .atol = 0.01, .rtol = 0};
      });
}

compare::Comparison Sample() {
  compare::Comparison c{.ref_path = "ref", .run_path = "run"};
  c.tensors.push_back(CompareValues("vae/good", {1, 2}, {1, 2}));
  c.tensors.push_back(CompareValues("vae/near", {1, 2}, {1, 2.005f}));
  c.tensors.push_back(CompareValues("vae/bad", {1, 2, 3}, {1, 2, 4}));
  c.tensors.push_back(CompareValues("vae/later", {1}, {NAN}));
  return c;
}

TEST(ReportText, ShowsFailuresAndTheWorstThatPassed) {
  const std::string text = ReportText(Sample());
  EXPECT_THAT(text, AllOf(HasSubstr("vae/bad"), HasSubstr("vae/later"), HasSubstr("vae/near"),
                          HasSubstr("4 tensors compared, 2 failed"), HasSubstr("parity: FAILED")));
  EXPECT_THAT(text, Not(HasSubstr("vae/good")));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(ReportText(Sample(), {.all = true}), HasSubstr("vae/good"));
  EXPECT_THAT(ReportText(Sample(), {.color = true}), HasSubstr("\x1b[31m"));
}

TEST(ReportText, TellsAboutTheFirstDivergence) {
  compare::Comparison c = Sample();
  c.tensors[2].hints.push_back({"sign", "the sign is wrong", 1, 0});
  c.tensors[2].run_source = "port.py:4: x = -x";
  const std::string text = ReportText(c);
  EXPECT_THAT(text, HasSubstr("run made in port.py:4: x = -x"));
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("first divergence: vae/bad"), HasSubstr("at [0, 2]: 4 in the run, 3 in the reference"),
            HasSubstr("1 elements beyond"), HasSubstr("starts 1 2 4"), HasSubstr("the sign is wrong")));
}

TEST(ReportText, NamesNoFirstDivergenceInAnUnknownOrder) {
  compare::Comparison c = Sample();
  c.order = compare::Order::kUnknown;
  c.tensors[2].hints.push_back({"sign", "the sign is wrong", 1, 0});
  EXPECT_THAT(ReportText(c), AllOf(HasSubstr("order unknown: 2 tensors differ"), Not(HasSubstr("first div")),
                                   HasSubstr("hint for vae/bad: the sign is wrong")));
  EXPECT_EQ(ReportJson(c)["order"], "unknown");
  EXPECT_TRUE(ReportJson(c)["first_divergence"].is_null());
  EXPECT_EQ(ReportJson(Sample())["order"], "reference");
}

TEST(ReportText, SaysWhatToDump) {
  compare::Comparison c = Sample();
  EXPECT_THAT(ReportText(c), Not(HasSubstr("dump these")));
  c.undumped = {"vae/x", "vae/y"};
  EXPECT_THAT(ReportText(c), HasSubstr("dump these: vae/x, vae/y (2 of the reference's tensors"));
  EXPECT_EQ(ReportJson(c)["undumped"], Json({"vae/x", "vae/y"}));
}

TEST(ReportText, HostileNamesStayOnTheirLine) {
  compare::Comparison c;
  c.tensors.push_back(CompareValues("a\n\x1b[2Jb", {1}, {2}));
  c.missing.push_back("c\nd");
  EXPECT_THAT(ReportText(c), AllOf(Not(HasSubstr("\x1b")), Not(HasSubstr("c\nd"))));
}

TEST(ReportText, NothingComparedIsAFailure) {
  EXPECT_THAT(ReportText({}), HasSubstr("FAILED (nothing was compared)"));
}

TEST(ReportText, LongListsOfNamesAreCut) {
  compare::Comparison c = Sample();
  c.missing.assign(1000, "a");
  EXPECT_THAT(ReportText(c), HasSubstr("and 980 more"));
}

TEST(ReportJson, HasWhatToolsRead) {
  compare::Comparison c = Sample();
  c.missing = {"x"};
  const Json json = Json::parse(ReportJson(c).dump());
  EXPECT_FALSE(json["passed"]);
  EXPECT_EQ(json["first_divergence"], "vae/bad");
  EXPECT_EQ(json["missing"], Json({"x"}));
  EXPECT_EQ(json["extra"], Json::array());
  const Json& bad = json["checkpoints"][2];
  EXPECT_EQ(bad["name"], "vae/bad");
  EXPECT_EQ(bad["component"], "vae");
  EXPECT_EQ(bad["max_abs"], 1);
  EXPECT_FALSE(bad["passed"]);
  EXPECT_EQ(bad["outside"], 1);
  EXPECT_EQ(bad["ref"]["first"], Json({1, 2, 3}));
  EXPECT_TRUE(json["checkpoints"][3]["nmse"].is_null());
}

TEST(ReportJson, TensorsThatCannotBeComparedHaveNulls) {
  compare::Comparison c;
  c.tensors.push_back(CompareValues("a", {1, 2}, {1}));
  const Json json = ReportJson(c);
  EXPECT_TRUE(json["checkpoints"][0]["nmse"].is_null());
  EXPECT_EQ(json["checkpoints"][0]["problem"], "shape [1, 1], expected [1, 2]");
}

TEST(ReportJUnit, OneCaseForEachTensor) {
  compare::Comparison c = Sample();
  c.extra = {"<&\">\n"};
  const std::string xml = ReportJUnit(c);
  EXPECT_THAT(xml, AllOf(HasSubstr("<testsuite name=\"vae\" tests=\"4\" failures=\"2\">"),
                         HasSubstr("name=\"vae/good\"/>"), HasSubstr("&lt;&amp;&quot;&gt;\\x0a"),
                         HasSubstr("extra: not in the reference")));
  EXPECT_THAT(ReportJUnit({}), HasSubstr("nothing was compared"));
}

TEST(Coordinates, OfAFlatIndex) {
  EXPECT_EQ(CoordinatesOf(23, {2, 3, 4}), "[1, 2, 3]");
  EXPECT_EQ(CoordinatesOf(0, {}), "[]");
}

}  // namespace
}  // namespace qwen_image::report
