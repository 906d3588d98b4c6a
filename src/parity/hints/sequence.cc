// Hypotheses about the order of tokens and steps, and about tensors that took another one's place.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "parity/hints/search.h"

namespace qwen_image::hints {
namespace {

constexpr int64_t kMostTokens = 16384;  // rotations are tried one by one

// A tensor as [outer, tokens, inner].
struct TokenView {
  size_t axis = 0;
  int64_t tokens = 0, inner = 1;

  int64_t TokenOf(int64_t i) const { return i / inner % tokens; }
};

std::optional<TokenView> TokensOf(const Shape& shape) {
  if (shape.empty()) return {};
  TokenView view;
  view.axis = shape.size() > 1 && shape[0] == 1 ? 1 : 0;
  view.tokens = shape[view.axis];
  for (size_t a = view.axis + 1; a < shape.size(); ++a) view.inner *= shape[a];
  if (view.tokens < 2 || view.tokens > kMostTokens || view.inner < 1) return {};
  return view;
}

bool IsPicture(std::string_view name) { return name.starts_with("vae") || name == "image"; }

int64_t TextTokens(const HintSearch& s) {
  const bool negative = s.name().find(".neg") != std::string::npos;
  const auto embeds = s.context().ref(negative ? "negative_prompt_embeds" : "prompt_embeds");
  return embeds && embeds->shape.size() == 3 ? embeds->shape[1] : 0;
}

void AddRotation(HintSearch& s, const TokenView& view, int64_t by, HintSearch::Fit fit) {
  const int64_t text = TextTokens(s);
  const bool is_joint = s.name().ends_with(kAttentionOutput) || s.name().ends_with(kAttentionWeights);
  if (is_joint || (text > 0 && (by == text || by == view.tokens - text))) {
    s.Add(
        "swapped_text_image", fit,
        fmt::format("Text and image are in the other order: the run's sequence is the reference's from token "
                    "{} on, then its first {}. The joint sequence is [text, image]; look at every "
                    "concatenation and split around the attention.",
                    by, by));
  } else if (by == 1 || by == view.tokens - 1) {
    s.Add("off_by_one_sequence", fit,
          fmt::format("The sequence is rotated by one token along axis {}. Look for an index that is off by "
                      "one.",
                      view.axis));
  } else {
    s.Add("rotated_sequence", fit,
          fmt::format("The sequence is rotated along axis {}: the run's token t is the reference's token "
                      "t + {} (modulo {}). Look at concatenations in the wrong order.",
                      view.axis, by, view.tokens));
  }
}

bool TestRotations(HintSearch& s, const TokenView& view) {
  for (int64_t by = 1; by < view.tokens; ++by) {
    const auto value = [&](int64_t i) {
      const int64_t token = view.TokenOf(i);
      const int64_t from = token + by < view.tokens ? token + by : token + by - view.tokens;
      return s.RefAt(i + (from - token) * view.inner);
    };
    if (const auto fit = s.Test(value)) {
      AddRotation(s, view, by, *fit);
      return true;
    }
  }
  return false;
}

bool TestShifts(HintSearch& s, const TokenView& view) {
  for (const int64_t by : {1, -1, 2, -2}) {
    const auto value = [&](int64_t i) {
      const int64_t from = view.TokenOf(i) + by;
      return from >= 0 && from < view.tokens ? s.RefAt(i + by * view.inner) : kNoOpinion;
    };
    if (const auto fit = s.Test(value)) {
      s.Add(
          std::abs(by) == 1 ? "off_by_one_sequence" : "shifted_sequence", *fit,
          fmt::format("The sequence is shifted: the run's element t along axis {} is the reference's t {:+}. "
                      "Look for an index that is off, or a token too many at one end.",
                      view.axis, by));
      return true;
    }
  }
  return false;
}

// The run has more or fewer tokens, but the tokens that both have agree.
bool TestWindows(HintSearch& s) {
  const auto ref = TokensOf(s.ref().shape), run = TokensOf(s.run().shape);
  if (!ref || !run || ref->axis != run->axis || ref->inner != run->inner) return false;
  const int64_t fewer = std::min(ref->tokens, run->tokens);
  for (int64_t first = -ref->tokens + 1; first < run->tokens; ++first) {  // of the reference, in the run
    const int64_t shared = std::min(run->tokens, first + ref->tokens) - std::max<int64_t>(first, 0);
    if (2 * shared < fewer || shared * run->inner < 4) continue;
    const auto value = [&](int64_t i) {
      const int64_t token = run->TokenOf(i) - first;
      return token >= 0 && token < ref->tokens ? s.RefAt(token * ref->inner + i % ref->inner) : kNoOpinion;
    };
    if (const auto fit = s.Test(value, {.least_share = 0})) {
      s.Add("sequence_window", *fit,
            fmt::format("The run has {} tokens, the reference {}; the run's tokens from {} on are the "
                        "reference's from {} on ({} agree). Look at padding, at a cut-off, and at the prompt "
                        "template's first tokens, which are dropped from the embeddings.",
                        run->tokens, ref->tokens, std::max<int64_t>(first, 0), std::max<int64_t>(-first, 0),
                        shared));
      return true;
    }
  }
  return false;
}

// The name with the number after "step" changed; empty if there is none.
std::string OtherStep(const std::string& name, int64_t change) {
  const size_t at = name.find("step");
  if (at == name.npos) return {};
  const size_t begin = at + 4;
  size_t end = begin;
  while (end < name.size() && name[end] >= '0' && name[end] <= '9') ++end;
  int64_t step = 0;
  if (std::from_chars(name.data() + begin, name.data() + end, step).ec != std::errc() || step + change < 0)
    return {};
  return fmt::format("{}{:0{}}{}", name.substr(0, begin), step + change, static_cast<int>(end - begin),
                     name.substr(end));
}

bool TestOtherSteps(HintSearch& s) {
  for (const int64_t change : {1, -1}) {
    const std::string name = OtherStep(s.name(), change);
    if (name.empty()) continue;
    const auto other = s.OtherRef(name, s.count());
    if (!other) continue;
    const auto fit = s.Test([&](int64_t i) { return other->values[static_cast<size_t>(i)]; });
    if (!fit) continue;
    s.Add("off_by_one_step", *fit,
          fmt::format("This is the reference's tensor of the {} step, {}. Look at the index into sigmas and "
                      "timesteps, and at whether latents are saved before or after the step.",
                      change > 0 ? "next" : "previous", name));
    return true;
  }
  return false;
}

// Tries the pass of the other prompt, and the neighbours in the reference's order.
std::vector<std::string> Neighbours(const HintSearch& s) {
  std::vector<std::string> names;
  const std::string& name = s.name();
  if (const size_t slash = name.rfind('/'); slash != name.npos) {
    const std::string_view pass = std::string_view(name).substr(0, slash);
    names.push_back(pass.ends_with(".neg") ? name.substr(0, slash - 4) + name.substr(slash)
                                           : name.substr(0, slash) + ".neg" + name.substr(slash));
  } else if (name.starts_with("negative_")) {
    names.push_back(name.substr(9));
  } else {
    names.push_back("negative_" + name);
  }
  const auto& all = s.context().names;
  const auto here = std::find(all.begin(), all.end(), name);
  if (here == all.end()) return names;
  constexpr std::ptrdiff_t kBefore = 12, kAfter = 4;
  const auto begin = here - std::min(kBefore, here - all.begin());
  const auto end = here + std::min(kAfter + 1, all.end() - here);
  for (auto it = here; it != begin;) names.push_back(*--it);
  if (here != all.end()) names.insert(names.end(), here + 1, end);
  return names;
}

bool TestNeighbours(HintSearch& s) {
  for (const std::string& name : Neighbours(s)) {
    const auto other = s.OtherRef(name, s.count());
    if (!other) continue;
    const auto fit = s.Test([&](int64_t i) { return other->values[static_cast<size_t>(i)]; });
    if (!fit) continue;
    s.Add(
        "carries_other_tensor", *fit,
        fmt::format("The run carries the tensor of {} here. Look for an operation that was skipped, a result "
                    "that was not assigned, or two tensors that changed places.",
                    name));
    return true;
  }
  return false;
}

// The embeddings are the last tokens of another layer's output.
bool TestEarlierLayers(HintSearch& s) {
  const bool negative = s.name() == "negative_prompt_embeds";
  if ((!negative && s.name() != "prompt_embeds") || s.ref().shape.empty()) return false;
  const std::string pass = negative ? "text_encoder.neg/" : "text_encoder/";
  for (const std::string& name : s.context().names) {
    if (!name.starts_with(pass)) continue;
    const auto layer = s.context().ref(name);
    if (!layer || layer->shape.empty() || layer->shape.back() != s.ref().shape.back()) continue;
    const int64_t dropped = static_cast<int64_t>(layer->values.size()) - s.count();
    if (dropped < 0) continue;
    const auto value = [&](int64_t i) { return layer->values[static_cast<size_t>(i + dropped)]; };
    // What the reference itself has taken is no mistake.
    if (s.ExplainsReference(value)) continue;
    const auto fit = s.Test(value);
    if (!fit) continue;
    s.Add("earlier_layer", *fit,
          fmt::format("The embeddings are the output of {}, not of the last layer.", name));
    return true;
  }
  return false;
}

}  // namespace

void TestSequenceHints(HintSearch& s) {
  if (!s.same_shape()) {
    TestWindows(s);
    return;
  }
  const auto view = IsPicture(s.name()) ? std::nullopt : TokensOf(s.ref().shape);
  if (view) TestRotations(s, *view) || TestShifts(s, *view);
}

void TestOtherTensorHints(HintSearch& s) {
  if (!s.same_shape()) return;
  TestOtherSteps(s) || TestNeighbours(s) || TestEarlierLayers(s);
}

}  // namespace qwen_image::hints
