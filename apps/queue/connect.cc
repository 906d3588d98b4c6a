#include "queue/connect.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "core/fail.h"
#include "files/folder.h"
#include "files/numbers.h"
#include "files/text.h"

namespace qwen_image::queue {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHowToBuild =
    "jobs on a NATS server need a part of this program that is not here: build it with ./run build --nats, "
    "which "
    "installs Debian's package libnats-dev, or with libnats installed: cmake --build … --target "
    "qwen_image_nats";

struct Address {
  bool tls = false;
  std::string host;
  uint64_t port = 4222;
};

[[noreturn]] void RefuseUrl(const std::string& why) {
  Fail(ErrorKind::kUsage, "--nats: {}; the address of a server is expected, like nats://127.0.0.1:4222", why);
}

Address ParseUrl(std::string_view url) {
  Address address;
  const size_t scheme_end = url.find("://");
  const std::string_view scheme = scheme_end == url.npos ? "nats" : url.substr(0, scheme_end);
  if (scheme != "nats" && scheme != "tls") RefuseUrl(Quoted(scheme) + " is neither nats nor tls");
  address.tls = scheme == "tls";
  std::string_view rest = scheme_end == url.npos ? url : url.substr(scheme_end + 3);
  if (rest.find('@') != rest.npos)
    Fail(ErrorKind::kUsage,
         "--nats: others on this machine see the address in the list of processes, so it must not hold a "
         "password; "
         "use --nats-creds, or --nats-user with --nats-password-file");
  if (rest.ends_with('/')) rest.remove_suffix(1);
  size_t port_begin = rest.rfind(':');
  if (rest.starts_with('[')) {
    const size_t end = rest.find(']');
    if (end == rest.npos) RefuseUrl(Quoted(rest) + " has no ]");
    address.host = rest.substr(1, end - 1);
    port_begin = end + 1 < rest.size() ? end + 1 : rest.npos;
  } else {
    address.host = rest.substr(0, std::min(port_begin, rest.size()));
  }
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:";
  if (address.host.empty() || address.host.find_first_not_of(kAllowed) != address.host.npos)
    RefuseUrl(Quoted(url) + " names no host");
  if (port_begin != rest.npos) {
    const auto port = rest[port_begin] == ':' ? ParseWhole(rest.substr(port_begin + 1)) : std::nullopt;
    if (!port || *port < 1 || *port > 65535) RefuseUrl(Quoted(url) + " has no port from 1 to 65535");
    address.port = *port;
  }
  return address;
}

bool IsThisMachine(const std::string& host) {
  if (host == "localhost" || host == "::1") return true;
  // 127.0.0.0/8, and no name that merely begins so.
  return host.starts_with("127.") && host.find_first_not_of("0123456789.") == host.npos;
}

// One line, without its end.
std::string ReadSecret(const fs::path& path, const char* option) {
  constexpr size_t kMost = 4096;
  std::ifstream file(path, std::ios::binary);
  std::string text(kMost + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || !file.eof() || file.gcount() == 0)
    Fail(ErrorKind::kBadInput, "{}: {} cannot be read, is empty or is too long for a secret", option,
         path.string());
  text.resize(static_cast<size_t>(file.gcount()));
  while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
  return text;
}

std::string CheckedFile(const fs::path& path, const char* option) {
  if (path.empty()) return "";
  if (!std::ifstream(path)) Fail(ErrorKind::kBadInput, "{}: {} cannot be read", option, path.string());
  return path.string();
}

// Beside the program, or in the library folder of an installed tree.
fs::path PluginPath() {
  constexpr const char* kName = "libqwen_image_nats.so";
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& candidate : {folder / kName, folder / "../lib" / kName}) {
    if (Exists(candidate)) return candidate;
  }
  return {};
}

NatsConnect LoadPlugin() {
  const fs::path path = PluginPath();
  if (path.empty()) Fail(ErrorKind::kUsage, "{}", kHowToBuild);
  // It stays for as long as the program runs: libnats has threads of its own.
  void* plugin = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!plugin) {
    const char* reason = dlerror();
    Fail(ErrorKind::kUsage, "{} cannot be loaded: {} (Debian's package libnats3.4 has libnats)",
         path.string(), Printable(reason ? reason : "?"));
  }
  const auto version = reinterpret_cast<int (*)()>(dlsym(plugin, kNatsPluginName));
  const auto connect = reinterpret_cast<NatsConnect>(dlsym(plugin, kNatsConnectName));
  if (!version || !connect || version() != kNatsPlugin)
    Fail(ErrorKind::kUsage, "{} is of another version of this program; build both again: ./run build --nats",
         path.string());
  return connect;
}

}  // namespace

