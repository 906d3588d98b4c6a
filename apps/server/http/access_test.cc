#include "server/http/access.h"

#include <gtest/gtest.h>

#include "files/testing.h"

namespace qwen_image::http {
namespace {

const AccessRules kRules{.key = "", .hosts = {"Pictures.example"}, .port = 8080};

RequestHead Head(const std::string& host) {
  return {.method = "POST", .hosts = {host}, .origin = {}, .local_address = "192.168.1.5"};
}

int StatusOf(const AccessRules& rules, const RequestHead& head) {
  const auto refusal = CheckAccess(rules, head);
  return refusal ? refusal->status : 200;
}

TEST(Access, NamesOfThisMachineWithTheRightPort) {
  for (const char* host :
       {"127.0.0.1:8080", "localhost:8080", "LocalHost:8080", "[::1]:8080", "192.168.1.5:8080"})
    EXPECT_EQ(StatusOf(kRules, Head(host)), 200) << host;
  for (const char* host : {"127.0.0.1", "localhost:8081", "evil.example:8080", "127.0.0.1.evil.example:8080",
                           "localhost.:8080", "192.168.1.6:8080", "0.0.0.0:8080"})
    EXPECT_EQ(StatusOf(kRules, Head(host)), 403) << host;
}

TEST(Access, PortEightyNeedNotBeSaid) {
  AccessRules rules = kRules;
  rules.port = 80;
  EXPECT_EQ(StatusOf(rules, Head("localhost")), 200);
}

TEST(Access, AllowedNamesMayHaveAnyPort) {
  EXPECT_EQ(StatusOf(kRules, Head("pictures.example")), 200);
  EXPECT_EQ(StatusOf(kRules, Head("PICTURES.example:443")), 200);
  EXPECT_EQ(StatusOf(kRules, Head("my.pictures.example")), 403);
}

TEST(Access, OddHostsAreNoRequests) {
  for (const char* host : {"", ":8080", "a b:8080", "localhost:", "localhost:x", "localhost:65536", "[::1",
                           "[::1]x", "user@localhost:8080", "localhost:8080/", "localhost:80 80"})
    EXPECT_EQ(StatusOf(kRules, Head(host)), 400) << host;
  RequestHead head = Head("localhost:8080");
  head.hosts.push_back("localhost:8080");
  EXPECT_EQ(StatusOf(kRules, head), 400);
  head.hosts.clear();
  EXPECT_EQ(StatusOf(kRules, head), 400);
}

TEST(Access, OriginMustBeTheHost) {
  RequestHead head = Head("localhost:8080");
  head.origin = "http://localhost:8080";
  EXPECT_EQ(StatusOf(kRules, head), 200);
  for (const char* origin : {"http://evil.example", "http://localhost:3000", "http://127.0.0.1:8080", "null",
                             "", "http://localhost", "file://", "http://localhost:8080.evil.example",
                             "http://localhost:8080/x", "ftp://localhost:8080"}) {
    head.origin = origin;
    EXPECT_EQ(StatusOf(kRules, head), 403) << origin;
  }
  head = Head("pictures.example");
  head.origin = "https://pictures.example";
  EXPECT_EQ(StatusOf(kRules, head), 200);
}

TEST(Access, OtherSitesMayLinkToThePageAndNothingElse) {
  RequestHead head = Head("localhost:8080");
  for (const char* site : {"cross-site", "same-site"}) {
    head.fetch_site = site;
    EXPECT_EQ(StatusOf(kRules, head), 403);
    RequestHead visit = head;
    visit.method = "GET";
    visit.fetch_mode = "navigate";
    EXPECT_EQ(StatusOf(kRules, visit), 403);
    visit.is_public = true;
    EXPECT_EQ(StatusOf(kRules, visit), 200);
    visit.fetch_mode = "no-cors";
    EXPECT_EQ(StatusOf(kRules, visit), 403);
  }
  for (const char* site : {"same-origin", "none", ""}) {
    head.fetch_site = site;
    EXPECT_EQ(StatusOf(kRules, head), 200);
  }
}

TEST(Access, KeyIsAskedFor) {
  AccessRules rules = kRules;
  rules.key = "correct-horse";
  RequestHead head = Head("localhost:8080");
  for (const char* given : {"", "Bearer", "Bearer ", "Bearer wrong", "Bearer correct-hors",
                            "Bearer correct-horsee", "correct-horse", "Basic correct-horse", "Basic",
                            "Basic ", "Basic Y29ycmVjdC1ob3JzZQ==",  // correct-horse
                            "Basic bWU6d3JvbmctaG9yc2U=",            // me:wrong-horse
                            "Basic bWU6",                            // me:
                            "Basic Y29ycmVjdC1ob3JzZTptZQ==",        // correct-horse:me
                            "Digest bWU6Y29ycmVjdC1ob3JzZQ=="}) {
    head.authorization = given;
    EXPECT_EQ(StatusOf(rules, head), 401) << given;
  }
  for (const char* given : {"bearer correct-horse", "Basic bWU6Y29ycmVjdC1ob3JzZQ==",  // me:correct-horse
                            "basic OmNvcnJlY3QtaG9yc2U="}) {                           // :correct-horse
    head.authorization = given;
    EXPECT_EQ(StatusOf(rules, head), 200) << given;
  }
  head.authorization = "";
  head.is_public = true;
  EXPECT_EQ(StatusOf(rules, head), 200);
}

TEST(Access, OtherAddressesNeedAKey) {
  EXPECT_NO_THROW(CheckListening("127.0.0.1", true, ""));
  EXPECT_NO_THROW(CheckListening("0.0.0.0", false, "correct-horse"));
  EXPECT_NE(
      MessageOf(ErrorKind::kUsage, [] { CheckListening("0.0.0.0", false, ""); }).find("QWEN_IMAGE_API_KEY"),
      std::string::npos);
  MessageOf(ErrorKind::kUsage, [] { CheckListening("0.0.0.0", false, "short"); });
  MessageOf(ErrorKind::kUsage, [] { CheckListening("127.0.0.1", true, "with a space"); });
}

}  // namespace
}  // namespace qwen_image::http
