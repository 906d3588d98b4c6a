#include "server/testing.h"

#include "server/jobs/testing.h"

namespace qwen_image::server {

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
    : server_(jobs::TinyPipeline(), WithLog(std::move(settings), folder)),
      thread_([this] { server_.Run(); }) {}

TestServer::~TestServer() {
  if (!thread_.joinable()) return;
  server_.Drain();
  server_.Drain();  // at once
  thread_.join();
}

void TestServer::Join() { thread_.join(); }

http::TestReply TestServer::Ask(const std::string& method, const std::string& path, const std::string& body,
                                const std::string& more_headers) const {
  http::Client client(port());
  client.Send(http::RequestText(method, path, port(), body, more_headers));
  return client.Read(method != "HEAD");
}

std::string TestServer::Submit(const std::string& body) const {
  const http::TestReply reply = Ask("POST", "/jobs", body);
  EXPECT_EQ(reply.status, 202) << reply.body;
  const Json json = reply.json();
  return json.is_object() && json.contains("id") ? json["id"].get<std::string>() : "";
}

std::vector<std::string> TestServer::log() const {
  const std::lock_guard lock(mutex_);
  return log_;
}

}  // namespace qwen_image::server
