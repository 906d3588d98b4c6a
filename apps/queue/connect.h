// Connecting to a NATS server: what a user says about it, who may be connected to, and the plugin that does
// it.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "queue/nats.h"
#include "qwen_image/error.h"

namespace qwen_image::queue {

// As it was typed. Secrets are in files, or in variables of the environment.
struct NatsSettings {
  std::string url;
  std::string user;
  std::filesystem::path password_file, token_file, creds, ca, cert, key;
};

// The server cannot be reached, or was lost. It may be back later.
class ServerGone : public Error {
 public:
  explicit ServerGone(std::string message) : Error(ErrorKind::kBadInput, std::move(message)) {}
};

// Checked, with the contents of the files. Without credentials only addresses of this machine are taken.
// Throws Error kUsage, and kBadInput for files that cannot be read.
NatsAccess CheckedAccess(const NatsSettings& settings);

// Loads the plugin and connects. `name` is what the server calls this client. Throws Error kUsage if there is
// no plugin, ServerGone, and kBadInput if the server refuses.
std::unique_ptr<NatsConnection> Connect(const NatsSettings& settings, const std::string& name,
                                        NatsEvents events = {});

// What is wrong, in words, for a request to the server at `url`.
[[noreturn]] void FailBy(const NatsResult& result, const std::string& what);

}  // namespace qwen_image::queue
