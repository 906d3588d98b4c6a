#include "serve_command.h"

#if __has_include(<malloc.h>)
#include <malloc.h>
#endif

#include <CLI/CLI.hpp>
#include <mutex>

#include "../server/access.h"
#include "../server/server.h"
#include "cache_folder.h"
#include "core/fail.h"
#include "files/numbers.h"
#include "files/text.h"
#include "model_options.h"
#include "options.h"
#include "print.h"
#include "qwen_image/cancel.h"
#include "weights/model_name.h"

namespace qwen_image {
namespace {

constexpr const char* kKeyVariable = "QWEN_IMAGE_API_KEY";

// CLI11 would only say that the number cannot be converted.
std::string CheckPort(const std::string& text) {
  const auto port = ParseWhole(text);
  if (port && *port <= 65535) return "";
  return fmt::format("{} is no port; they go from 1 to 65535, and 0 takes any that is free", Quoted(text));
}

std::filesystem::path JobsFolder(const ServeOptions& o) {
  if (!o.jobs_dir.empty()) return o.jobs_dir;
  if (const auto folder = DataFolder("jobs")) return *folder;
  Fail(ErrorKind::kUsage, "neither XDG_DATA_HOME nor HOME is set; say where to keep jobs with --jobs-dir");
}

// Once a buffer of up to 32 MB has been freed, glibc takes the next ones of that size from its heaps, of
// which every thread has one, and does not give them back: a server that was sent a few large pictures would
// hold hundreds of megabytes for as long as it runs. With a fixed limit, larger buffers go back to the system
// when they are freed.
void GiveBackLargeBuffers() {
#ifdef __GLIBC__
  constexpr int kLarge = 4 << 20;
  mallopt(M_MMAP_THRESHOLD, kLarge);
#endif
}

void Say(const server::Server& server, const ServeOptions& o, const std::string& model) {
  Print(stdout, "{} is ready: open {}/ in a browser (Ctrl-C stops it{})\n", model, server.url(),
        o.api_key.empty() ? "" : "; the page asks for the key");
}

}  // namespace

void AddServeOptions(CLI::App& command, ServeOptions& o) {
  const char *network = "Network", *work = "Jobs";
  AddModelOptions(command, o.files);
  command.add_option("--host", o.host, "The address to listen on (default: 127.0.0.1, this machine only)")
      ->group(network);
  command.add_option("--port", o.port, "The port, 1 to 65535 (default: 8080; 0: any that is free)")
      ->check(CheckPort)
      ->group(network);
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
      ->check(CLI::Validator(
          [](const std::string& text) {
            const auto host = server::ParseHost(text);
            return host && !host->port ? ""
                                       : Quoted(text) + " is not the name of a host, like draw.example.com";
          },
          "NAME"))
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
  command
      .add_option("--keep", o.keep, "Jobs with pictures that are kept; the oldest go first (default: 200)")
      ->check(CLI::Range(int64_t{1}, int64_t{100000}))
      ->group(work);
  AddMachineOptions(command, o.precision, o.device, o.threads, o.ignore_memory);
  command
      .add_flag("--no-prompt-cache", o.no_prompt_cache,
                "Neither keep embeddings of prompts on disk nor use those of earlier runs")
      ->group("Machine");
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
  GiveBackLargeBuffers();
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
