// Wrong builds of Qwen-Image-2.1 (planted_bugs.h), with the random model of the goldens: drawing with
// guidance, and editing two pictures, so that the sequence has ranges of text between them.
#include <array>
#include <filesystem>

#include "planted_bugs.h"

namespace qwen_image {
namespace {

// Of tests/goldens/models/21-micro.
constexpr int64_t kHeads = 3, kHeadDim = 8, kDim = 24, kParts = 4;
constexpr double kGuidance = 3;
constexpr float kImageToken = 840;
const std::string kPass = "transformer/step000/";
const std::string kLayers = "text_encoder/model.language_model.layers.";
const std::string kRope = "text_encoder/model.language_model.rotary_emb";

std::string Block(int i) { return kPass + "transformer_blocks." + std::to_string(i); }

const Pipeline& Model() {
  static const Pipeline pipeline(
      std::filesystem::path(QWEN_IMAGE_SOURCE_DIR) / "tests/goldens/models/21-micro", {.threads = 2});
  return pipeline;
}

GenerateRequest DrawingRequest() {
  GenerateRequest request;
  request.prompt = "a red circle";
  request.negative_prompt = "a square";
  request.width = 96;
  request.height = 64;
  request.steps = 2;
  request.cfg = kGuidance;
  request.seed = 7;
  return request;
}

// Smooth colours, and an alpha that falls to the right.
Image MakePicture(int64_t width, int64_t height) {
  Image image{.width = width, .height = height, .pixels = {}, .channels = 4};
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      for (const int64_t value : {5 * x, 7 * y, 3 * (x + y), 255 - 2 * x})
        image.pixels.push_back(static_cast<uint8_t>(value % 256));
    }
  }
  return image;
}

GenerateRequest EditRequest() {
  GenerateRequest request;
  request.prompt = "make it green";
  request.input_images = {MakePicture(60, 20), MakePicture(33, 30)};
  request.width = 64;
  request.height = 32;
  request.steps = 2;
  request.seed = 7;
  return request;
}

struct Grid {
  int64_t height, width;
};
constexpr std::array<Grid, 3> kEditGrids = {{{2, 6}, {4, 4}, {2, 4}}};  // in tokens; the last is drawn

// ── Where tokens stand ──

struct Token {
  bool is_text = false, is_drawn = false;
  int64_t segment = 0;   // in the joint sequence
  int64_t pictures = 0;  // before it; for a token of one, its own number
};

// From the ids of the prompt: each slot of a picture becomes four tokens.
std::vector<Token> TokensOf(const Tensors& earlier) {
  const std::vector<float>& ids = earlier.at("input_ids").values;
  const int64_t kept = earlier.at("prompt_embeds").shape[1];
  std::vector<Token> tokens;
  Token token;
  for (auto id = ids.end() - kept; id != ids.end(); ++id) {
    const bool is_text = *id != kImageToken;
    if (!tokens.empty() && is_text != token.is_text) {
      ++token.segment;
      token.pictures += is_text;
    }
    token.is_text = is_text;
    tokens.insert(tokens.end(), is_text ? 1u : 4u, token);
  }
  const int64_t drawn = earlier.at("packed_latents_step0").shape[1];
  const Token last{.is_drawn = true, .segment = token.segment + 1, .pictures = token.pictures};
  tokens.insert(tokens.end(), At(drawn), last);
  return tokens;
}

// ── Modulation ──

// What the modulation has for element i of [1, tokens, dim], if the token takes `row`.
double ModulationAt(const Tensors& earlier, int64_t row, int64_t part, int64_t i) {
  return earlier.at(kPass + "modulation.1").values[At((row * kParts + part) * kDim + i % kDim)];
}

using RowOf = std::function<int64_t(const Token&)>;  // of the modulation; 0 is the step's, 1 that of t = 0
int64_t RightRow(const Token& token) { return token.is_drawn ? 0 : 1; }
int64_t StepForAll(const Token&) { return 0; }
int64_t ZeroForAll(const Token&) { return 1; }

Bug Modulated(const std::string& norm, int64_t part, const RowOf& row_of) {
  return [=](const Tensors& earlier, HintTensor& t) {
    const std::vector<Token> tokens = TokensOf(earlier);
    const std::vector<float>& x = earlier.at(norm).values;
    for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i) {
      const double scale = ModulationAt(earlier, row_of(tokens[At(i / kDim)]), part, i);
      t.values[At(i)] = static_cast<float>(x[At(i)] * (1 + scale));
    }
  };
}

