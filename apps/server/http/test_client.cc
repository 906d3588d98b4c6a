#include "server/http/test_client.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "files/testing.h"

namespace qwen_image::http {

Client::Client(uint16_t port) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const timeval patience{.tv_sec = kLongForAnyMachine.count(), .tv_usec = 0};
  setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) Close();
}

Client::~Client() { Close(); }

void Client::Close() {
  if (socket_ >= 0) close(socket_);
  socket_ = -1;
}

void Client::Reset() {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  Close();
}

void Client::SmallWindow() {
  const int bytes = 4096;
  setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
}

bool Client::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

bool Client::Fill() {
  char block[1 << 16];
  const ssize_t bytes = recv(socket_, block, sizeof block, 0);
  if (bytes > 0) received_.append(block, static_cast<size_t>(bytes));
  return bytes > 0;
}

std::string Client::ReadUntil(std::string_view text) {
  while (received_.find(text) == received_.npos && Fill()) {
  }
  const size_t found = received_.find(text);
  const size_t end = found == received_.npos ? received_.size() : found + text.size();
  std::string taken = received_.substr(0, end);
  received_.erase(0, end);
  return taken;
}

TestReply Client::Read(bool has_body) {
  TestReply reply;
  const std::string header = ReadUntil("\r\n\r\n");
  if (!header.ends_with("\r\n\r\n")) return reply;
  reply.status = std::atoi(header.substr(header.find(' ') + 1).c_str());
  for (size_t at = header.find("\r\n") + 2; at + 2 < header.size();) {
    const size_t end = header.find("\r\n", at), colon = header.find(": ", at);
    if (colon < end) {
      std::string name = header.substr(at, colon - at);
      std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
      reply.headers[name] = header.substr(colon + 2, end - colon - 2);
    }
    at = end + 2;
  }
  const auto length = reply.headers.find("content-length");
  if (!has_body || length == reply.headers.end()) return reply;
  const size_t bytes = std::stoul(length->second);
  while (received_.size() < bytes && Fill()) {
  }
  reply.body = received_.substr(0, bytes);
  received_.erase(0, bytes);
  return reply;
}

bool Client::ReadEnd() {
  if (!received_.empty()) return false;
  char byte = 0;
  const ssize_t bytes = recv(socket_, &byte, 1, 0);
  return bytes == 0 || (bytes < 0 && errno == ECONNRESET);
}

std::string RequestText(const std::string& method, const std::string& path, uint16_t port,
                        const std::string& body, const std::string& more_headers) {
  std::string text =
      fmt::format("{} {} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n{}", method, path, port, more_headers);
  if (!body.empty())
    text += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", body.size());
  return text + "\r\n" + body;
}

}  // namespace qwen_image::http
