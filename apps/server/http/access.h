// Who may ask: the checks that a request passes before its body is read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qwen_image::http {

struct AccessRules {
  std::string key;                 // empty: none is asked for
  std::vector<std::string> hosts;  // names, besides addresses of this machine, that this server is reached by
  uint16_t port = 0;
};

// The parts of a request that decide.
struct RequestHead {
  std::string method;
  std::vector<std::string> hosts;  // all headers of this name
  std::optional<std::string> origin;
  std::string fetch_site, fetch_mode;  // Sec-Fetch-…; empty: not sent
  std::string authorization;
  std::string local_address;  // where the connection came in, without brackets
  bool is_public = false;     // the page itself and /health: nothing of a user's
};

struct Refusal {
  int status = 403;
  std::string message;
};
std::optional<Refusal> CheckAccess(const AccessRules& rules, const RequestHead& head);

// "Example.org:8080" → {"example.org", 8080}; "[::1]" → {"::1", none}.
struct HostName {
  std::string name;
  std::optional<uint16_t> port;
};
std::optional<HostName> ParseHost(std::string_view text);

// The time that it takes does not tell how much of `given` is right.
bool SameSecret(std::string_view given, std::string_view secret);

// Throws Error kUsage unless a server may listen on `address` with this key.
void CheckListening(const std::string& address, bool is_loopback, const std::string& key);

}  // namespace qwen_image::http
