#include "serve_command.h"

#include <CLI/CLI.hpp>
#include <mutex>

#include "../server/server.h"
#include "cache_folder.h"
#include "core/fail.h"
#include "model_options.h"
#include "options.h"
#include "print.h"
#include "qwen_image/cancel.h"

namespace qwen_image {
namespace {

constexpr const char* kKeyVariable = "QWEN_IMAGE_API_KEY";

std::filesystem::path JobsFolder(const ServeOptions& o) {
  if (!o.jobs_dir.empty()) return o.jobs_dir;
  if (const auto folder = DataFolder("jobs")) return *folder;
  Fail(ErrorKind::kUsage, "neither XDG_DATA_HOME nor HOME is set; say where to keep jobs with --jobs-dir");
}

void Say(const server::Server& server, const ServeOptions& o, const std::string& model) {
  Print(stdout, "{} is ready: open {}/ in a browser (Ctrl-C stops it{})\n", model, server.url(),
        o.api_key.empty() ? "" : "; the page asks for the key");
}

}  // namespace

void AddServeOptions(CLI::App& command, ServeOptions& o) {
  const char *network = "Network", *work = "Jobs", *machine = "Machine";
  AddModelOptions(command, o.files);
  command.add_option("--host", o.host, "The address to listen on (default: 127.0.0.1, this machine only)")
      ->group(network);
  command.add_option("--port", o.port, "The port (default: 8080; 0: any that is free)")->group(network);
  command
      .add_option(
          "--api-key", o.api_key,
          "Clients must send this as \"Authorization: Bearer KEY\". Others on this machine see it in the "
          "list "
          "of processes; the variable QWEN_IMAGE_API_KEY does the same unseen. Needed for every address but "
          "this machine's own")
      ->envname(kKeyVariable)
      ->group(network);
  command
      .add_option(
          "--allow-host", o.allowed_hosts,
          "A name that clients reach this server by, for example behind a proxy; may be given several times")
      ->allow_extra_args(false)
      ->take_all()
      ->group(network);
  command
      .add_option("--jobs-dir", o.jobs_dir,
                  "Where jobs and their pictures are kept (default: qwen-image/jobs in $XDG_DATA_HOME or "
                  "~/.local/share)")
      ->group(work);
  command.add_option("--queue", o.queue, "Jobs that may wait; more are told to come again (default: 16)")
      ->check(CLI::Range(int64_t{1}, int64_t{1000}))
      ->group(work);
  command.add_option("--keep", o.keep, "Finished jobs that are kept; the oldest go first (default: 200)")
      ->check(CLI::Range(int64_t{1}, int64_t{100000}))
      ->group(work);
  command.add_option("--precision", o.precision, "fast (the default) or exact, as in generate")
      ->check(CLI::IsMember({"exact", "fast"}))
      ->group(machine);
  AddDeviceOption(command, o.device)->group(machine);
  command.add_option("-t,--threads", o.threads, "Threads (default: all processors)")
      ->check(CLI::Range(1, 1024))
      ->group(machine);
  command
      .add_flag("--no-prompt-cache", o.no_prompt_cache,
                "Neither keep embeddings of prompts on disk nor use those of earlier runs")
      ->group(machine);
  command
      .add_flag("--ignore-memory", o.ignore_memory, "Try even if the model does not seem to fit in memory")
      ->group(machine);
  command.add_flag("-q,--quiet", o.quiet, "No log of requests and jobs on stderr")->group("Reporting");
  RefuseEmptyValues(command, {});
  command.footer(
      "Examples:\n"
      "  qwen-image serve\n"
      "  qwen-image serve --model ~/models/Qwen-Image-Edit-2511 --port 9000\n"
      "  QWEN_IMAGE_API_KEY=\"$(cat key.txt)\" qwen-image serve --host 0.0.0.0\n"
      "  curl -s http://127.0.0.1:8080/jobs -d '{\"prompt\": \"a red circle on a blue background\"}'");
}

int RunServe(const ServeOptions& o, const CancelFlag& cancel) {
  const ModelFiles model = FindModel(o.files);
  const Precision precision = PrecisionOf(o.precision, o.device);
  const Pipeline pipeline(model, {.threads = o.threads,
                                  .check_memory = !o.ignore_memory,
                                  .precision = precision,
                                  .device = DeviceOf(o.device),
                                  .prompt_cache = o.no_prompt_cache ? "" : PromptCacheFolder().value_or("")});
  server::ServerSettings settings;
  settings.http.host = o.host;
  settings.http.port = o.port;
  settings.http.key = o.api_key;
  settings.http.allowed_hosts = o.allowed_hosts;
  settings.jobs = {.queue = o.queue, .kept = o.keep};
  settings.jobs_folder = JobsFolder(o);
  settings.model_name = ModelName(model);
  settings.precision = precision;
  std::mutex printing;
  if (!o.quiet)
    settings.log = [&printing](const std::string& line) {
      const std::lock_guard lock(printing);
      Print(stderr, "{}\n", line);
    };
  server::Server server(pipeline, settings);
  cancel.ThrowIfCancelled();  // while the model was loaded
  server.DrainOnSignals();
  Say(server, o, settings.model_name);
  server.Run();
  return 0;
}

}  // namespace qwen_image
