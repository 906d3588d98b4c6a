// What vision_config says, or the tensors and the metadata of a file without one.
#include "core/fail.h"
#include "families/qwen_image/vision_encoder.h"
#include "files/text.h"
#include "weights/config_reader.h"

namespace qwen_image {
namespace {

// The config of a tower that has none: every published size of Qwen2.5-VL has the same one.
VisionEncoderConfig VisionEncoderConfigOfTensors(const WeightStore& store) {
  const std::string projector = store.Metadata("clip.projector_type");
  if (!projector.empty() && projector != "qwen2.5vl_merger" && projector != "qwen2.5o") {
    Fail(ErrorKind::kBadInput,
         "{}: a vision projector of type {}, but Qwen-Image needs that of Qwen2.5-VL (qwen2.5vl_merger)",
         store.path().string(), Quoted(projector));
  }
  VisionEncoderConfig c;
  c.depth = store.CountModules("model.visual.blocks.");
  c.hidden_size = store.Rows("model.visual.blocks.0.norm1.weight");
  c.intermediate_size = store.Rows("model.visual.blocks.0.mlp.gate_proj.weight");
  c.out_hidden_size = store.Rows("model.visual.merger.mlp.2.weight");
  c.num_heads = store.MetadataCount("clip.vision.attention.head_count", c.num_heads);
  c.patch_size = store.MetadataCount("clip.vision.patch_size", c.patch_size);
  c.spatial_merge_size = store.MetadataCount("clip.vision.spatial_merge_size", c.spatial_merge_size);
  c.window_size = store.MetadataCount("clip.vision.window_size", c.window_size);
  const int64_t period = store.MetadataCount("clip.vision.n_wa_pattern", 8);
  for (int64_t i = period - 1; i < c.depth; i += period) c.fullatt_block_indexes.push_back(i);
  return c;
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
  constexpr int64_t kMaxSide = 1024, kMaxWidth = 1 << 20, kMaxCount = 4096;
  c.depth = config.Int("depth", 1, kMaxCount, c.depth);
  c.hidden_size = config.Int("hidden_size", 1, kMaxWidth, c.hidden_size);
  c.intermediate_size = config.Int("intermediate_size", 1, kMaxWidth, c.intermediate_size);
  c.num_heads = config.Int("num_heads", 1, kMaxCount, c.num_heads);
  c.in_channels = config.Int("in_channels", 1, 64, c.in_channels);
  c.patch_size = config.Int("patch_size", 1, kMaxSide, c.patch_size);
  c.temporal_patch_size = config.Int("temporal_patch_size", 1, 64, c.temporal_patch_size);
  c.spatial_merge_size = config.Int("spatial_merge_size", 1, 64, c.spatial_merge_size);
  c.window_size = config.Int("window_size", 1, kMaxWidth, c.window_size);
  c.out_hidden_size = config.Int("out_hidden_size", 1, kMaxWidth, c.out_hidden_size);
  if (config.Has("fullatt_block_indexes"))
    c.fullatt_block_indexes = config.Ints("fullatt_block_indexes", 0, kMaxCount);
  if (const std::string act = config.String("hidden_act", "silu"); act != "silu") {
    Fail(ErrorKind::kBadInput, "{}: hidden_act {} is not supported (expected silu)", config.where(),
         Quoted(act));
  }
  ReadRopeTheta(config, c);
}

}  // namespace

VisionEncoderConfig ReadVisionEncoderConfig(const WeightStore& store) {
  if (store.tensors().empty()) {
    Fail(ErrorKind::kBadInput,
         "the text encoder {} has no vision tower (model.visual.*), which editing needs; GGUF text encoders "
         "come without; name a file with one as the vision encoder",
         store.path().string());
  }
  VisionEncoderConfig c = VisionEncoderConfigOfTensors(store);
  std::string where = store.path().string();
  const bool told = store.config().is_object() && store.config().contains("vision_config");
  if (told) {
    const ConfigReader config = ConfigReader(store.config(), store.config_path()).Object("vision_config");
    ReadConfig(config, c);
    where = config.where();
  }
  // A quarter of a head turns with each: the row and the column, and both in pairs.
  if (c.hidden_size <= 0 || c.hidden_size % c.num_heads != 0 || c.head_dim() % 4 != 0) {
    Fail(ErrorKind::kBadInput,
         "{}: the vision tower's width {} does not split into {} heads of a multiple of 4{}", where,
         c.hidden_size, c.num_heads, told ? "" : "; put its config.json beside it");
  }
  if (c.window_size / c.spatial_merge_size / c.patch_size < 1) {
    Fail(ErrorKind::kBadInput, "{}: a window of {} pixels holds no {} x {} patches of {} pixels", where,
         c.window_size, c.spatial_merge_size, c.spatial_merge_size, c.patch_size);
  }
  return c;
}

}  // namespace qwen_image
