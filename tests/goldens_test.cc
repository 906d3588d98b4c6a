// The engine against the official pipeline, tensor by tensor, without Python: tests/goldens holds what
// diffusers computed (tools/reference/parity.py goldens). Every run is compared twice: accumulated (it
// computes everything itself) and isolated (after each comparison it goes on from the reference's tensor),
// and the pictures pixel by pixel.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "device/available.h"
#include "files/png.h"
#include "parity/compare/checker.h"
#include "parity/report/text.h"
#include "qwen_image/image_file.h"
#include "qwen_image/qwen_image.h"

namespace qwen_image {
namespace {

const std::filesystem::path kSource = QWEN_IMAGE_SOURCE_DIR;
const std::filesystem::path kGoldens = kSource / "tests/goldens";

struct GoldenCase {
  const char* name;
  const char* model;  // below the source folder
  Device device = Device::kCpu;
};

void PrintTo(const GoldenCase& c, std::ostream* out) { *out << c.name; }

GenerateRequest RequestOf(const record::ReferenceRun& reference) {
  const record::RunSettings& s = reference.settings();
  GenerateRequest request;
  request.prompt = s.prompt;
  request.negative_prompt = s.negative_prompt;
  request.width = s.width;
  request.height = s.height;
  request.steps = s.steps;
  request.sigmas = s.sigmas;
  request.cfg = s.cfg;
  request.seed = s.seed;
  request.max_sequence_length = s.max_sequence_length;
  for (const std::string& name : s.images) {
    Image image = ReadImage(reference.tensors().path() / name, {}, Transparency::kKept).image;
    if (s.edits()) {
      request.input_images.push_back(std::move(image));
    } else {
      request.init_image = std::move(image);
    }
  }
  if (!s.mask.empty()) request.mask = ReadMask(reference.tensors().path() / s.mask).image;
  request.strength = s.strength;
  request.blend = false;  // the official pipelines do not
  return request;
}

double Psnr(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
  double square = 0;
  for (size_t i = 0; i < a.size(); ++i) square += std::pow(static_cast<double>(a[i]) - b[i], 2);
  return square == 0 ? INFINITY : 10 * std::log10(255.0 * 255.0 * static_cast<double>(a.size()) / square);
}

class Goldens : public testing::TestWithParam<GoldenCase> {
 protected:
  Picture Draw(int threads, CheckpointSink* sink) const {
    const Device device = GetParam().device;
    // On the CPU these models' plain numbers are multiplied in float32 even if it is to be fast.
    const Precision precision = device == Device::kCpu ? Precision::kFast : Precision::kExact;
    const Pipeline pipeline(kSource / GetParam().model,
                            {.threads = threads, .precision = precision, .device = device});
    return pipeline.Generate(RequestOf(reference_),
                             {.on_progress = {}, .cancel = nullptr, .checkpoints = sink});
  }