Bug Gates(int64_t part, const RowOf& row_of, double (*activation)(double)) {
  return [=](const Tensors& earlier, HintTensor& t) {
    const std::vector<Token> tokens = TokensOf(earlier);
    for (int64_t i = 0; i < static_cast<int64_t>(t.values.size()); ++i)
      t.values[At(i)] =
          static_cast<float>(activation(ModulationAt(earlier, row_of(tokens[At(i / kDim)]), part, i)));
  };
}
double Tanh(double x) { return std::tanh(x); }
double Itself(double x) { return x; }

Bug AddWithoutTanh(const std::string& hidden, const std::string& branch, int64_t gate) {
  return [=](const Tensors& earlier, HintTensor& t) {
    Gates(gate, RightRow, Itself)(earlier, t);
    const std::vector<float>&x = earlier.at(hidden).values, &b = earlier.at(branch).values;
    for (size_t i = 0; i < x.size(); ++i) t.values[i] = x[i] + t.values[i] * b[i];
  };
}

// ── Attention and positions ──

using Sees = std::function<bool(const Token& query, const Token& key, bool key_is_before)>;

Bug Attention(const std::string& block, Sees sees) {
  return [=](const Tensors& earlier, HintTensor& t) {
    const std::vector<Token> tokens = TokensOf(earlier);
    const hints::WrongAttention attention{
        kHeads, kHeadDim, 1 / std::sqrt(static_cast<double>(kHeadDim)),
        [&](int64_t query, int64_t key) { return sees(tokens[At(query)], tokens[At(key)], key <= query); }};
    t.values =
        attention.Compute(earlier.at(block + ":query_rope").values, earlier.at(block + ":key_rope").values,
                          earlier.at(block + ".attn.to_v").values);
  };
}

bool SamePicture(const Token& a, const Token& b) { return !a.is_text && a.segment == b.segment; }
bool SeesAll(const Token&, const Token&, bool) { return true; }
bool SeesBefore(const Token&, const Token&, bool before) { return before; }
bool SeesItsSegment(const Token& q, const Token& k, bool before) { return before || q.segment == k.segment; }
bool SeesThePrefix(const Token& q, const Token& k, bool before) {
  return before || SamePicture(q, k) || !k.is_drawn;
}
bool SeesReferences(const Token& q, const Token& k, bool before) {
  return before || SamePicture(q, k) || (!q.is_text && !k.is_text && !k.is_drawn);
}
bool SeesPictures(const Token& q, const Token& k, bool before) {
  return before || (!q.is_text && !k.is_text);
}

// How far a token is from its position on the axes frame, height and width.
using Error3 = std::array<double, 3>;

Bug TurnedBy(const std::function<Error3(const Token&)>& error_of) {
  return [=](const Tensors& earlier, HintTensor& t) {
    const std::vector<Token> tokens = TokensOf(earlier);
    constexpr std::array<size_t, kHeadDim / 2> kAxis = {0, 1, 2, 2};
    constexpr std::array<double, kHeadDim / 2> kFrequency = {1, 1, 1, 0.01};
    for (int64_t i = 0; i < static_cast<int64_t>(t.values.size()); i += 2) {
      const auto pair = At(i % kHeadDim / 2);
      const double angle = error_of(tokens[At(i / kDim)])[kAxis[pair]] * kFrequency[pair];
      const double x = t.values[At(i)], y = t.values[At(i + 1)];
      t.values[At(i)] = static_cast<float>(x * std::cos(angle) - y * std::sin(angle));
      t.values[At(i + 1)] = static_cast<float>(x * std::sin(angle) + y * std::cos(angle));
    }
  };
}

// Rows and columns counted from the corner.
Error3 NotCentred(const Token& token) {
  if (token.is_text) return {};
  const Grid grid = kEditGrids[At(token.pictures)];
  return {0, static_cast<double>(grid.height - grid.height / 2),
          static_cast<double>(grid.width - grid.width / 2)};
}

// The position grows by one for a whole picture.
Error3 OnePositionAPicture(const Token& token) {
  double error = 0;
  for (int64_t i = 0; i < token.pictures; ++i)
    error += 1 - static_cast<double>(std::max(kEditGrids[At(i)].height, kEditGrids[At(i)].width));
  return token.is_text ? Error3{error, error, error} : Error3{error, 0, 0};
}

// ── The prompt ──

// x / √(mean(x²) + ε), by rows.
std::vector<float> Normalized(const HintTensor& x) {
  const auto width = At(x.shape.back());
  std::vector<float> y = x.values;
  for (size_t i = 0; i < y.size(); ++i) {
    double square = 0;
    for (size_t c = i / width * width; c < (i / width + 1) * width; ++c) square += x.values[c] * x.values[c];
    y[i] = static_cast<float>(x.values[i] / std::sqrt(square / static_cast<double>(width) + 1e-6));
  }
  return y;
}

