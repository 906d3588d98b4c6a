#include "server_testing.h"

namespace qwen_image::server {
namespace {

class Signal {
 public:
  void Set(const Job& job) {
    const std::lock_guard lock(mutex_);
    job_ = job;
    changed_.notify_all();
  }
  Job Wait() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kLongForAnyMachine, [this] { return job_.has_value(); }));
    return job_.value_or(Job());
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Job> job_;
};

}  // namespace

const Pipeline& TinyPipeline() {
  static const Pipeline pipeline(std::filesystem::path(QWEN_IMAGE_SOURCE_DIR) / "models/tiny",
                                 {.threads = 1});
  return pipeline;
}

JobRequest QuickJob(uint64_t seed) {
  JobRequest job;
  job.request.prompt = "a red circle";
  job.request.width = job.request.height = 32;
  job.request.steps = 1;
  job.request.cfg = 1;
  job.request.seed = seed;
  return job;
}

JobRequest LongJob() {
  JobRequest job = QuickJob();
  job.request.width = job.request.height = 256;
  job.request.steps = 1000;
  job.count = 100;
  return job;
}

Job WaitForEnd(Jobs& jobs, const std::string& id) {
  Signal ended;
  const auto subscription = jobs.Subscribe(id, [&](const Job& job, const JobEvent& event) {
    if (event.kind == JobEvent::Kind::kEnd) ended.Set(job);
  });
  EXPECT_TRUE(subscription);
  return subscription ? ended.Wait() : Job();
}

void WaitForSteps(Jobs& jobs, const std::string& id) {
  Signal begun;
  const auto subscription = jobs.Subscribe(id, [&](const Job& job, const JobEvent&) {
    if (job.progress.step > 0) begun.Set(job);
  });
  EXPECT_TRUE(subscription);
  if (subscription) begun.Wait();
}

ServerSettings TestServer::WithLog(ServerSettings settings, const std::filesystem::path& folder) {
  settings.http.port = 0;
  settings.jobs_folder = folder;
  settings.model_name = "tiny";
  settings.log = [this](const std::string& line) {
    const std::lock_guard lock(mutex_);
    log_.push_back(line);
  };
  return settings;
}

TestServer::TestServer(const std::filesystem::path& folder, ServerSettings settings)
    : server_(TinyPipeline(), WithLog(std::move(settings), folder)), thread_([this] { server_.Run(); }) {}

TestServer::~TestServer() {
  if (!thread_.joinable()) return;
  server_.Drain();
  server_.Drain();  // at once
  thread_.join();
}

void TestServer::Join() { thread_.join(); }

TestReply TestServer::Ask(const std::string& method, const std::string& path, const std::string& body,
                          const std::string& more_headers) const {
  Client client(port());
  client.Send(RequestText(method, path, port(), body, more_headers));
  return client.Read(method != "HEAD");
}

std::string TestServer::Submit(const std::string& body) const {
  const TestReply reply = Ask("POST", "/jobs", body);
  EXPECT_EQ(reply.status, 202) << reply.body;
  const Json json = reply.json();
  return json.is_object() && json.contains("id") ? json["id"].get<std::string>() : "";
}

std::vector<std::string> TestServer::log() const {
  const std::lock_guard lock(mutex_);
  return log_;
}

}  // namespace qwen_image::server
