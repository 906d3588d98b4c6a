// qwen-image rm: deletes a downloaded model by its short name.
#include <memory>

#include "catalogue/local.h"
#include "catalogue/removal.h"
#include "command.h"
#include "core/fail.h"
#include "hub/environment.h"
#include "named_model.h"
#include "print.h"
#include "text_table.h"

namespace qwen_image::cli {
namespace {

struct RmCommandOptions {
  std::string name;
  bool yes = false;
};

// Of a name without a tag the one that is downloaded, if it is one.
const catalogue::Entry& EntryToRemove(const catalogue::Catalogue& all, const std::string& name,
                                      const std::filesystem::path& cache) {
  const std::vector<const catalogue::Entry*> entries = all.Find(name);
  if (entries.size() == 1) return *entries.front();
  std::vector<const catalogue::Entry*> here;
  std::string names;
  for (const catalogue::Entry* entry : entries) {
    if (!catalogue::StatusOf(*entry, cache, {}).here) continue;
    here.push_back(entry);
    names += (names.empty() ? "" : ", ") + entry->name;
  }
  if (here.empty())
    Fail(ErrorKind::kBadInput, "nothing of {} is downloaded whole; a tag says which to delete", name);
  if (here.size() > 1) Fail(ErrorKind::kUsage, "several of {} are downloaded; say which: {}", name, names);
  return *here.front();
}

int Run(const RmCommandOptions& o, const CancelFlag& cancel) {
  const catalogue::Catalogue all = catalogue::Catalogue::Load();
  const std::filesystem::path cache = hub::CacheFolder();
  const catalogue::Entry& entry = EntryToRemove(all, o.name, cache);
  const catalogue::Removal removal = catalogue::PlanRemoval(all, entry, cache);
  if (removal.bytes > 0 && !o.yes) {
    std::string files;
    for (const catalogue::Source* source : removal.sources)
      files += fmt::format("  {}: {}\n", source->repo.FullName(), source->path);
    NeedConsent(fmt::format("{}, in {}:\n{}Delete {}?", entry.name, cache.string(), files,
                            catalogue::Gigabytes(removal.bytes)),
                fmt::format("say --yes to delete {} ({})", entry.name, catalogue::Gigabytes(removal.bytes)),
                cancel);
  }
  const uint64_t freed = catalogue::Remove(removal, cache);
  for (const catalogue::Removal::Kept& kept : removal.kept) {
    if (catalogue::PathOf(*kept.source, cache))
      Print(stdout, "kept {} of {}: {}\n", kept.source->path, kept.source->repo.FullName(), kept.why);
  }
  if (freed == 0 && removal.bytes == 0)
    Fail(ErrorKind::kBadInput, "nothing that only {} uses is downloaded", entry.name);
  Print(stdout, "{}: {} freed\n", entry.name, HumanBytes(static_cast<int64_t>(freed)));
  return 0;
}

}  // namespace

Command RmCommand() {
  const auto o = std::make_shared<RmCommandOptions>();
  return {.name = "rm",
          .summary = "Delete a downloaded model by its short name",
          .options = {{.names = "name",
                       .target = &o->name,
                       .help = "FAMILY:TAG as `qwen-image list` shows it",
                       .required = true},
                      {.names = "-y,--yes", .target = &o->yes, .help = "Delete without asking"}},
          .footer =
              "Examples:\n"
              "  qwen-image rm qwen-image-2512:lightning-q4\n\n"
              "Files that another downloaded model uses stay. Nothing outside of the Hugging Face cache is "
              "touched.",
          .run = [o](const Session& session) { return Run(*o, session.cancel); }};
}

}  // namespace qwen_image::cli