Bug WithFinalNorm() {
  return [](const Tensors&, HintTensor& t) {
    const int64_t width = t.shape.back();
    t.values = Normalized(t);
    for (int64_t i = 0; i < static_cast<int64_t>(t.values.size()); ++i)
      t.values[At(i)] *= 1.5f + std::cos(static_cast<float>(i % width));
  };
}

Bug NormWithoutOne() {
  return [](const Tensors& earlier, HintTensor& t) {
    const std::vector<float> x = Normalized(earlier.at("prompt_embeds"));
    for (size_t i = 0; i < x.size(); ++i) t.values[i] -= x[i];
  };
}

Bug WithFeatures(const std::string& layer, const std::string& features) {
  return [=](const Tensors& earlier, HintTensor& t) {
    const std::vector<float>&ids = earlier.at("input_ids").values, &added = earlier.at(features).values;
    t.values = earlier.at(layer).values;
    const auto width = At(t.shape.back());
    size_t from = 0;
    for (size_t token = 0; token < ids.size(); ++token)
      for (size_t c = 0; c < width && ids[token] == kImageToken; ++c)
        t.values[token * width + c] += added[from++];
  };
}

// Four frequencies for time, then one for rows and one for columns.
Bug RopeInChunks() {
  return [](const Tensors& earlier, HintTensor& t) {
    constexpr std::array<size_t, 6> kAxis = {0, 0, 0, 0, 1, 2};
    const std::vector<float>& positions = earlier.at("position_ids").values;
    const auto tokens = At(t.shape[1]);
    for (size_t i = 0; i < t.values.size(); ++i) {
      const size_t frequency = i % kAxis.size();
      const double position = positions[kAxis[frequency] * tokens + i / (2 * kAxis.size())];
      const double exponent = static_cast<double>(frequency) / static_cast<double>(kAxis.size());
      t.values[i] = static_cast<float>(std::cos(position * std::pow(5e6, -exponent)));
    }
  };
}

// ── Guidance ──

// Back to the norm of the prompt's own prediction, token by token.
Bug RescaledGuidance() {
  return [](const Tensors& earlier, HintTensor& t) {
    const std::vector<float>& pos = earlier.at(kPass + "proj_out").values;
    const size_t first = pos.size() - t.values.size(), width = At(t.shape.back());
    const std::vector<float> guided = t.values;
    for (size_t i = 0; i < guided.size(); ++i) {
      double pos_square = 0, square = 0;
      for (size_t c = i / width * width; c < (i / width + 1) * width; ++c) {
        pos_square += pos[first + c] * pos[first + c];
        square += guided[c] * guided[c];
      }
      t.values[i] = static_cast<float>(guided[i] * std::sqrt(pos_square / square));
    }
  };
}

Bug PromptAlone() {
  return [](const Tensors& earlier, HintTensor& t) {
    const std::vector<float>& pos = earlier.at(kPass + "proj_out").values;
    t.values.assign(pos.end() - static_cast<int64_t>(t.values.size()), pos.end());
  };
}

std::vector<PlantedBug> DrawingBugs() {
  return {
      {"GateWithoutTanh", Block(0) + ":gate1", "missing_gate_tanh", Gates(1, RightRow, Itself)},
      {"MlpGateWithoutTanh", Block(1) + ":gate2", "missing_gate_tanh", Gates(3, RightRow, Itself)},
      {"AttentionAddedWithoutTanh", Block(0) + ":attn_residual", "missing_gate_tanh",
       AddWithoutTanh(kPass + ":joint", Block(0) + ".attn.to_out.0", 1)},
      {"MlpAddedWithoutTanh", Block(1), "missing_gate_tanh",
       AddWithoutTanh(Block(1) + ":attn_residual", Block(1) + ".img_mlp", 3)},
      {"MlpNotAdded", Block(0), "residual_not_updated", Use(Block(0) + ":attn_residual")},
      {"GateOfTheOtherBranch", Block(0) + ":gate2", "wrong_gate", Gates(1, RightRow, Tanh)},
      {"ModulationHalvesSwapped", Block(1) + ":modulated1", "wrong_modulation_half",
       Modulated(Block(1) + ".img_norm1", 2, RightRow)},
      {"GatesBeforeScales", kPass + "modulation.1", "swapped_parts",
       TakeFrom([](const HintTensor&, int64_t i) { return ((i / kDim) ^ 1) * kDim + i % kDim; })},
      {"PromptModulatedForT", Block(0) + ":modulated1", "prefix_modulated_for_t",
       Modulated(Block(0) + ".img_norm1", 0, StepForAll)},
      {"PromptGatedForT", Block(1) + ":gate1", "prefix_modulated_for_t", Gates(1, StepForAll, Tanh)},
      {"TargetModulatedForZero", Block(1) + ":modulated2", "target_modulated_for_zero",
       Modulated(Block(1) + ".img_norm2", 2, ZeroForAll)},
      {"TargetGatedForZero", Block(0) + ":gate2", "target_modulated_for_zero", Gates(3, ZeroForAll, Tanh)},
      {"RowsSwapped", Block(0) + ":modulated2", "swapped_modulation_rows",
       Modulated(Block(0) + ".img_norm2", 2, [](const Token& token) { return 1 - RightRow(token); })},
      {"MaskForgotten", Block(0) + ":attn_output", "missing_attention_mask", Attention(Block(0), SeesAll)},
      {"CausalEverywhere", Block(1) + ":attn_output", "causal_attention", Attention(Block(1), SeesBefore)},
      {"TextSeesAllText", Block(0) + ":attn_output", "text_not_causal", Attention(Block(0), SeesItsSegment)},
      {"TargetNotCentred", Block(0) + ":key_rope", "rope_positions", TurnedBy([](const Token& token) {
         return token.is_drawn ? Error3{0, 2, 3} : Error3{};
       })},
      {"FinalNormApplied", "prompt_embeds", "final_norm_applied", WithFinalNorm()},
      {"TextNormWithoutOne", kPass + "txt_in.text_norm", "missing_one_plus_weight", NormWithoutOne()},
      {"GuidanceRescaled", "noise_pred_step0", "guidance_rescaled", RescaledGuidance()},
      {"GuidanceForgotten", "noise_pred_step0", "missing_guidance", PromptAlone()},
  };
}

