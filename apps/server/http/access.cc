#include "server/http/access.h"

#include <algorithm>
#include <charconv>

#include "core/fail.h"
#include "files/base64.h"
#include "files/digest.h"
#include "files/text.h"
#include "server/http/lower.h"

namespace qwen_image::http {
namespace {

constexpr size_t kMinKey = 8;

// A page of another site that gets its name resolved to this machine (DNS rebinding) still sends that name.
bool IsOurs(const AccessRules& rules, const RequestHead& head, const HostName& host) {
  const auto named = [&](const std::string& name) { return Lower(name) == host.name; };
  if (std::any_of(rules.hosts.begin(), rules.hosts.end(), named))
    return true;  // a proxy has a port of its own
  if (host.port.value_or(80) != rules.port) return false;
  return host.name == "localhost" || host.name == "127.0.0.1" || host.name == "::1" ||
         host.name == Lower(head.local_address);
}

bool SameHost(const HostName& a, const HostName& b, uint16_t default_port) {
  return a.name == b.name && a.port.value_or(default_port) == b.port.value_or(default_port);
}

bool IsOwnOrigin(const std::string& origin, const HostName& host) {
  const auto matches = [&](std::string_view scheme, uint16_t default_port) {
    if (!origin.starts_with(scheme)) return false;
    const auto from = ParseHost(std::string_view(origin).substr(scheme.size()));
    return from && SameHost(*from, host, default_port);
  };
  return matches("http://", 80) || matches("https://", 443);
}

// As Bearer, or as the password of anybody: tools that speak AUTOMATIC1111's API know no other way.
bool HasKey(const AccessRules& rules, std::string_view authorization) {
  const size_t space = std::min(authorization.find(' '), authorization.size());
  const std::string scheme = Lower(authorization.substr(0, space));
  const std::string_view given = authorization.substr(std::min(space + 1, authorization.size()));
  if (scheme == "bearer") return SameSecret(given, rules.key);
  if (scheme != "basic") return false;
  const std::string login = DecodeBase64(given).value_or("");
  const size_t colon = login.find(':');
  return colon != login.npos && SameSecret(std::string_view(login).substr(colon + 1), rules.key);
}

}  // namespace

std::optional<HostName> ParseHost(std::string_view text) {
  constexpr size_t kMaxName = 255;
  HostName host;
  std::string_view rest;
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    if (end == text.npos) return std::nullopt;
    host.name = Lower(text.substr(1, end - 1));
    if (host.name.find_first_not_of("0123456789abcdef:.") != host.name.npos) return std::nullopt;
    rest = text.substr(end + 1);
  } else {
    const size_t colon = std::min(text.find(':'), text.size());
    host.name = Lower(text.substr(0, colon));
    if (host.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-._") != host.name.npos)
      return std::nullopt;
    rest = text.substr(colon);
  }
  if (host.name.empty() || host.name.size() > kMaxName) return std::nullopt;
  if (rest.empty()) return host;
  if (rest.front() != ':') return std::nullopt;
  rest.remove_prefix(1);
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), port);
  if (error != std::errc() || end != rest.data() + rest.size() || rest.empty()) return std::nullopt;
  host.port = port;
  return host;
}

bool SameSecret(std::string_view given, std::string_view secret) {
  const std::string a = Sha256(given), b = Sha256(secret);  // of equal length, whatever was given
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  return difference == 0;
}

std::optional<Refusal> CheckAccess(const AccessRules& rules, const RequestHead& head) {
  if (head.hosts.size() != 1) return Refusal{400, "a request needs one Host header"};
  const auto host = ParseHost(head.hosts.front());
  if (!host) return Refusal{400, fmt::format("{} is not a host", Quoted(head.hosts.front()))};
  if (!IsOurs(rules, head, *host))
    return Refusal{403, fmt::format("this server is not called {}; its operator can allow that name with "
                                    "--allow-host",
                                    Quoted(head.hosts.front()))};
  if (head.origin && !IsOwnOrigin(*head.origin, *host))
    return Refusal{403, fmt::format("pages of {} may not use this server", Quoted(*head.origin))};
  // A link on another page that leads here is fine; a page that uses this server behind its user's back is
  // not.
  const bool is_visit = head.is_public && head.fetch_mode == "navigate" && head.method == "GET";
  if ((head.fetch_site == "cross-site" || head.fetch_site == "same-site") && !is_visit)
    return Refusal{403, "pages of other sites may not use this server"};
  if (!rules.key.empty() && !head.is_public && !HasKey(rules, head.authorization))
    return Refusal{401, head.authorization.empty()
                            ? "this server wants a key: send \"Authorization: Bearer KEY\""
                            : "the key is wrong"};
  return std::nullopt;
}

void CheckListening(const std::string& address, bool is_loopback, const std::string& key) {
  if (!is_loopback && key.empty())
    Fail(ErrorKind::kUsage,
         "{} can be reached by others, who could then draw on this machine: set a key in QWEN_IMAGE_API_KEY "
         "(or with --api-key), or stay on 127.0.0.1",
         address);
  if (key.empty()) return;
  const bool plain = std::all_of(key.begin(), key.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (key.size() < kMinKey || !plain)
    Fail(ErrorKind::kUsage, "a key has at least {} characters, all of them printable and no spaces", kMinKey);
}

}  // namespace qwen_image::http
