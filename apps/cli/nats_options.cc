#include "nats_options.h"

namespace qwen_image::cli {
namespace {

constexpr const char* kGroup = "NATS";

}  // namespace

OptionList NatsOptionList(queue::NatsSettings& o, const char* help, bool required) {
  return {
      {.names = "--nats",
       .target = &o.url,
       .help = help,
       .group = kGroup,
       .type = "URL",
       .required = required},
      {.names = "--nats-creds",
       .target = &o.creds,
       .help = "A file with credentials for the NATS server (.creds)",
       .group = kGroup,
       .type = "FILE"},
      {.names = "--nats-user",
       .target = &o.user,
       .help = "The name of a user of the NATS server",
       .group = kGroup},
      {.names = "--nats-password-file",
       .target = &o.password_file,
       .help = "A file with that user's password; the variable QWEN_IMAGE_NATS_PASSWORD does the same",
       .group = kGroup,
       .type = "FILE"},
      {.names = "--nats-token-file",
       .target = &o.token_file,
       .help = "A file with a token instead of a user; the variable QWEN_IMAGE_NATS_TOKEN does the same",
       .group = kGroup,
       .type = "FILE"},
      {.names = "--nats-ca",
       .target = &o.ca,
       .help = "The certificates of authorities that the NATS server's certificate is checked with (PEM); "
               "means TLS",
       .group = kGroup,
       .type = "FILE"},
      {.names = "--nats-cert",
       .target = &o.cert,
       .help = "This client's certificate (PEM), with --nats-key; means TLS",
       .group = kGroup,
       .type = "FILE"},
      {.names = "--nats-key",
       .target = &o.key,
       .help = "The key of --nats-cert (PEM)",
       .group = kGroup,
       .type = "FILE"},
  };
}

Option QueueNameOption(std::string& name) {
  return {.names = "--queue-name",
          .target = &name,
          .help =
              "What jobs call the model: workers take jobs of their own name only (default: its family and "
              "variant, as qwen-image-2.1-turbo)",
          .group = kGroup,
          .type = "NAME"};
}

}  // namespace qwen_image::cli
