#include "catalogue/local.h"

#include <algorithm>
#include <system_error>

#include "core/fail.h"
#include "core/memory.h"
#include "hub/cache.h"
#include "hub/incomplete_blob.h"
#include "hub/pull.h"

namespace qwen_image::catalogue {
namespace {

namespace fs = std::filesystem;

std::string Needs(const Entry& entry) {
  return fmt::format("{} to download, needs {} of memory", Gigabytes(entry.Bytes()), Gigabytes(entry.memory));
}

std::string MachineText(const Machine& machine) {
  return fmt::format("this machine has {} of memory and {} of disk free", Gigabytes(machine.memory),
                     Gigabytes(machine.disk));
}

[[noreturn]] void FailTooLarge(const std::vector<const Entry*>& entries, const std::string& name,
                               const Machine& machine) {
  std::string lines;
  for (const Entry* entry : entries) lines += fmt::format("\n  {}: {}", entry->name, Needs(*entry));
  Fail(ErrorKind::kOutOfMemory,
       "no model of {} fits: {}. A name with its tag is taken whether it fits or not:{}", name,
       MachineText(machine), lines);
}

}  // namespace

std::string Gigabytes(uint64_t bytes) {
  constexpr uint64_t kUnknown = uint64_t{1} << 62;
  const double gigabytes = static_cast<double>(bytes) / 1e9;
  if (bytes >= kUnknown) return "an unknown amount";
  if (gigabytes < 0.1) return fmt::format("{:.0f} MB", gigabytes * 1000);
  return fmt::format("{:.{}f} GB", gigabytes, gigabytes < 10 ? 1 : 0);
}

Machine ThisMachine(const fs::path& cache) {
  return {.memory = static_cast<uint64_t>(TotalMemory()), .disk = hub::FreeSpace(cache)};
}

std::optional<fs::path> PathOf(const Source& source, const fs::path& cache) {
  const std::optional<fs::path> snapshot = hub::SnapshotFolder(cache, source.repo);
  if (!snapshot) return std::nullopt;
  std::error_code error;
  for (const std::string& file : source.files) {
    if (!fs::is_regular_file(*snapshot / file, error)) return std::nullopt;
  }
  return source.path == "." ? *snapshot : *snapshot / source.path;
}

uint64_t BytesOf(const Source& source, const fs::path& cache) {
  const auto snapshot = hub::SnapshotFolder(cache, source.repo);
  uint64_t bytes = 0;
  if (!snapshot) return bytes;
  for (const std::string& file : source.files) {
    std::error_code error;
    const uint64_t size = fs::file_size(*snapshot / file, error);
    if (!error) bytes += size;
  }
  return bytes;
}

Status StatusOf(const Entry& entry, const fs::path& cache, const Machine& machine) {
  Status status;
  status.here = true;
  for (const Source* source : entry.Sources()) {
    if (PathOf(*source, cache)) continue;
    status.here = false;
    // Which blob an interrupted download belongs to, only the repository's list tells: all count.
    const uint64_t there =
        BytesOf(*source, cache) + hub::IncompleteBytes(hub::RepoFolder(cache, source->repo));
    status.missing_bytes += source->bytes - std::min(there, source->bytes);
    if (source == entry.Sources().front()) status.begun = there > 0;
  }
  status.fits_memory = entry.memory <= machine.memory;
  status.fits_disk = status.missing_bytes <= machine.disk;
  return status;
}

Choice Choose(const std::vector<const Entry*>& entries, const std::string& name, const fs::path& cache,
              const Machine& machine) {
  if (entries.size() == 1) return {entries.front(), ""};
  const Entry *here = nullptr, *here_and_fits = nullptr, *begun = nullptr, *fits = nullptr;
  for (const Entry* entry : entries) {
    const Status status = StatusOf(*entry, cache, machine);
    if (!here && status.here) here = entry;
    if (!here_and_fits && status.here && status.Fits()) here_and_fits = entry;
    if (!begun && status.begun && status.Fits()) begun = entry;
    if (!fits && status.Fits()) fits = entry;
  }
  if (here_and_fits) here = here_and_fits;
  if (here) return {here, fmt::format("{}: taking {}, which is downloaded", name, here->tag)};
  if (begun) return {begun, fmt::format("{}: taking {}, whose download was begun", name, begun->tag)};
  if (!fits) FailTooLarge(entries, name, machine);
  return {fits, fmt::format("{}: taking {} ({}; {})", name, fits->tag, Needs(*fits), MachineText(machine))};
}

ModelFiles Resolve(const Entry& entry, ModelFiles named, const fs::path& cache) {
  named.model.clear();  // where the name was
  const bool own_transformer = !named.transformer.empty();
  const auto take = [&](const Source* source, fs::path& part) {
    if (!source || !part.empty()) return;
    const std::optional<fs::path> path = PathOf(*source, cache);
    if (!path) {
      Fail(ErrorKind::kBadInput,
           "{} is not downloaded ({} of {} is missing in {}); qwen-image pull {} fetches it", entry.name,
           source->path, source->repo.ToString(), cache.string(), entry.name);
    }
    part = *path;
  };
  take(entry.model, named.model);
  take(entry.transformer, named.transformer);
  take(entry.text_encoder, named.text_encoder);
  take(entry.vision_encoder, named.vision_encoder);
  take(entry.vae, named.vae);
  take(entry.tokenizer, named.tokenizer);
  if (own_transformer) return named;
  if (named.variant.empty()) named.variant = entry.variant;
  std::vector<LoraFile> loras;
  for (const Lora& lora : entry.loras) {
    LoraFile file{.scale = lora.scale};
    take(lora.source, file.path);
    const auto is_same = [&](const LoraFile& other) { return other.path.filename() == file.path.filename(); };
    if (std::none_of(named.loras.begin(), named.loras.end(), is_same)) loras.push_back(std::move(file));
  }
  named.loras.insert(named.loras.begin(), loras.begin(), loras.end());
  return named;
}

}  // namespace qwen_image::catalogue
