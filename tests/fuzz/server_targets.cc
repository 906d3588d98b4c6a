// What the server reads from clients, and from its own folder.
#include <cstdlib>
#include <string>

#include "files/base64.h"
#include "inputs.h"
#include "server/http/access.h"
#include "server/http/multipart.h"
#include "server/http/target.h"
#include "server/jobs/store.h"
#include "targets.h"

namespace qwen_image {
namespace {

std::string NextLine(std::string_view& rest) {
  const size_t end = std::min(rest.find('\n'), rest.size());
  const std::string line(rest.substr(0, end));
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return line;
}

}  // namespace

void FuzzHead(std::string_view bytes) {
  const auto target = http::ParseTarget(NextLine(bytes));
  if (target && (!target->path.starts_with('/') || target->path.find('?') != std::string::npos)) std::abort();
  const http::AccessRules rules{.key = "correct-horse", .hosts = {"pictures.example"}, .port = 8080};
  const std::string host = NextLine(bytes), origin = NextLine(bytes);
  http::RequestHead head{.method = "POST", .hosts = {host}, .origin = origin, .local_address = "192.168.1.5"};
  head.authorization = NextLine(bytes);
  if (http::CheckAccess(rules, head)) return;
  // Whoever gets in names this server, comes from it and has the key.
  const auto name = http::ParseHost(host);
  const bool ours = name->name == "pictures.example" || name->port == rules.port;
  const bool own = origin.ends_with(host) || origin.starts_with("http");
  if (!ours || !own || !head.authorization.ends_with(rules.key)) std::abort();
}

void FuzzJob(std::string_view bytes) {
  const jobs::Job job = jobs::ParseStoredJob(bytes, "job");
  const jobs::Job again = jobs::ParseStoredJob(jobs::StoredJobText(job), "job");
  if (jobs::StoredJobText(again) != jobs::StoredJobText(job)) std::abort();
}

void FuzzMultipart(std::string_view bytes) {
  const auto [type, body] = SplitAtNul(bytes);
  const http::MultipartLimits limits;
  const auto parts = http::ParseMultipart(type, body, limits);
  if (parts.size() > limits.parts || !http::IsMultipart(type)) std::abort();
  const char* last = body.data();
  for (const http::FormPart& part : parts) {
    // Inside the body, one behind the other.
    if (part.contents.data() < last ||
        part.contents.data() + part.contents.size() > body.data() + body.size())
      std::abort();
    last = part.contents.data() + part.contents.size();
    if (const auto decoded = DecodeBase64(part.contents)) {
      if (EncodeBase64(*decoded) != part.contents) std::abort();
    }
    if (DecodeBase64(EncodeBase64(part.contents)) != part.contents) std::abort();
  }
}

}  // namespace qwen_image
