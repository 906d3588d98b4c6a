// qwen-image work: draws jobs from the queue of a NATS server.
#include <memory>

#include "cache_folder.h"
#include "command.h"
#include "core/fail.h"
#include "files/output_file.h"
#include "generate_options.h"
#include "machine_options.h"
#include "model_options.h"
#include "nats_options.h"
#include "print.h"
#include "queue/worker.h"
#include "server/api/drawn_reply.h"
#include "weights/model_name.h"

namespace qwen_image::cli {
namespace {

struct WorkOptions {
  ModelFiles files;
  queue::NatsSettings nats;
  std::string queue_name;
  std::filesystem::path results, resume_dir;
  int64_t dead_after = 30;
  MachineOptions machine;
  bool no_prompt_cache = false, no_source_mark = false, quiet = false;
};

int Run(const WorkOptions& o, const CancelFlag& cancel) {
  (void)queue::CheckedAccess(o.nats);  // before a model is read
  if (!o.resume_dir.empty()) {
    std::error_code error;
    std::filesystem::create_directories(o.resume_dir, error);  // if that fails, this says why:
    CheckWritable(o.resume_dir / "probe");
  }
  const ModelFiles model = FindModel(o.files, o.quiet);
  const Pipeline pipeline(model,
                          o.machine.ForPipeline(o.no_prompt_cache ? "" : PromptCacheFolder().value_or("")));
  const auto say = [&o](const std::string& line) {
    if (!o.quiet) Print(stdout, "{}\n", line);
  };
  queue::WorkerSettings settings{.name = queue::NewWorkerName(),
                                 .queue_name = o.queue_name.empty() ? api::ModelId(pipeline) : o.queue_name,
                                 .model_name = ModelName(model),
                                 .resume_folder = o.resume_dir,
                                 .dead_after = std::chrono::seconds(o.dead_after),
                                 .say = say};
  if (o.no_source_mark) settings.mark = draw::SourceMark::kLeftOut;
  const auto connection =
      queue::Connect(o.nats, settings.name,
                     {.lost = [say] { say("the NATS server is gone; it is tried again until it is back"); },
                      .back = [say] { say("the NATS server is back"); }});
  queue::JetStream jetstream(*connection);
  queue::Board board(jetstream);
  const auto results = queue::OpenResults(o.results, board.objects());
  queue::Worker worker(pipeline, board, *results, settings, cancel);
  worker.Run();
  say(settings.name + " stops");
  return 0;
}

}  // namespace

Command WorkCommand() {
  const auto o = std::make_shared<WorkOptions>();
  const char* work = "Jobs";
  const OptionList own = {
      {.names = "--results",
       .target = &o->results,
       .help = "Store pictures in this folder, which machines share, as ID-0.png, … (default: in the object "
               "store of "
               "the NATS server, bucket qwen_image)",
       .group = work,
       .type = "DIR"},
      {.names = "--resume-dir",
       .target = &o->resume_dir,
       .help = "Keep the state after every step in this folder: another worker with the same folder and "
               "weights goes "
               "on with the job of one that was killed",
       .group = work,
       .type = "DIR"},
      {.names = "--dead-after",
       .target = &o->dead_after,
       .help = "Seconds without a sign of a worker until its job goes to another one (default: 30)",
       .group = work,
       .range = {{1, 3600}}},
      SourceMarkOption(o->no_source_mark, work),
  };
  return {.name = "work",
          .summary = "Draw jobs from a queue that many machines share (a NATS server's)",
          .options =
              ModelOptionList(o->files) +
              NatsOptionList(o->nats, "The NATS server, for example nats://127.0.0.1:4222", true) +
              OptionList{QueueNameOption(o->queue_name)} + own + MachineOptionList(o->machine) +
              OptionList{{.names = "--no-prompt-cache",
                          .target = &o->no_prompt_cache,
                          .help = "Neither keep embeddings of prompts on disk nor use those of earlier runs",
                          .group = "Machine"},
                         {.names = "-q,--quiet",
                          .target = &o->quiet,
                          .help = "Do not say what is drawn",
                          .group = "Reporting"}},
          .footer =
              "Examples:\n"
              "  qwen-image work --nats nats://127.0.0.1:4222\n"
              "  qwen-image work --nats tls://queue.example.com --nats-creds worker.creds --model "
              "qwen-image-2.1:turbo-q4 --results /shared/pictures --resume-dir /shared/states",
          .run = [o](const Session& session) { return Run(*o, session.cancel); }};
}

}  // namespace qwen_image::cli
