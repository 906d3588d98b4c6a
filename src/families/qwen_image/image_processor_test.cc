// Against Pillow, diffusers and transformers: tests/goldens/processors, written by
// tools/reference/processor_goldens.py.
#include "model/image_processor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "families/qwen_image/latents.h"
#include "files/digest.h"
#include "files/json.h"
#include "files/npy.h"
#include "files/testing.h"
#include "kernels/resize.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const fs::path kGoldens = fs::path(QWEN_IMAGE_SOURCE_DIR) / "tests/goldens/processors";

ThreadPool& Pool() {
  static ThreadPool pool(2);
  return pool;
}

// As processor_goldens.py's picture().
std::vector<uint8_t> PictureBytes(int64_t count) {
  std::vector<uint8_t> bytes(static_cast<size_t>(count));
  for (size_t i = 0; i < bytes.size(); ++i) {
    uint32_t x = static_cast<uint32_t>(i) * 2654435761u + 12345u;
    x = (x ^ (x >> 15)) * 2246822519u;
    bytes[i] = static_cast<uint8_t>((x ^ (x >> 13)) >> 24);
  }
  return bytes;
}

Image Picture(int64_t width, int64_t height) { return {width, height, PictureBytes(width * height * 3)}; }
GreyImage GreyPicture(int64_t width, int64_t height) { return {width, height, PictureBytes(width * height)}; }

template <typename T>
std::string HashOf(const T* values, size_t count) {
  return Sha256({reinterpret_cast<const char*>(values), count * sizeof(T)});
}
std::string HashOf(const Tensor& tensor) { return HashOf(tensor.data(), static_cast<size_t>(tensor.size())); }

// Calls check(row) for every row of a golden file; there must be as many as the file is known to have.
template <typename Check>
void ForRows(const char* file, size_t count, const Check& check) {
  const Json goldens = ReadJsonFile(kGoldens / file);
  ASSERT_EQ(goldens.at("rows").size(), count);
  for (const Json& row : goldens["rows"]) {
    SCOPED_TRACE(row.dump());
    check(row);
  }
}

TEST(Resize, HasPillowsBits) {
  ForRows("resize.json", 128, [](const Json& row) {
    const int64_t in_width = row["size"][0], in_height = row["size"][1], width = row["to"][0];
    const int64_t height = row["to"][1];
    const auto filter = row["filter"] == "lanczos" ? ResizeFilter::kLanczos : ResizeFilter::kBicubic;
    const std::vector<uint8_t> out =
        row["size"][2] == 3 ? Resize(Picture(in_width, in_height), width, height, filter, Pool()).pixels
                            : Resize(GreyPicture(in_width, in_height), width, height, filter, Pool()).pixels;
    EXPECT_EQ(HashOf(out.data(), out.size()), row["sha256"]);
  });
}

// As processor_goldens.py's transparent_image().
Image TransparentPicture(int64_t width, int64_t height) {
  Image image{width, height, PictureBytes(width * height * 4), 4};
  for (size_t i = 3; i < image.pixels.size(); i += 4) {
    uint8_t& alpha = image.pixels[i];
    alpha = alpha < 64 ? 0 : alpha >= 192 ? 255 : alpha;
  }
  return image;
}

TEST(Resize, HasPillowsBitsOfTransparentPictures) {
  ForRows("resize_rgba.json", 12, [](const Json& row) {
    const auto filter = row["filter"] == "lanczos" ? ResizeFilter::kLanczos : ResizeFilter::kBicubic;
    const Image out = Resize(TransparentPicture(row["size"][0], row["size"][1]), row["to"][0], row["to"][1],
                             filter, Pool());
    EXPECT_EQ(out.channels, 4);
    EXPECT_EQ(HashOf(out.pixels.data(), out.pixels.size()), row["sha256"]);
  });
}

