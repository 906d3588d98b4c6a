#include "hub/test_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string_view>

namespace qwen_image::hub {
namespace {

// Up to the empty line; nothing if the client goes away before.
std::optional<std::string> ReceiveHead(int connection) {
  std::string text;
  while (text.find("\r\n\r\n") == text.npos) {
    char block[4096];
    const ssize_t count = recv(connection, block, sizeof(block), 0);
    if (count <= 0) return std::nullopt;
    text.append(block, static_cast<size_t>(count));
  }
  return text;
}

TestRequest ParseRequest(const std::string& text) {
  TestRequest request;
  std::istringstream lines(text);
  lines >> request.method >> request.path;
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line) && line != "\r") {
    const size_t colon = line.find(':');
    std::string name = line.substr(0, colon);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    request.headers[name] = line.substr(colon + 2, line.size() - colon - 3);
  }
  return request;
}

void Send(int connection, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count <= 0) return;  // the client went away, as it may
    bytes.remove_prefix(static_cast<size_t>(count));
  }
}

void WaitForEnd(int connection) {
  char block[4096];
  while (recv(connection, block, sizeof(block), 0) > 0) {
  }
}

std::string HeadOf(const TestResponse& response) {
  std::string head = fmt::format("HTTP/1.1 {} Whatever\r\nConnection: close\r\n", response.status);
  for (const auto& [name, value] : response.headers) head += fmt::format("{}: {}\r\n", name, value);
  if (response.says_length) head += fmt::format("Content-Length: {}\r\n", response.body.size());
  return head + "\r\n";
}

}  // namespace

TestServer::TestServer(Handler handler) : handler_(std::move(handler)) {
  listening_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (listening_ < 0 || bind(listening_, generic, size) != 0 || listen(listening_, 64) != 0 ||
      getsockname(listening_, generic, &size) != 0)
    throw std::runtime_error("the test's server cannot listen");
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { Accept(); });
}

TestServer::~TestServer() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
    shutdown(listening_, SHUT_RDWR);
    for (const int connection : connections_) shutdown(connection, SHUT_RDWR);
  }
  acceptor_.join();
  for (std::thread& thread : threads_) thread.join();
  close(listening_);
}

std::string TestServer::url() const { return fmt::format("http://127.0.0.1:{}", port_); }

std::vector<TestRequest> TestServer::requests() const {
  std::lock_guard lock(mutex_);
  return requests_;
}

void TestServer::Accept() {
  while (true) {
    const int connection = accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) return;
    std::lock_guard lock(mutex_);
    if (ending_) {
      close(connection);
      return;
    }
    connections_.insert(connection);
    threads_.emplace_back([this, connection] { Serve(connection); });
  }
}

void TestServer::Serve(int connection) {
  if (const auto head = ReceiveHead(connection)) {
    const TestRequest request = ParseRequest(*head);
    {
      std::lock_guard lock(mutex_);
      requests_.push_back(request);
    }
    TestResponse response;
    {
      std::lock_guard lock(handler_mutex_);
      response = handler_(request);
    }
    Send(connection, HeadOf(response));
    if (request.method != "HEAD")
      Send(connection, std::string_view(response.body).substr(0, response.cut_after));
    if (response.when_sent) response.when_sent();
    if (response.hold) WaitForEnd(connection);
  }
  std::lock_guard lock(mutex_);
  connections_.erase(connection);
  close(connection);
}

}  // namespace qwen_image::hub
