// qwen-image serve: an HTTP API and a web page.
#if __has_include(<malloc.h>)
#include <malloc.h>
#endif

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "cache_folder.h"
#include "command.h"
#include "core/fail.h"
#include "files/numbers.h"
#include "files/text.h"
#include "generate_options.h"
#include "machine_options.h"
#include "many_machines.h"
#include "model_options.h"
#include "nats_options.h"
#include "print.h"
#include "queue/remote_drawer.h"
#include "qwen_image/cancel.h"
#include "server/api/drawn_reply.h"
#include "server/http/access.h"
#include "server/http/log.h"
#include "server/http/log_writer.h"
#include "server/http/spare_memory.h"
#include "server/service.h"
#include "weights/model_name.h"

namespace qwen_image::cli {
namespace {

struct ServeOptions {
  ModelFiles files;
  std::string host = "127.0.0.1";
  uint16_t port = 8080;
  std::string api_key;
  std::vector<std::string> allowed_hosts;
  std::filesystem::path jobs_dir;  // empty: in the user's data folder
  int64_t queue = 16, keep = 200;
  queue::NatsSettings nats;  // without an address: this process draws
  std::string queue_name;
  std::filesystem::path results;
  bool same_build = false;
  MachineOptions machine;
  bool no_prompt_cache = false;
  bool no_source_mark = false;
  bool quiet = false;
  std::filesystem::path log_file;  // empty: stderr
};

constexpr const char* kKeyVariable = "QWEN_IMAGE_API_KEY";

// CLI11 would only say that the number cannot be converted.
std::string CheckPort(const std::string& text) {
  const auto port = ParseWhole(text);
  if (port && *port <= 65535) return "";
  return fmt::format("{} is not a port; ports go from 1 to 65535, and 0 takes any that is free",
                     Quoted(text));
}

std::string CheckHost(const std::string& text) {
  const auto host = http::ParseHost(text);
  return host && !host->port ? "" : Quoted(text) + " is not the name of a host, like draw.example.com";
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

// Lines are added to what is there: a program that rotates logs may copy and truncate it. It names clients,
// so it is its owner's alone.
int OpenLog(const std::filesystem::path& path) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600);
  if (descriptor < 0)
    Fail(ErrorKind::kCannotWrite, "cannot write the log {}: {}", path.string(), std::strerror(errno));
  return descriptor;
}

void PrintAddress(const server::Server& server, const ServeOptions& o, const std::string& model) {
  Print(stdout, "{} is ready: open {}/ in a browser (Ctrl-C stops it{})\n", model, server.url(),
        o.api_key.empty() ? "" : "; the page asks for the key");
}

// The queue of a NATS server, with all that it needs.
struct RemoteQueue {
  RemoteQueue(const ServeOptions& o, const Pipeline& pipeline, std::function<void(const std::string&)> log)
      : connection(queue::Connect(o.nats, "qwen-image serve")), jetstream(*connection), board(jetstream) {
    board.Need();
    results = queue::OpenResults(o.results, board.objects());
    const auto say = [log = std::move(log)](const std::string& line) {
      if (log) log(http::LogLine("nats", {{"message", line}}));
    };
    drawer = queue::DrawElsewhere(board, *results,
                                  {.queue_name = o.queue_name.empty() ? api::ModelId(pipeline) : o.queue_name,
                                   .same_build = o.same_build,
                                   .say = say});
  }

