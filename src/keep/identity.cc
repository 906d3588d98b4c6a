#include "keep/identity.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "core/fail.h"
#include "engine_hash.h"
#include "files/digest.h"
#include "kernels/int8/tile.h"
#include "kernels/interface.h"
#include "options/names.h"

namespace qwen_image::keep {
namespace {

// The bytes before the first tensor: names, types, shapes, metadata.
std::span<const std::byte> HeaderOf(const WeightFile& file) {
  const std::span<const std::byte> bytes = file.file().bytes();
  const std::byte* end = bytes.data() + bytes.size();
  for (const auto& [name, tensor] : file.tensors()) {
    if (!tensor.bytes.empty()) end = std::min(end, tensor.bytes.data());
  }
  return bytes.first(static_cast<size_t>(end - bytes.data()));
}

}  // namespace

std::string EngineIdentity() {
  return fmt::format("{} {} {} {}", Version(), QWEN_IMAGE_ENGINE_HASH, InstructionSet(),
                     ChosenInt8Kernel().name);
}

std::string FingerprintOf(const WeightFile& file) {
  constexpr size_t kSamples = 256, kSampleBytes = 64;
  const std::span<const std::byte> bytes = file.file().bytes();
  Digest digest(Digest::Kind::kSha256, 0);
  digest.Add(fmt::format("{} ", bytes.size()));
  digest.Add(HeaderOf(file));
  for (size_t i = 0; i < kSamples; ++i) {
    const size_t begin = bytes.size() / kSamples * i;
    digest.Add(bytes.subspan(begin, std::min(kSampleBytes, bytes.size() - begin)));
  }
  return digest.Finish();
}

std::string IdentityOf(const WeightFile& file) {
  const FileStamp& stamp = file.file().stamp();
  return Sha256(fmt::format("{} {}.{:09} {} {}", stamp.size, stamp.seconds, stamp.nanoseconds,
                            file.file().status_changed(), FingerprintOf(file)));
}

std::string IdentityOf(const WeightStore& store) {
  std::string text = store.config().dump(-1, ' ', true, Json::error_handler_t::replace);
  for (const auto& file : store.files()) text.append(" ").append(IdentityOf(*file));
  store.ReleasePages();
  return Sha256(text);
}

// A new setting of a model that changes its numbers (a precision, …) belongs into this line.
const std::string& Identities::Of(Component component) {
  std::string& identity = known_[component];
  if (identity.empty()) {
    if (component == Component::kVisionEncoder) model_.conditioner().NeedVision();
    identity = Sha256(fmt::format("{} {} {} {}", EngineIdentity(), NameOf(device_), NameOf(precision_),
                                  IdentityOf(*model_.StoreOf(component))));
  }
  return identity;
}

}  // namespace qwen_image::keep
