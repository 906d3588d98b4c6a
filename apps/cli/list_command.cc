// qwen-image list: the models that have a short name, and which of them are here or could be.
#include <memory>

#include "catalogue/local.h"
#include "command.h"
#include "hub/environment.h"
#include "print.h"
#include "text_table.h"

namespace qwen_image::cli {
namespace {

struct ListCommandOptions {
  bool json = false;
};

const char* StateOf(const catalogue::Status& status) {
  if (status.here) return status.fits_memory ? "here" : "here, too large";
  if (!status.fits_memory) return "too large";
  return status.fits_disk ? "fits" : "disk too full";
}

Json SourceJson(const catalogue::Source& source, const std::filesystem::path& cache) {
  Json json = {{"repository", source.repo.ToString()},
               {"files", source.files},
               {"bytes", source.bytes},
               {"here", catalogue::PathOf(source, cache).has_value()}};
  if (source.seen.empty()) {
    json["unseen"] = true;
  } else {
    json["seen"] = source.seen;
  }
  return json;
}

Json ListJson(const catalogue::Catalogue& all, const std::filesystem::path& cache,
              const catalogue::Machine& machine) {
  Json models = Json::array();
  for (const catalogue::Entry& entry : all.entries()) {
    const catalogue::Status status = catalogue::StatusOf(entry, cache, machine);
    Json model = {{"name", entry.name},
                  {"purpose", entry.purpose},
                  {"variant", entry.variant},
                  {"licence", entry.licence},
                  {"bytes", entry.Bytes()},
                  {"missing_bytes", status.missing_bytes},
                  {"memory", entry.memory},
                  {"here", status.here},
                  {"fits_memory", status.fits_memory},
                  {"fits_disk", status.fits_disk},
                  {"sources", Json::array()}};
    for (const catalogue::Source* source : entry.Sources())
      model["sources"].push_back(SourceJson(*source, cache));
    models.push_back(std::move(model));
  }
  return {{"cache", cache.string()},
          {"free_memory", machine.memory},
          {"free_disk", machine.disk},
          {"models", models}};
}

void PrintTable(const catalogue::Catalogue& all, const std::filesystem::path& cache,
                const catalogue::Machine& machine) {
  TextTable table({{"name", false},
                   {"for", false},
                   {"state", false},
                   {"download", true},
                   {"memory", true},
                   {"licence", false}});
  bool all_seen = true;
  for (const catalogue::Entry& entry : all.entries()) {
    all_seen &= entry.AllSeen();
    table.AddRow({entry.name + (entry.AllSeen() ? "" : " *"), entry.purpose,
                  StateOf(catalogue::StatusOf(entry, cache, machine)), catalogue::Gigabytes(entry.Bytes()),
                  catalogue::Gigabytes(entry.memory), entry.licence});
  }
  for (const std::string& line : table.Lines()) Print(stdout, "{}\n", line);
  Print(stdout, "\nThis machine has {} of memory and {} of disk free; models are kept in {}.\n",
        catalogue::Gigabytes(machine.memory), catalogue::Gigabytes(machine.disk), cache.string());
  if (!all_seen)
    Print(stdout, "* The names of some of its files are a guess; pull looks before it downloads.\n");
}

int Run(const ListCommandOptions& o) {
  const catalogue::Catalogue all = catalogue::Catalogue::Load();
  const std::filesystem::path cache = hub::CacheFolder();
  const catalogue::Machine machine = catalogue::ThisMachine(cache);
  if (o.json) {
    Print(stdout, "{}\n", ListJson(all, cache, machine).dump(1, ' ', false, Json::error_handler_t::replace));
  } else {
    PrintTable(all, cache, machine);
  }
  return 0;
}

}  // namespace

Command ListCommand() {
  const auto o = std::make_shared<ListCommandOptions>();
  return {.name = "list",
          .summary = "Models by short name: which are here, which fit this machine",
          .options = {{.names = "--json", .target = &o->json, .help = "Print one JSON object"}},
          .footer =
              "Examples:\n"
              "  qwen-image list\n"
              "  qwen-image run qwen-image-2.1 \"a cat\"     the first of the family that fits\n\n"
              "Of each family the best is listed first: those of few steps, then the others, each with "
              "the most exact\n"
              "weights first.\n"
              "Environment: QWEN_IMAGE_CATALOGUE, a file with other models in the form of "
              "src/catalogue/catalogue.json.",
          .run = [o](const Session&) { return Run(*o); }};
}

}  // namespace qwen_image::cli
