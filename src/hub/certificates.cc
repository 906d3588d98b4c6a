#include "hub/certificates.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "core/fail.h"
#include "files/text.h"

namespace qwen_image::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::array kFiles = {
    "etc/ssl/certs/ca-certificates.crt",                 // Debian, Ubuntu, Arch, Gentoo
    "etc/pki/tls/certs/ca-bundle.crt",                   // Fedora, Red Hat
    "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  // the same, where the link above is gone
    "etc/ssl/ca-bundle.pem",                             // openSUSE
    "etc/ssl/cert.pem",                                  // Alpine
};
constexpr const char* kFolder = "etc/ssl/certs";

// A package that was not set up leaves an empty file.
bool HasCertificates(const fs::path& file) {
  std::error_code error;
  return fs::is_regular_file(file, error) && fs::file_size(file, error) > 0 && !error;
}

// OpenSSL looks for names such as 5ad8a5d6.0; a folder without them is of no use to it.
bool HasHashedNames(const fs::path& folder) {
  const auto hashed = [](const fs::directory_entry& entry) {
    const std::string name = entry.path().filename().string();
    return name.size() == 10 && name[8] == '.' && std::all_of(name.begin(), name.begin() + 8, [](char c) {
             return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
           });
  };
  std::error_code error;
  const fs::directory_iterator entries(folder, error);
  return !error && std::any_of(begin(entries), end(entries), hashed);
}

// Nothing if no variable is set.
std::optional<Certificates> NamedCertificates(const EnvironmentReader& environment) {
  Certificates named;
  for (const char* name : {"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"}) {
    const auto value = environment(name);
    if (!value) continue;
    std::error_code error;
    const bool folder = fs::is_directory(*value, error);
    if (!folder && !HasCertificates(*value))
      Fail(ErrorKind::kUsage,
           "{} is {}, which is not there or empty; a file or folder of certificates is expected", name,
           Quoted(*value));
    fs::path& place = folder ? named.folder : named.file;
    if (place.empty()) place = *value;
  }
  if (named.file.empty() && named.folder.empty()) return std::nullopt;
  return named;
}

}  // namespace

Certificates FindCertificates(const EnvironmentReader& environment, const fs::path& root) {
  if (const auto named = NamedCertificates(environment)) return *named;
  for (const char* file : kFiles) {
    if (HasCertificates(root / file)) return {.file = root / file};
  }
  if (HasHashedNames(root / kFolder)) return {.folder = root / kFolder};
  Fail(ErrorKind::kUsage,
       "this system has no certificates to recognize https servers by: there is none of {}; install the "
       "package ca-certificates, or set SSL_CERT_FILE to a file of them",
       fmt::join(kFiles.begin(), kFiles.end(), ", "));
}

}  // namespace qwen_image::hub