TEST(Resize, TakesTheNearestPixelsThatTorchTakes) {
  ForRows("nearest.json", 6, [](const Json& row) {
    Tensor x({1, 1, row["size"][1], row["size"][0]});
    for (int64_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
    EXPECT_EQ(HashOf(InterpolateNearest(x, row["to"][1], row["to"][0])), row["sha256"]);
  });
}

TEST(PreprocessForVae, GivesTheOfficialBits) {
  ForRows("vae.json", 4, [](const Json& row) {
    const Tensor out =
        PreprocessForVae(Picture(row["size"][0], row["size"][1]), row["to"][0], row["to"][1], Pool());
    EXPECT_EQ(out.shape(), row["shape"].get<Shape>());
    EXPECT_EQ(HashOf(out), row["sha256"]);
  });
}

void ExpectWithin(const Tensor& got, const Tensor& want, float tolerance) {
  ASSERT_EQ(got.shape(), want.shape());
  for (int64_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(std::abs(got[i] - want[i]) <= tolerance) << i << ": got " << got[i] << ", want " << want[i];
  }
}

TEST(PreprocessForVae, IsWithin1e5OfTheOfficialPixels) {
  ExpectWithin(PreprocessForVae(Picture(23, 37), 48, 32, Pool()), ReadNpyFloat(kGoldens / "vae.npy"), 1e-5f);
}

TEST(PreprocessForVae, RefusesSidesWithoutAToken) {
  EXPECT_THROW(PreprocessForVae(Picture(23, 37), 15, 32, Pool()), Error);
  EXPECT_THROW(PreprocessMask(GreyPicture(23, 37), 32, 0, Pool()), Error);
}

TEST(PreprocessMask, GivesTheOfficialMasksAndPackedMasks) {
  ForRows("mask.json", 4, [](const Json& row) {
    const int64_t in_width = row["size"][0], in_height = row["size"][1], width = row["to"][0];
    const int64_t height = row["to"][1];
    const Tensor mask = PreprocessMask(GreyPicture(in_width, in_height), width, height, Pool());
    EXPECT_EQ(mask.shape(), row["shape"].get<Shape>());
    EXPECT_EQ(HashOf(mask), row["sha256"]);
    const TokenGrid grid = {.height = mask.dim(2) / 16, .width = mask.dim(3) / 16};
    const Tensor packed = PackMask(mask, row["latent_channels"], grid);
    EXPECT_EQ(packed.shape(), row["packed_shape"].get<Shape>());
    EXPECT_EQ(HashOf(packed), row["packed_sha256"]);
  });
}

class VisionProcessorTest : public ::testing::Test {
 protected:
  VisionProcessorConfig Read(const Json& config) const {
    folder_.Write("preprocessor_config.json", config.dump());
    return ReadVisionProcessorConfig(folder_.path());
  }
  std::string RefusalOf(const Json& config) const {
    return MessageOf(ErrorKind::kBadInput, [&] { Read(config); });
  }

  const TempFolder folder_;
};

TEST_F(VisionProcessorTest, GivesTheOfficialBitsAndGrids) {
  ForRows("vision.json", 7, [&](const Json& row) {
    const VisionPatches patches =
        PreprocessForVision(Picture(row["size"][0], row["size"][1]), Read(row["config"]), Pool());
    EXPECT_EQ(patches.image_grid_thw, (row["image_grid_thw"].get<std::array<int64_t, 3>>()));
    EXPECT_EQ(patches.pixel_values.shape(), row["shape"].get<Shape>());
    EXPECT_EQ(HashOf(patches.pixel_values), row["sha256"]);
  });
}

TEST_F(VisionProcessorTest, IsWithin1e5OfTheOfficialPixels) {
  const VisionPatches patches = PreprocessForVision(Picture(50, 30), {.min_pixels = 784}, Pool());
  ExpectWithin(patches.pixel_values, ReadNpyFloat(kGoldens / "vision.npy"), 1e-5f);
}

// As processor_goldens.py's sweep().
template <typename Visit>
void Sweep(const Visit& visit) {
  for (int64_t side = 1; side < 6000; side += 1 + side / 9) {
    for (int64_t other = 1; other < 6000; other += 97) visit(ImageSize{side, other});
  }
}

TEST_F(VisionProcessorTest, ChoosesTheOfficialSizes) {
  ForRows("smart_resize.json", 3, [](const Json& row) {
    const VisionProcessorConfig config = {.min_pixels = row["min_pixels"],
                                          .max_pixels = row["max_pixels"],
                                          .patch_size = row["factor"].get<int64_t>() / 2};
    std::vector<ImageSize> sizes;
    Sweep([&](ImageSize size) {
      const auto [small, large] = std::minmax(size.width, size.height);
      if (large <= 200 * small) sizes.push_back(SmartResize(size, config));
    });
    EXPECT_EQ(HashOf(sizes.data(), sizes.size()), row["sweep_sha256"]);
  });
  for (const ImageSize size : {ImageSize{1, 201}, {2010, 10}, {0, 5}, {5, 0}, {0, 0}}) {
    EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [&] { SmartResize(size, {}); }), HasSubstr("too long"));
  }
}

