// What vision_config says, or the tensors and the metadata of a file without one.
#include <algorithm>
#include <cmath>

#include "core/fail.h"
#include "families/qwen_image_21/vision_encoder.h"
#include "families/qwen_image_21/vocabulary.h"
#include "files/text.h"
#include "weights/config_reader.h"

namespace qwen_image::qwen_image_21 {
namespace {

constexpr int64_t kMaxSide = 1024, kMaxWidth = 1 << 20, kMaxCount = 4096, kMaxMerge = 64;
constexpr int64_t kMaxPositions = kMaxSide * kMaxSide;

// The config of a tower that has none: sizes from its tensors, and the rest as in Qwen3-VL-8B.
VisionEncoderConfig VisionEncoderConfigOfTensors(const WeightStore& store) {
  const std::string projector = store.Metadata("clip.projector_type");
  if (!projector.empty() && projector != "qwen3vl_merger") {
    Fail(ErrorKind::kBadInput,
         "{}: a vision projector of type {}, but Qwen-Image-2.1 needs that of Qwen3-VL (qwen3vl_merger)",
         store.path().string(), Quoted(projector));
  }
  VisionEncoderConfig c;
  c.depth = store.CountModules("model.visual.blocks.");
  c.hidden_size = store.Rows("model.visual.blocks.0.norm1.weight");
  c.intermediate_size = store.Rows("model.visual.blocks.0.mlp.linear_fc1.weight");
  c.out_hidden_size = store.Rows("model.visual.merger.linear_fc2.weight");
  c.num_position_embeddings = store.Rows("model.visual.pos_embed.weight");
  c.num_heads = store.MetadataCount("clip.vision.attention.head_count", c.num_heads);
  c.patch_size = store.MetadataCount("clip.vision.patch_size", c.patch_size);
  c.spatial_merge_size = store.MetadataCount("clip.vision.spatial_merge_size", c.spatial_merge_size);
  return c;
}

// Which blocks the deepstack mergers read: an mmproj file names them, other tensors do not tell.
void TakeDeepstackOfTensors(const WeightStore& store, VisionEncoderConfig& c) {
  constexpr int64_t kDepth = 27, kIndexes[] = {8, 16, 24};
  const int64_t mergers = store.CountModules("model.visual.deepstack_merger_list.");
  if (mergers == 0) return;
  std::vector<std::string_view> names;
  for (const auto& file : store.files())
    for (const auto& [name, tensor] : file->tensors()) names.push_back(name);
  c.deepstack_visual_indexes = DeepstackBlocks(names);
  if (!c.deepstack_visual_indexes.empty()) {
    if (c.deepstack_visual_indexes.back() < c.depth) return;
    Fail(ErrorKind::kBadInput, "{}: deepstack mergers read blocks {}, but there are {}",
         store.path().string(), ToString(c.deepstack_visual_indexes), c.depth);
  }
  if (c.depth != kDepth || mergers != std::ssize(kIndexes)) {
    Fail(ErrorKind::kBadInput,
         "{}: {} blocks and {} deepstack mergers are not those of Qwen3-VL-8B, and there is no "
         "deepstack_visual_indexes that tells which blocks they read; put its config.json beside it",
         store.path().string(), c.depth, mergers);
  }
  c.deepstack_visual_indexes.assign(std::begin(kIndexes), std::end(kIndexes));
}

void ReadRopeTheta(const ConfigReader& config, VisionEncoderConfig& c) {
  if (!config.Has("rope_parameters")) return;
  const ConfigReader rope = config.Object("rope_parameters");
  if (const std::string type = rope.String("rope_type", "axial"); type != "axial" && type != "default") {
    Fail(ErrorKind::kBadInput, "{}: rope type {} is not supported (expected axial)", config.where(),
         Quoted(type));
  }
  c.rope_theta = rope.Positive("rope_theta", c.rope_theta);
}

void ReadConfig(const ConfigReader& config, VisionEncoderConfig& c) {
  c.depth = config.Int("depth", 1, kMaxCount, c.depth);
  c.hidden_size = config.Int("hidden_size", 1, kMaxWidth, c.hidden_size);
  c.intermediate_size = config.Int("intermediate_size", 1, kMaxWidth, c.intermediate_size);
  c.num_heads = config.Int("num_heads", 1, kMaxCount, c.num_heads);
  c.in_channels = config.Int("in_channels", 1, 64, c.in_channels);
  c.patch_size = config.Int("patch_size", 1, kMaxSide, c.patch_size);
  c.temporal_patch_size = config.Int("temporal_patch_size", 1, 64, c.temporal_patch_size);
  c.spatial_merge_size = config.Int("spatial_merge_size", 1, kMaxMerge, c.spatial_merge_size);
  c.out_hidden_size = config.Int("out_hidden_size", 1, kMaxWidth, c.out_hidden_size);
  c.num_position_embeddings =
      config.Int("num_position_embeddings", 1, kMaxPositions, c.num_position_embeddings);
  if (const std::string act = config.String("hidden_act", "gelu_pytorch_tanh"); act != "gelu_pytorch_tanh") {
    Fail(ErrorKind::kBadInput, "{}: hidden_act {} is not supported (expected gelu_pytorch_tanh)",
         config.where(), Quoted(act));
  }
  ReadRopeTheta(config, c);
}

void ReadDeepstack(const WeightStore& store, const ConfigReader& config, VisionEncoderConfig& c) {
  constexpr const char* kKey = "deepstack_visual_indexes";
  if (!config.Has(kKey)) return TakeDeepstackOfTensors(store, c);
  const Json& list = store.config()["vision_config"][kKey];
  if (list.is_array() && list.empty()) return;
  c.deepstack_visual_indexes = config.Ints(kKey, 0, c.depth - 1);
  std::vector<int64_t> sorted = c.deepstack_visual_indexes;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
    Fail(ErrorKind::kBadInput, "{}: {} {} names a block twice", config.where(), kKey,
         ToString(c.deepstack_visual_indexes));
}

void Check(const VisionEncoderConfig& c, const std::string& where, const char* advice) {
  // A quarter of a head turns with each: the row and the column, and both in pairs.
  if (c.hidden_size <= 0 || c.hidden_size % c.num_heads != 0 || c.head_dim() % 4 != 0) {
    Fail(ErrorKind::kBadInput,
         "{}: the vision tower's width {} does not split into {} heads of a multiple of 4{}", where,
         c.hidden_size, c.num_heads, advice);
  }
  // What the tensors say may be anything.
  if (std::max({c.hidden_size, c.intermediate_size, c.out_hidden_size}) > kMaxWidth ||
      c.patch_size > kMaxSide || c.spatial_merge_size > kMaxMerge) {
    Fail(ErrorKind::kBadInput,
         "{}: a vision tower of widths {}, {} and {} with patches of {} pixels, {} x {} merged, is too large",
         where, c.hidden_size, c.intermediate_size, c.out_hidden_size, c.patch_size, c.spatial_merge_size,
         c.spatial_merge_size);
  }
  if (c.num_position_embeddings < 1 || c.num_position_embeddings > kMaxPositions ||
      c.position_side() * c.position_side() != c.num_position_embeddings) {
    Fail(ErrorKind::kBadInput, "{}: {} position embeddings are not a square table", where,
         c.num_position_embeddings);
  }
}

}  // namespace

int64_t VisionEncoderConfig::position_side() const {
  return std::llround(std::sqrt(static_cast<double>(num_position_embeddings)));
}

VisionEncoderConfig ReadVisionEncoderConfig(const WeightStore& store) {
  if (store.tensors().empty()) {
    Fail(ErrorKind::kBadInput,
         "the text encoder {} has no vision tower (model.visual.*), which editing needs; GGUF text encoders "
         "come without; name a file with one as the vision encoder",
         store.path().string());
  }
  VisionEncoderConfig c = VisionEncoderConfigOfTensors(store);
  if (!store.config().is_object() || !store.config().contains("vision_config")) {
    TakeDeepstackOfTensors(store, c);
    Check(c, store.path().string(), "; put its config.json beside it");
    return c;
  }
  const ConfigReader config = ConfigReader(store.config(), store.config_path()).Object("vision_config");
  ReadConfig(config, c);
  ReadDeepstack(store, config, c);
  Check(c, config.where(), "");
  return c;
}

}  // namespace qwen_image::qwen_image_21