  record::ReferenceRun reference_{kGoldens / GetParam().name};
};

TEST_P(Goldens, WholeRunStaysWithinTheAccumulatedTolerances) {
  compare::RunChecker checker(reference_, record::CheckpointSelection("all"), {}, nullptr);
  Draw(2, &checker);
  EXPECT_TRUE(checker.passed()) << report::ReportText(checker.comparison());
  EXPECT_GT(checker.comparison().tensors.size(), 14u);
}

TEST_P(Goldens, EveryOperationAloneStaysWithinTheIsolatedTolerances) {
  compare::RunChecker checker(reference_, record::CheckpointSelection("all"), {"*"}, nullptr);
  Draw(2, &checker);
  EXPECT_TRUE(checker.passed()) << report::ReportText(checker.comparison());
}

TEST_P(Goldens, PictureIsDiffusersPicture) {
  const Picture picture = Draw(2, nullptr);
  const Image want = ReadPng(kGoldens / GetParam().name / "image.png", Transparency::kKept);
  ASSERT_EQ(picture.width, want.width);
  ASSERT_EQ(picture.height, want.height);
  ASSERT_EQ(picture.channels, want.channels);
  for (size_t i = 0; i < want.pixels.size(); ++i)
    ASSERT_LE(std::abs(picture.pixels[i] - want.pixels[i]), 1) << "value " << i;
  EXPECT_GE(Psnr(picture.pixels, want.pixels), 60);
}

class GoldenThreads : public Goldens {};

TEST_P(GoldenThreads, PictureDoesNotDependOnTheNumberOf) {
  const Picture one = Draw(1, nullptr);
  for (int threads : {2, 5}) EXPECT_EQ(Draw(threads, nullptr).pixels, one.pixels) << threads << " threads";
}

constexpr GoldenCase kCases[] = {{"tiny_blocks", "models/tiny"},
                                 {"tiny_all", "models/tiny"},
                                 {"micro_all", "tests/goldens/models/micro"},
                                 {"micro_edit", "tests/goldens/models/edit-micro"},
                                 {"micro_edit_2511", "tests/goldens/models/edit-micro-2511"},
                                 {"micro_edit_one", "tests/goldens/models/edit-micro-one"},
                                 {"micro_img2img", "tests/goldens/models/micro"},
                                 {"micro_inpaint", "tests/goldens/models/micro"},
                                 {"micro_edit_inpaint", "tests/goldens/models/edit-micro-one"},
                                 {"micro_21", "tests/goldens/models/21-micro"},
                                 {"micro_21_cfg", "tests/goldens/models/21-micro"},
                                 {"micro_21_edit", "tests/goldens/models/21-micro"},
                                 {"micro_21_turbo", "tests/goldens/models/21-micro-turbo"}};

// The same on MLX's CPU device, in builds that have it.
std::vector<GoldenCase> CasesOnMlx() {
  const std::vector<device::DeviceInfo> devices = device::ListDevices();
  const bool has_mlx = std::any_of(devices.begin(), devices.end(), [](const device::DeviceInfo& info) {
    return info.device == Device::kMlxCpu && info.available;
  });
  std::vector<GoldenCase> cases;
  for (const GoldenCase& c : kCases) {
    if (has_mlx) cases.push_back({c.name, c.model, Device::kMlxCpu});
  }
  return cases;
}

std::string TestName(const testing::TestParamInfo<GoldenCase>& info) {
  return std::string(info.param.name) + (info.param.device == Device::kMlxCpu ? "_mlx_cpu" : "");
}

INSTANTIATE_TEST_SUITE_P(Runs, Goldens, testing::ValuesIn(kCases), TestName);
INSTANTIATE_TEST_SUITE_P(OnMlx, Goldens, testing::ValuesIn(CasesOnMlx()), TestName);
INSTANTIATE_TEST_SUITE_P(Runs, GoldenThreads, testing::ValuesIn(kCases), TestName);

// A tap that listens and changes nothing must not change the picture.
TEST(Checkpoints, ListeningChangesNothing) {
  class Listener : public CheckpointSink {
   public:
    bool Wants(std::string_view) const override { return true; }
    void OnCheckpoint(const std::string&, const CheckpointView&) override { ++count; }
    int count = 0;
  } listener;
  const Pipeline pipeline(kSource / "models/tiny", {.threads = 2});
  GenerateRequest request;
  request.prompt = "a red circle";
  request.width = 64;
  request.height = 32;
  request.steps = 2;
  const Picture plain = pipeline.Generate(request);
  const Picture heard =
      pipeline.Generate(request, {.on_progress = {}, .cancel = nullptr, .checkpoints = &listener});
  EXPECT_EQ(plain.pixels, heard.pixels);
  EXPECT_GT(listener.count, 500);
}

// With guidance a step takes two passes: what a user sees must go on, not back.
TEST(Progress, NeverFalls) {
  const Pipeline pipeline(kSource / "models/tiny", {.threads = 2});
  GenerateRequest request;
  request.prompt = "a red circle";
  request.width = 64;
  request.height = 32;
  request.steps = 3;
  request.cfg = 4;
  for (const auto tiling : {GenerateRequest::Tiling::kOff, GenerateRequest::Tiling::kOn}) {
    request.vae_tiling = tiling;
    std::vector<double> reported;
    int whole = 0;
    pipeline.Generate(request, {.on_progress =
                                    [&](const Progress& p) {
                                      EXPECT_GE(p.fraction, 0);
                                      EXPECT_LE(p.fraction, 1);
                                      whole += p.fraction == 1;
                                      EXPECT_EQ(p.steps, 3);
                                      reported.push_back(100.0 * static_cast<double>(p.stage) +
                                                         static_cast<double>(p.step) + p.fraction);
                                    },
                                .cancel = nullptr,
                                .checkpoints = nullptr});
    EXPECT_TRUE(std::is_sorted(reported.begin(), reported.end())) << testing::PrintToString(reported);
    EXPECT_GT(reported.size(), 20u);
    EXPECT_EQ(whole, 1) << "the end, and nothing before it";
  }
}

// Proof that the comparison can fail: a tensor that is a little off is found where it is, and nowhere before.
TEST(RunChecker, FindsAPlantedError) {
  const record::ReferenceRun reference(kGoldens / "tiny_blocks");
  class Vandal : public compare::RunChecker {
   public:
    using compare::RunChecker::RunChecker;
    void OnCheckpoint(const std::string& name, const CheckpointView& view) override {
      if (name == "transformer/step001/transformer_blocks.2:img") std::get<float*>(view.data)[17] += 0.5f;
      compare::RunChecker::OnCheckpoint(name, view);
    }
  } checker(reference, record::CheckpointSelection("blocks"), {"*"}, nullptr);
  const Pipeline pipeline(kSource / "models/tiny", {.threads = 2});
  pipeline.Generate(RequestOf(reference), {.on_progress = {}, .cancel = nullptr, .checkpoints = &checker});
  EXPECT_FALSE(checker.passed());
  std::vector<std::string> failed;
  for (const compare::TensorComparison& t : checker.comparison().tensors) {
    if (!t.passed) failed.push_back(t.name);
  }
  EXPECT_EQ(failed, std::vector<std::string>{"transformer/step001/transformer_blocks.2:img"});
}

}  // namespace
}  // namespace qwen_image
