// Where this system keeps the certificates of authorities, by which https servers are recognized. libcurl
// knows the place of the system it was built on only.
#pragma once

#include <filesystem>

#include "hub/environment.h"

namespace qwen_image::hub {

// One of them may be empty, not both.
struct Certificates {
  std::filesystem::path file;    // many certificates, one after the other
  std::filesystem::path folder;  // a file for each, named by its hash
};

// What REQUESTS_CA_BUNDLE, CURL_CA_BUNDLE, SSL_CERT_FILE or SSL_CERT_DIR name, else the first place below
// `root` that is known from a distribution and has some. Throws Error kUsage if a variable names what is not
// there, or if there are none.
Certificates FindCertificates(const EnvironmentReader& environment = ProcessEnvironment,
                              const std::filesystem::path& root = "/");

}  // namespace qwen_image::hub