  std::unique_ptr<queue::NatsConnection> connection;
  queue::JetStream jetstream;
  queue::Board board;
  std::unique_ptr<queue::Results> results;
  std::shared_ptr<jobs::Drawer> drawer;
};

// What concerns the queue of a NATS server says nothing without one.
void CheckNats(const ServeOptions& o, bool many_machines) {
  if (!o.nats.url.empty()) {
    if (many_machines)
      Fail(ErrorKind::kUsage, "serve --nats hands its jobs to workers; those may draw on many machines");
    (void)queue::CheckedAccess(o.nats);
    return;
  }
  if (!o.results.empty() || !o.queue_name.empty() || o.same_build)
    Fail(ErrorKind::kUsage,
         "--results, --queue-name and --same-build are for jobs of workers; give --nats, too");
}

PipelineOptions PipelineOptionsOf(const ServeOptions& o, const Session& session) {
  const std::filesystem::path prompt_cache = o.no_prompt_cache ? "" : PromptCacheFolder().value_or("");
  PipelineOptions options = o.machine.ForPipeline(prompt_cache, session.machines);
  if (!o.nats.url.empty()) options.check_memory = false;  // another machine's memory will do
  return options;
}

int Run(const ServeOptions& o, const Session& session) {
  if (const std::optional<int> code = RunOnMachines(o.machine.machines, session)) return *code;
  const CancelFlag& cancel = session.cancel;
  GiveBackLargeBuffers();
  http::KeepSpareMemory();
  CheckNats(o, session.machines != nullptr);
  const ModelFiles model = FindModel(o.files, o.quiet);
  const Pipeline pipeline(model, PipelineOptionsOf(o, session));
  server::ServerSettings settings;
  settings.http.host = o.host;
  settings.http.port = o.port;
  settings.http.key = o.api_key;
  settings.http.allowed_hosts = o.allowed_hosts;
  settings.jobs = {.queue = o.queue, .kept = o.keep};
  settings.jobs_folder = JobsFolder(o);
  settings.model_name = ModelName(model);
  if (o.no_source_mark) settings.mark = draw::SourceMark::kLeftOut;
  const int log_to = o.log_file.empty() ? STDERR_FILENO : OpenLog(o.log_file);
  http::LogWriter log(log_to);
  if (!o.quiet) settings.log = [&log](const std::string& line) { log.Write(line); };
  std::optional<RemoteQueue> remote;
  if (!o.nats.url.empty()) settings.drawer = remote.emplace(o, pipeline, settings.log).drawer;
  server::Server server(pipeline, settings);
  settings.drawer.reset();    // the server's alone: it must end before the connection
  cancel.ThrowIfCancelled();  // while the model was loaded
  server.DrainOnSignals();
  PrintAddress(server, o, settings.model_name);
  server.Run();
  stdout_was_lost = false;  // the reader of its first line may have gone away
  return 0;
}

OptionList OptionsOf(ServeOptions& o) {
  const char *network = "Network", *work = "Jobs";
  const OptionList own = {
      {.names = "--host",
       .target = &o.host,
       .help = "The address to listen on (default: 127.0.0.1, this machine only)",
       .group = network},
      {.names = "--port",
       .target = &o.port,
       .help = "The port, 1 to 65535 (default: 8080; 0: any that is free)",
       .group = network,
       .check = CheckPort},
      {.names = "--api-key",
       .target = &o.api_key,
       .help = "Clients must send this as \"Authorization: Bearer KEY\". Others on this machine see it in "
               "the list of "
               "processes; the variable QWEN_IMAGE_API_KEY does the same unseen. Needed for every address "
               "but this "
               "machine's own",
       .group = network,
       .environment = kKeyVariable},
      {.names = "--allow-host",
       .target = &o.allowed_hosts,
       .help =
           "A name that clients reach this server by, for example behind a proxy; may be given several times",
       .group = network,
       .check = CheckHost,
       .type = "NAME"},
      {.names = "--jobs-dir",
       .target = &o.jobs_dir,
       .help = "Where jobs and their pictures are kept (default: qwen-image/jobs in $XDG_DATA_HOME or "
               "~/.local/share)",
       .group = work},
      {.names = "--queue",
       .target = &o.queue,
       .help = "Jobs that may wait; more are asked to come again later (default: 16)",
       .group = work,
       .range = {{1, 1000}}},
      {.names = "--keep",
       .target = &o.keep,
       .help = "Jobs with pictures that are kept; the oldest go first (default: 200)",
       .group = work,
       .range = {{1, 100000}}},
      SourceMarkOption(o.no_source_mark, work),
      {.names = "--results",
       .target = &o.results,
       .help = "With --nats: the folder where workers store pictures (default: the object store of the NATS "
               "server)",
       .group = work,
       .type = "DIR"},
      {.names = "--same-build",
       .target = &o.same_build,
       .help = "With --nats: only workers of this very build and instruction set draw",
       .group = work},
  };
  const char* nats =
      "Hand jobs to the queue of this NATS server, for workers (qwen-image work), instead of drawing them";
  return ModelOptionList(o.files) + own + NatsOptionList(o.nats, nats, false) +
         OptionList{QueueNameOption(o.queue_name)} + MachineOptionList(o.machine) +
         OptionList{{.names = "--no-prompt-cache",
                     .target = &o.no_prompt_cache,
                     .help = "Neither keep embeddings of prompts on disk nor use those of earlier runs",
                     .group = "Machine"},
                    {.names = "--log-file",
                     .target = &o.log_file,
                     .help = "Add the log of requests and jobs to this file (default: stderr)",
                     .group = "Reporting"},
                    {.names = "-q,--quiet",
                     .target = &o.quiet,
                     .help = "No log of requests and jobs",
                     .group = "Reporting"}};
}

}  // namespace

Command ServeCommand() {
  const auto o = std::make_shared<ServeOptions>();
  return {.name = "serve",
          .summary = "A web page and an HTTP API (OpenAI's and others'); the model is loaded once",
          .options = OptionsOf(*o),
          .footer =
              "Examples:\n"
              "  qwen-image serve\n"
              "  qwen-image serve --model qwen-image-2.1:turbo-q4\n"
              "  qwen-image serve --model ~/models/Qwen-Image-Edit-2511 --port 9000\n"
              "  qwen-image serve --nats nats://127.0.0.1:4222 --results /shared/pictures\n"
              "  QWEN_IMAGE_API_KEY=\"$(cat key.txt)\" qwen-image serve --host 0.0.0.0\n"
              "  curl -s http://127.0.0.1:8080/jobs -d '{\"prompt\": \"a red circle on a blue background\"}'",
          .run = [o](const Session& session) { return Run(*o, session); },
          .many_machines = true};
}

}  // namespace qwen_image::cli
