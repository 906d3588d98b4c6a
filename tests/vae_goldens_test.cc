// The VAE's encoder and its tiling against the official ones: tests/goldens/micro_encode, micro_encode_all,
// micro_tiled. The temporal taps and time_convs of the micro model are not zero, so that this also proves
// that a single frame meets only the last temporal slice.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "families/qwen_image/vae.h"
#include "parity/compare/checker.h"
#include "parity/compare/tensor.h"
#include "parity/report/text.h"
#include "qwen_image/cancel.h"

namespace qwen_image {
namespace {

const std::filesystem::path kGoldens = std::filesystem::path(QWEN_IMAGE_SOURCE_DIR) / "tests/goldens";

class VaeGoldens : public testing::Test {
 protected:
  static Tensor Read(const record::ReferenceRun& run, const std::string& name) {
    const NpyArray array = run.Read(name);
    Tensor tensor(array.shape);
    std::copy_n(std::get<std::vector<float>>(array.values).data(), tensor.size(), tensor.data());
    return tensor;
  }

  static void ExpectClose(const Tensor& got, const Tensor& want) {
    ASSERT_EQ(got.shape(), want.shape());
    const compare::TensorComparison c = compare::CompareTensor(
        "tensor", compare::SourceOf(want.data(), want.shape()), compare::SourceOf(got.data(), got.shape()),
        [](const compare::TensorStats&) {
          return compare::Criterion{.kind = compare::Criterion::Kind::kMaxRel, .limit = 1e-4};
        });
    EXPECT_LE(c.error->nmse, 1e-8);
    EXPECT_TRUE(c.passed) << c.error->max_abs;
  }

  Vae vae_{WeightStore(kGoldens / "models/micro/vae", Component::kVae)};
  ThreadPool pool_{2};
  CancelFlag never_;
  Compute compute_{pool_, never_};
};

// Files of other tools bring no config: the sizes stand in the tensors.
TEST(VaeWithoutConfig, SizesAreReadOffTheTensors) {
  for (const char* file : {"comfy_vae.safetensors", "mflux_q4/vae"}) {
    SCOPED_TRACE(file);
    const Vae vae(WeightStore(kGoldens / "formats" / file, Component::kVae));
    EXPECT_EQ(vae.config().base_dim, 2);
    EXPECT_EQ(vae.config().dim_mult, (std::vector<int64_t>{1, 2, 2, 2}));
    EXPECT_EQ(vae.config().num_res_blocks, 2);
  }
}

TEST_F(VaeGoldens, EncoderModuleByModule) {
  const record::ReferenceRun reference(kGoldens / "micro_encode_all");
  compare::RunChecker checker(reference, record::CheckpointSelection("all"), {}, nullptr);
  Tensor image = Read(reference, "vae_encode/input");
  const Tap tap = Tap(&checker).Under("vae_encode/");
  tap("input", image);
  Tensor moments = vae_.Encode(image, compute_, tap);
  tap("moments", moments);
  Tensor mode(
      {1, vae_.config().z_dim, 1, moments.dim(3), moments.dim(4)});  // the means are the posterior's mode
  std::copy_n(moments.data(), mode.size(), mode.data());
  tap("mode", mode);
  EXPECT_TRUE(checker.passed()) << report::ReportText(checker.comparison());
}

TEST_F(VaeGoldens, TiledEncoding) {
  const record::ReferenceRun reference(kGoldens / "micro_encode");
  const Tensor image = Read(reference, "vae_encode/input");
  ExpectClose(vae_.Encode(image, compute_), Read(reference, "vae_encode/moments"));
  ExpectClose(vae_.EncodeTiled(image, {.min_size = 32, .stride = 24}, compute_),
              Read(reference, "vae_encode/moments_tiled"));
}

TEST_F(VaeGoldens, TiledDecoding) {
  const record::ReferenceRun reference(kGoldens / "micro_tiled");
  const Tensor latents = Read(reference, "vae/pre_decode_latents");
  ExpectClose(vae_.Decode(latents, compute_), Read(reference, "image"));
  ExpectClose(vae_.DecodeTiled(latents, {.min_size = 32, .stride = 24}, compute_),
              Read(reference, "image_tiled"));
}

TEST_F(VaeGoldens, BandsChangeNothing) {
  const auto bits = [](const Tensor& t) { return std::vector<float>(t.data(), t.data() + t.size()); };
  Tensor latents({1, vae_.config().z_dim, 1, 13, 9});  // 104 rows of pixels: bands have 24 at least
  for (int64_t i = 0; i < latents.size(); ++i) latents[i] = static_cast<float>(i * 37 % 101) / 50 - 1;
  const Tensor image = vae_.Decode(latents, compute_);
  const Tensor moments = vae_.Encode(image, compute_);
  vae_.UseBackend(CpuBackend(/*band_floats=*/1));
  EXPECT_EQ(bits(vae_.Decode(latents, compute_)), bits(image));
  EXPECT_EQ(bits(vae_.Encode(image, compute_)), bits(moments));
}

TEST_F(VaeGoldens, ImpossibleTilesAndSizesAreRefused) {
  const Tensor latents = Read(record::ReferenceRun(kGoldens / "micro_tiled"), "vae/pre_decode_latents");
  EXPECT_THROW(vae_.DecodeTiled(latents, {.min_size = 32, .stride = 0}, compute_), Error);
  EXPECT_THROW(vae_.DecodeTiled(latents, {.min_size = 32, .stride = 40}, compute_), Error);
  EXPECT_THROW(vae_.DecodeTiled(latents, {.min_size = 30, .stride = 20}, compute_), Error);
  EXPECT_THROW(vae_.Encode(Tensor({1, 3, 20, 16}), compute_), Error);
}

}  // namespace
}  // namespace qwen_image
