// The members of the family, and what they are called.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qwen_image::qwen_image_21 {

// Their tensors are alike; Turbo is drawn with noise levels of its own, and few of them.
enum class Variant { kBase, kTurbo };

std::string_view NameOf(Variant variant);  // "2.1", "2.1-turbo"
std::optional<Variant> ParseVariant(std::string_view name);
const std::vector<std::string>& VariantNames();

}  // namespace qwen_image::qwen_image_21
