// A client of the server's tests that speaks bytes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "files/json.h"

namespace qwen_image::http {

struct TestReply {
  int status = 0;                              // 0: the connection ended before a reply
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;

  Json json() const { return Json::parse(body, nullptr, false); }
};

// A client on a socket of its own. Reading gives up after a time that is long for any machine.
class Client {
 public:
  explicit Client(uint16_t port);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool Send(std::string_view bytes);  // false: the server has closed the connection
  TestReply Read(bool has_body = true);
  // What comes until `text` has, or the connection ends.
  std::string ReadUntil(std::string_view text);
  bool ReadEnd();  // nothing more comes, and the connection ends
  void Close();
  void Reset();        // ends it the rude way
  void SmallWindow();  // before anything is read: the kernel takes little

 private:
  bool Fill();

  int socket_ = -1;
  std::string received_;
};

std::string RequestText(const std::string& method, const std::string& path, uint16_t port,
                        const std::string& body = "", const std::string& more_headers = "");

}  // namespace qwen_image::http