NatsAccess CheckedAccess(const NatsSettings& o) {
  const Address address = ParseUrl(o.url);
  NatsAccess access{.url = fmt::format(
                        "{}://{}:{}", address.tls ? "tls" : "nats",
                        address.host.find(':') == std::string::npos ? address.host : "[" + address.host + "]",
                        address.port),
                    .user = o.user,
                    .creds_file = CheckedFile(o.creds, "--nats-creds"),
                    .ca_file = CheckedFile(o.ca, "--nats-ca"),
                    .cert_file = CheckedFile(o.cert, "--nats-cert"),
                    .key_file = CheckedFile(o.key, "--nats-key"),
                    .tls = address.tls || !o.ca.empty() || !o.cert.empty()};
  if (o.cert.empty() != o.key.empty())
    Fail(ErrorKind::kUsage, "--nats-cert and --nats-key belong together; give both");
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value ? value : "");
  };
  access.password = o.password_file.empty() ? variable("QWEN_IMAGE_NATS_PASSWORD")
                                            : ReadSecret(o.password_file, "--nats-password-file");
  access.token = o.token_file.empty() ? variable("QWEN_IMAGE_NATS_TOKEN")
                                      : ReadSecret(o.token_file, "--nats-token-file");
  if (!access.password.empty() && access.user.empty())
    Fail(ErrorKind::kUsage, "a password for the NATS server needs the name of its user: --nats-user");
  const int ways = !access.creds_file.empty() + !access.user.empty() + !access.token.empty();
  if (ways > 1)
    Fail(ErrorKind::kUsage,
         "give one of --nats-creds, --nats-user and a token for the NATS server, not several");
  if (ways == 0 && access.cert_file.empty() && !IsThisMachine(address.host))
    Fail(ErrorKind::kUsage,
         "--nats: {} is another machine, and a NATS server without credentials draws for everybody who can "
         "reach it; "
         "give --nats-creds, --nats-user, --nats-token-file or --nats-cert (docs/machines.md), or use a "
         "server on "
         "127.0.0.1",
         address.host);
  return access;
}

std::unique_ptr<NatsConnection> Connect(const NatsSettings& settings, const std::string& name,
                                        NatsEvents events) {
  NatsAccess access = CheckedAccess(settings);
  access.name = name;
  const NatsConnect connect = LoadPlugin();
  NatsResult result;
  std::unique_ptr<NatsConnection> connection(connect(access, events, result));
  if (connection) return connection;
  const std::string text = Printable(result.text);
  if (result.outcome == NatsResult::Outcome::kRefused)
    Fail(ErrorKind::kBadInput, "the NATS server at {} refuses these credentials ({})", access.url, text);
  if (result.outcome == NatsResult::Outcome::kDisconnected || result.outcome == NatsResult::Outcome::kTimeout)
    throw ServerGone(fmt::format("there is no NATS server at {} ({})", access.url, text));
  Fail(ErrorKind::kBadInput, "the NATS server at {} cannot be used: {}", access.url, text);
}

void FailBy(const NatsResult& result, const std::string& what) {
  using Outcome = NatsResult::Outcome;
  const std::string text = Printable(result.text);
  switch (result.outcome) {
    case Outcome::kNoResponders:
      throw ServerGone(fmt::format(
          "{}: the NATS server keeps no messages; start it with JetStream (nats-server -js)", what));
    case Outcome::kTimeout:
    case Outcome::kDisconnected:
      throw ServerGone(fmt::format("{}: the NATS server is gone or does not answer ({})", what, text));
    case Outcome::kRefused:
      Fail(ErrorKind::kBadInput, "{}: the NATS server does not permit it ({})", what, text);
    case Outcome::kTooLarge:
      Fail(ErrorKind::kBadInput, "{}: the NATS server takes no message of this size ({})", what, text);
    case Outcome::kOk:
    case Outcome::kFailed:
      break;
  }
  Fail(ErrorKind::kBadInput, "{}: {}", what, text);
}

}  // namespace qwen_image::queue
