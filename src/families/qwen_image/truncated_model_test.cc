// Whole components whose files were cut short anywhere: always an Error that names the file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "families/qwen_image/text_encoder.h"
#include "families/qwen_image/transformer.h"
#include "families/qwen_image/vae.h"
#include "families/qwen_image/vision_encoder.h"
#include "files/testing.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const fs::path kMicro = fs::path(QWEN_IMAGE_SOURCE_DIR) / "tests/goldens/models/micro";

struct CutFile {
  Component component;
  const char* file;
};

void Load(const fs::path& folder, Component component) {
  WeightStore store(folder, component);
  switch (component) {
    case Component::kTextEncoder:
      TextEncoder{std::move(store)};
      break;
    case Component::kTransformer:
      Transformer{std::move(store)};
      break;
    case Component::kVae:
      Vae{std::move(store)};
      break;
    case Component::kVisionEncoder:
      VisionEncoder{std::move(store)};
      break;
  }
}

fs::path FolderOf(Component component) {
  return kMicro / NameOf(component == Component::kVisionEncoder ? Component::kTextEncoder : component);
}

class CutModel : public ::testing::TestWithParam<CutFile> {};

TEST_P(CutModel, IsRefusedAtEvery64thByte) {
  const auto& [component, name] = GetParam();
  const TempFolder folder;
  for (const auto& entry : fs::directory_iterator(FolderOf(component)))
    folder.Write(entry.path().filename().string(), ReadBytes(entry.path()));
  ASSERT_NO_THROW(Load(folder.path(), component));
  const fs::path file = folder.path() / name;
  for (uintmax_t size = (fs::file_size(file) - 1) / 64 * 64;; size -= 64) {
    fs::resize_file(file, size);
    const std::string message =
        MessageOf(ErrorKind::kBadInput, [&, wanted = component] { Load(folder.path(), wanted); });
    ASSERT_THAT(message, HasSubstr(name)) << size;
    if (size == 0) break;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Components, CutModel,
    ::testing::Values(CutFile{Component::kTextEncoder, "model-00003-of-00003.safetensors"},
                      CutFile{Component::kTextEncoder, "model.safetensors.index.json"},
                      CutFile{Component::kVisionEncoder, "model-00003-of-00003.safetensors"},
                      CutFile{Component::kVisionEncoder, "config.json"},
                      CutFile{Component::kTransformer, "diffusion_pytorch_model-00002-of-00002.safetensors"},
                      CutFile{Component::kTransformer, "config.json"},
                      CutFile{Component::kVae, "diffusion_pytorch_model-00003-of-00003.safetensors"},
                      CutFile{Component::kVae, "config.json"}),
    [](const auto& info) { return std::string(NameOf(info.param.component)) + std::to_string(info.index); });

}  // namespace
}  // namespace qwen_image
