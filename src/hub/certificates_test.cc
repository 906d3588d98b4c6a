#include "hub/certificates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "files/testing.h"
#include "hub/http.h"

namespace qwen_image::hub {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A system of its own, and variables of its own.
class HubCertificates : public testing::Test {
 protected:
  fs::path Write(const std::string& name, const std::string& text = "-----BEGIN CERTIFICATE-----") const {
    return root_.Write(name, text);
  }
  Certificates Find() const {
    const auto environment = [this](const char* name) -> std::optional<std::string> {
      const auto found = variables_.find(name);
      if (found == variables_.end()) return std::nullopt;
      return found->second;
    };
    return FindCertificates(environment, root_.path());
  }

  const TempFolder root_;
  std::map<std::string, std::string> variables_;
};

TEST_F(HubCertificates, AreFoundWhereEachDistributionKeepsThem) {
  for (const char* name :
       {"etc/ssl/certs/ca-certificates.crt", "etc/pki/tls/certs/ca-bundle.crt",
        "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "etc/ssl/ca-bundle.pem", "etc/ssl/cert.pem"}) {
    const fs::path file = Write(name);
    EXPECT_EQ(Find().file, file);
    EXPECT_EQ(Find().folder, "");
    fs::remove(file);
  }
}

TEST_F(HubCertificates, AFolderNeedsTheNamesThatOpensslLooksFor) {
  Write("etc/ssl/certs/README");
  Write("etc/ssl/certs/ca-certificates.crt", "");
  EXPECT_THROW(Find(), Error);
  Write("etc/ssl/certs/5ad8a5d6.0");
  EXPECT_EQ(Find().folder, root_.path() / "etc/ssl/certs");
  EXPECT_EQ(Find().file, "");
}

TEST_F(HubCertificates, VariablesGoFirst) {
  Write("etc/ssl/cert.pem");
  const fs::path own = Write("own.pem"), other = Write("other.pem");
  variables_["SSL_CERT_DIR"] = root_.path().string();
  EXPECT_EQ(Find().folder, root_.path());
  EXPECT_EQ(Find().file, "");
  variables_["SSL_CERT_FILE"] = own.string();
  EXPECT_EQ(Find().file, own);
  EXPECT_EQ(Find().folder, root_.path());
  variables_["CURL_CA_BUNDLE"] = other.string();
  EXPECT_EQ(Find().file, other);
  const fs::path first = Write("first.pem");
  variables_["REQUESTS_CA_BUNDLE"] = first.string();
  EXPECT_EQ(Find().file, first);
}

TEST_F(HubCertificates, MissingOnesAreNamed) {
  EXPECT_THAT(
      MessageOf(ErrorKind::kUsage, [&] { Find(); }),
      AllOf(HasSubstr("ca-certificates"), HasSubstr("etc/ssl/ca-bundle.pem"), HasSubstr("SSL_CERT_FILE")));
  Write("etc/ssl/cert.pem");
  variables_["SSL_CERT_FILE"] = "/nowhere/own.pem";
  EXPECT_THAT(MessageOf(ErrorKind::kUsage, [&] { Find(); }),
              AllOf(HasSubstr("SSL_CERT_FILE"), HasSubstr("/nowhere/own.pem")));
}

}  // namespace
}  // namespace qwen_image::hub