std::vector<PlantedBug> EditBugs() {
  const std::string features = "text_encoder/model.visual.deepstack_merger_list.";
  return {
      {"ReferencesModulatedForT", Block(1) + ":modulated1", "prefix_modulated_for_t",
       Modulated(Block(1) + ".img_norm1", 0, StepForAll)},
      {"MaskForgotten", Block(1) + ":attn_output", "missing_attention_mask", Attention(Block(1), SeesAll)},
      {"CausalEverywhere", Block(0) + ":attn_output", "causal_attention", Attention(Block(0), SeesBefore)},
      {"TextSeesItsRange", Block(0) + ":attn_output", "text_not_causal", Attention(Block(0), SeesItsSegment)},
      {"PrefixSeesItself", Block(1) + ":attn_output", "prefix_not_causal",
       Attention(Block(1), SeesThePrefix)},
      {"ReferencesSeeEachOther", Block(0) + ":attn_output", "pictures_see_each_other",
       Attention(Block(0), SeesReferences)},
      {"PicturesSeeEachOther", Block(1) + ":attn_output", "pictures_see_each_other",
       Attention(Block(1), SeesPictures)},
      {"PicturesNotCentred", Block(0) + ":query_rope", "rope_positions", TurnedBy(NotCentred)},
      {"OnePositionAPicture", Block(1) + ":key_rope", "rope_positions", TurnedBy(OnePositionAPicture)},
      {"DeepstackForgotten", kLayers + "0:deepstack", "missing_deepstack", Use(kLayers + "0")},
      {"DeepstackALayerLate", kLayers + "1:deepstack", "wrong_deepstack_layer",
       WithFeatures(kLayers + "1", features + "0")},
      {"RopeInChunks", kRope + ":cos", "mrope_in_chunks", RopeInChunks()},
  };
}

template <GenerateRequest (*kRequest)()>
class PlantedBugs21 : public testing::TestWithParam<PlantedBug> {
 protected:
  static void ExpectNamed(const PlantedBug& bug) {
    static const TempFolder reference_folder;
    static const record::TensorSet reference = [] {
      RunInto(reference_folder, Model(), kRequest(), {});
      return record::TensorSet::Open(reference_folder.path());
    }();
    const TempFolder folder;
    RunInto(folder, Model(), kRequest(), {{bug.checkpoint, bug.bug}});
    ExpectFound(reference, record::TensorSet::Open(folder.path()), bug.checkpoint, bug.kind);
  }
};

using PlantedBugs21Drawing = PlantedBugs21<DrawingRequest>;
TEST_P(PlantedBugs21Drawing, AreFoundWhereTheyAreAndNamed) { ExpectNamed(GetParam()); }
INSTANTIATE_TEST_SUITE_P(All, PlantedBugs21Drawing, testing::ValuesIn(DrawingBugs()), LabelOf);

using PlantedBugs21Edit = PlantedBugs21<EditRequest>;
TEST_P(PlantedBugs21Edit, AreFoundWhereTheyAreAndNamed) { ExpectNamed(GetParam()); }
INSTANTIATE_TEST_SUITE_P(All, PlantedBugs21Edit, testing::ValuesIn(EditBugs()), LabelOf);

}  // namespace
}  // namespace qwen_image