void ExpectOfficial(const VisionProcessorConfig& config) {
  const VisionProcessorConfig official;
  EXPECT_EQ(config.min_pixels, official.min_pixels);
  EXPECT_EQ(config.max_pixels, official.max_pixels);
  EXPECT_EQ(config.patch_size, official.patch_size);
  EXPECT_EQ(config.temporal_patch_size, official.temporal_patch_size);
  EXPECT_EQ(config.merge_size, official.merge_size);
  EXPECT_EQ(config.rescale_factor, official.rescale_factor);
  EXPECT_EQ(config.image_mean, official.image_mean);
  EXPECT_EQ(config.image_std, official.image_std);
}

TEST_F(VisionProcessorTest, ReadsWhatTransformersWrites) {
  ExpectOfficial(ReadVisionProcessorConfig(kGoldens));  // the nested form
  ExpectOfficial(Read(ReadJsonFile(kGoldens / "preprocessor_config.json")));
  ExpectOfficial(ReadVisionProcessorConfig(folder_.path() / "nothing"));
}

TEST_F(VisionProcessorTest, PrefersTheNestedConfigAndTheOldNamesOfLimits) {
  const Json size = {{"shortest_edge", 100}, {"longest_edge", 2000}};
  VisionProcessorConfig config = Read({{"size", size}, {"min_pixels", 50}, {"max_pixels", nullptr}});
  EXPECT_EQ(config.min_pixels, 50);
  EXPECT_EQ(config.max_pixels, 2000);
  folder_.Write("processor_config.json", R"({"processor_class": "Qwen2_5_VLProcessor"})");
  EXPECT_EQ(ReadVisionProcessorConfig(folder_.path()).min_pixels, 50);
  folder_.Write("processor_config.json", R"({"image_processor": {"min_pixels": 60}})");
  EXPECT_EQ(ReadVisionProcessorConfig(folder_.path()).min_pixels, 60);
}

TEST_F(VisionProcessorTest, RefusesImpossibleSettings) {
  for (const Json& config :
       {Json{{"patch_size", 0}}, Json{{"patch_size", 1000}}, Json{{"merge_size", -1}},
        Json{{"temporal_patch_size", 1e9}}, Json{{"min_pixels", 1e18}}, Json{{"max_pixels", 0}},
        Json{{"size", {{"longest_edge", "much"}}}}, Json{{"size", 3}},
        Json{{"min_pixels", 5000}, {"max_pixels", 100}}, Json{{"image_mean", {1, 2}}},
        Json{{"image_mean", 0.5}}, Json{{"image_std", {1, 0, 1}}}, Json{{"image_std", {1, -1, 1}}},
        Json{{"rescale_factor", "1/255"}}, Json{{"resample", 2}}, Json{{"do_resize", false}},
        Json{{"do_normalize", 1}}, Json::array()}) {
    EXPECT_THAT(RefusalOf(config), HasSubstr("preprocessor_config.json")) << config.dump();
  }
}

}  // namespace
}  // namespace qwen_image
