// Clients that are slow, rude or lost, and what becomes of them; the next request is always served.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <list>
#include <thread>

#include "server/jobs/testing.h"
#include "server/testing.h"

namespace qwen_image::server {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

class RudeClients : public testing::Test {
 protected:
  // Made by the first use; settings may be changed before.
  TestServer& server() {
    if (!server_) server_.emplace(folder_.path(), settings_);
    return *server_;
  }
  std::string Get(const std::string& path, const std::string& headers = "") {
    return http::RequestText("GET", path, server().port(), "", headers);
  }
  void ExpectServing() { EXPECT_EQ(server().Ask("GET", "/health").status, 200); }

  const TempFolder folder_;
  ServerSettings settings_;
  std::optional<TestServer> server_;
};

TEST_F(RudeClients, SlowHeadersEndWithTheDeadline) {
  settings_.http.header_deadline = milliseconds(50);
  http::Client silent(server().port()), slow(server().port());
  slow.Send("GET /health HTTP/1.1\r\nHost: 127");
  EXPECT_TRUE(silent.ReadEnd());
  EXPECT_TRUE(slow.ReadEnd());
  // A byte now and then does not help: the deadline is for all of it.
  http::Client drip(server().port());
  while (drip.Send("X")) std::this_thread::yield();
}

TEST_F(RudeClients, SlowBodiesEndWithTheDeadline) {
  settings_.http.body_deadline = milliseconds(50);
  http::Client slow(server().port());
  slow.Send(http::RequestText("POST", "/jobs", server().port(), "", "Content-Length: 1000\r\n"));
  EXPECT_TRUE(slow.ReadEnd());
  ExpectServing();
}

TEST_F(RudeClients, IdleConnectionsEnd) {
  settings_.http.idle_deadline = milliseconds(50);
  http::Client client(server().port());
  client.Send(Get("/health"));
  EXPECT_EQ(client.Read().status, 200);
  EXPECT_TRUE(client.ReadEnd());
}

TEST_F(RudeClients, LargeHeadersAreRefused) {
  http::Client client(server().port());
  client.Send(Get("/health", "X: " + std::string(20000, 'x') + "\r\n"));
  EXPECT_EQ(client.Read().status, 431);
  EXPECT_TRUE(client.ReadEnd());
  http::Client endless(server().port());
  endless.Send("GET /health HTTP/1.1\r\n");
  for (int i = 0; i < 10000 && endless.Send("X-A: b\r\n"); ++i) {
  }
  EXPECT_EQ(endless.Read().status, 431);
  ExpectServing();
}

TEST_F(RudeClients, LargeBodiesAreRefusedBeforeTheyAreSent) {
  settings_.http.max_body_bytes = 1000;
  http::Client client(server().port());
  client.Send(http::RequestText("POST", "/jobs", server().port(), "", "Content-Length: 1001\r\n"));
  EXPECT_EQ(client.Read().status, 413);
  http::Client huge(server().port());
  huge.Send(
      http::RequestText("POST", "/jobs", server().port(), "", "Content-Length: 18446744073709551615\r\n"));
  EXPECT_EQ(huge.Read().status, 413);
  http::Client beyond(server().port());
  beyond.Send(
      http::RequestText("POST", "/jobs", server().port(), "", "Content-Length: 18446744073709551616\r\n"));
  EXPECT_EQ(beyond.Read().status, 400);
  ExpectServing();
}

TEST_F(RudeClients, EndlessChunkedBodiesAreRefused) {
  settings_.http.max_body_bytes = 100000;
  http::Client client(server().port());
  client.Send(http::RequestText("POST", "/jobs", server().port(), "", "Transfer-Encoding: chunked\r\n"));
  const std::string chunk = "1000\r\n" + std::string(0x1000, 'x') + "\r\n";
  int sent = 0;
  while (sent < 10000 && client.Send(chunk)) ++sent;
  EXPECT_LT(sent, 10000);
  ExpectServing();
}

TEST_F(RudeClients, AChunkedBodyThatIsTooLargeGetsItsReply) {
  settings_.http.max_body_bytes = 1000;
  http::Client client(server().port());
  client.Send(http::RequestText("POST", "/jobs", server().port(), "", "Transfer-Encoding: chunked\r\n"));
  client.Send("7d0\r\n" + std::string(2000, 'x') + "\r\n0\r\n\r\n");
  EXPECT_EQ(client.Read().status, 413);
}

TEST_F(RudeClients, ChunkedBodiesWork) {
  http::Client client(server().port());
  const std::string body = kQuickBody;
  client.Send(http::RequestText("POST", "/jobs", server().port(), "", "Transfer-Encoding: chunked\r\n") +
              fmt::format("{:x}\r\n{}\r\n0\r\n\r\n", body.size(), body));
  EXPECT_EQ(client.Read().status, 202);
}

TEST_F(RudeClients, BodiesOfAllRequestsTogetherAreBounded) {
  settings_.http.max_bodies_bytes = 1000;
  http::Client client(server().port());
  client.Send(http::RequestText("POST", "/jobs", server().port(), std::string(2000, ' ')));
  EXPECT_EQ(client.Read().status, 503);
  ExpectServing();
}

TEST_F(RudeClients, ARequestThatWaitsForItsJobLeavesRoomForOthersBodies) {
  settings_.http.max_bodies_bytes = 1000;
  http::Client waiting(server().port());
  std::string body = R"({"prompt": "a red circle", "size": "128x128", "steps": 200, "n": 10})";
  body.resize(900, ' ');
  waiting.Send(http::RequestText("POST", "/v1/images/generations", server().port(), body));
  while (server()->jobs().List().empty()) std::this_thread::yield();
  jobs::WaitForSteps(server()->jobs(), server()->jobs().List().front().id);
  // The room is given back just after the job has been taken: not always before the first of these comes.
  int status = 503;
  for (int tries = 0; status == 503 && tries < 100; ++tries) {
    http::Client other(server().port());
    other.Send(http::RequestText("POST", "/jobs", server().port(), kQuickBody + std::string(400, ' ')));
    status = other.Read().status;
  }
  EXPECT_EQ(status, 202);
}

TEST_F(RudeClients, TheBodyIsAskedForWhenTheHeaderIsFine) {
  http::Client client(server().port());
  const std::string body = kQuickBody;
  const std::string expect = fmt::format("Expect: 100-continue\r\nContent-Length: {}\r\n", body.size());
  client.Send(http::RequestText("POST", "/jobs", server().port(), "", expect));
  EXPECT_EQ(client.Read().status, 100);
  client.Send(body);
  EXPECT_EQ(client.Read().status, 202);
  http::Client foreign(server().port());
  foreign.Send(
      http::RequestText("POST", "/jobs", server().port(), "", "Origin: http://evil.example\r\n" + expect));
  EXPECT_EQ(foreign.Read().status, 403);
  http::Client odd(server().port());
  odd.Send(
      http::RequestText("POST", "/jobs", server().port(), "", "Expect: miracles\r\nContent-Length: 10\r\n"));
  EXPECT_EQ(odd.Read().status, 417);
}

TEST_F(RudeClients, GarbageIsNoRequest) {
  const std::string garbage[] = {std::string("\0\1\2\3\xff\xfe\r\n\r\n", 10),
                                 std::string("\x16\x03\x01\x02\0\1\0\r\n\r\n", 11),
                                 "GET\r\n\r\n",
                                 "GET / HTTP/9.9\r\n\r\n",
                                 "GET  HTTP/1.1\r\n\r\n",
                                 "GET / HTTP/1.1\r\nHost : x\r\n\r\n",
                                 "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"};
  for (const std::string& bytes : garbage) {
    http::Client client(server().port());
    client.Send(bytes);
    EXPECT_EQ(client.Read().status, 400) << testing::PrintToString(bytes);
    EXPECT_TRUE(client.ReadEnd());
  }
  http::Client half(server().port());
  half.Send("GET / HT");
  half.Reset();
  ExpectServing();
}

TEST_F(RudeClients, ForeignPagesAreRefused) {
  const auto status = [&](const std::string& host, const std::string& more) {
    http::Client client(server().port());
    client.Send("GET /jobs HTTP/1.1\r\nHost: " + host + "\r\n" + more + "\r\n");
    return client.Read().status;
  };
  const std::string own = fmt::format("127.0.0.1:{}", server().port());
  EXPECT_EQ(status(own, ""), 200);
  EXPECT_EQ(status(own, "Origin: http://" + own + "\r\n"), 200);
  EXPECT_EQ(status(own, "Origin: http://evil.example\r\n"), 403);
  EXPECT_EQ(status(own, "Origin: null\r\n"), 403);
  EXPECT_EQ(status(own, "Sec-Fetch-Site: cross-site\r\n"), 403);
  EXPECT_EQ(status(fmt::format("evil.example:{}", server().port()), ""), 403);
  EXPECT_EQ(status("127.0.0.1:1", ""), 403);
  EXPECT_EQ(status(own + "\r\nHost: " + own, ""), 400);
  http::Client none(server().port());
  none.Send("GET /jobs HTTP/1.1\r\n\r\n");
  EXPECT_EQ(none.Read().status, 400);
}

TEST_F(RudeClients, TheKeyIsNeededForAllButThePage) {
  settings_.http.key = "correct-horse";
  EXPECT_EQ(server().Ask("GET", "/").status, 200);
  EXPECT_EQ(server().Ask("GET", "/health").status, 200);
  for (const char* path : {"/jobs", "/info", "/metrics", "/v1/models", "/jobs/x/events", "/nothing"}) {
    const http::TestReply reply = server().Ask("GET", path);
    EXPECT_EQ(reply.status, 401) << path;
    EXPECT_EQ(reply.headers.at("www-authenticate"), "Bearer");
  }
  EXPECT_EQ(server().Ask("GET", "/jobs", "", "Authorization: Bearer wrong-horse\r\n").status, 401);
  EXPECT_EQ(server().Ask("GET", "/jobs", "", "Authorization: Bearer correct-horse\r\n").status, 200);
}

TEST_F(RudeClients, OtherAddressesNeedAKey) {
  settings_.http.host = "0.0.0.0";
  EXPECT_THAT(MessageOf(ErrorKind::kUsage, [&] { server(); }), HasSubstr("QWEN_IMAGE_API_KEY"));
  settings_.http.host = "pictures.example";
  EXPECT_THAT(MessageOf(ErrorKind::kUsage, [&] { server(); }), HasSubstr("not an address"));
}

TEST_F(RudeClients, PipelinedRequestsAreAnsweredInOrder) {
  http::Client client(server().port());
  client.Send(Get("/health") + http::RequestText("POST", "/jobs", server().port(), kQuickBody) +
              Get("/nothing") + Get("/info"));
  for (const int status : {200, 202, 404, 200}) EXPECT_EQ(client.Read().status, status);
}

TEST_F(RudeClients, OldClientsGetOneReply) {
  http::Client client(server().port());
  client.Send(fmt::format("GET /health HTTP/1.0\r\nHost: 127.0.0.1:{}\r\n\r\n", server().port()));
  EXPECT_EQ(client.Read().status, 200);
  EXPECT_TRUE(client.ReadEnd());
}

TEST_F(RudeClients, TooManyConnectionsAreToldSo) {
  settings_.http.max_connections = 2;
  const std::string id = server().Submit(kLongBody);
  http::Client first(server().port()), second(server().port());
  for (http::Client* client : {&first, &second}) {
    client->Send(Get("/jobs/" + id + "/events"));
    EXPECT_EQ(client->Read(false).status, 200);
  }
  {
    http::Client third(server().port());
    const http::TestReply reply = third.Read();
    EXPECT_EQ(reply.status, 503);
    EXPECT_TRUE(reply.headers.contains("retry-after"));
    EXPECT_TRUE(third.ReadEnd());
  }
  EXPECT_THAT(first.ReadUntil("\n\n"), HasSubstr("event: "));
  second.Close();
  // The place is free as soon as the server has seen that it is.
  for (int status = 503; status == 503;) {
    http::Client next(server().port());
    next.Send(Get("/health"));
    status = next.Read().status;
    EXPECT_TRUE(status == 503 || status == 200 || status == 0) << status;
    if (status == 0) status = 503;
  }
}

TEST_F(RudeClients, SilentOnesMakeRoomForOthers) {
  settings_.http.max_connections = 3;
  http::Client idle(server().port());
  idle.Send(Get("/health"));
  EXPECT_EQ(idle.Read().status, 200);  // and says nothing more
  http::Client silent(server().port()), half(server().port());
  half.Send("GET /health HT");
  ExpectServing();
  EXPECT_TRUE(idle.ReadEnd());  // silent for longest
  for (int i = 0; i < 10; ++i) ExpectServing();
}

TEST_F(RudeClients, RepliesThatNobodyTakesAreBounded) {
  settings_.http.max_replies_bytes = 8'000'000;
  settings_.http.send_buffer_bytes = 1 << 16;
  settings_.jobs.queue = 100;
  settings_.http.shutdown_grace = milliseconds(10);
  // As large a list as its client can make.
  const Json body = {{"prompt", std::string(32'000, 'x')},
                     {"negative_prompt", std::string(32'000, 'y')},
                     {"width", 128},
                     {"height", 128},
                     {"steps", 200}};
  for (int i = 0; i < 50; ++i) server().Submit(body.dump());
  std::list<http::Client> stalled;
  int status = 200;
  for (int tries = 0; status == 200 && tries < 20; ++tries) {
    stalled.emplace_back(server().port());
    stalled.back().SmallWindow();
    stalled.back().Send(Get("/jobs"));
    http::Client other(server().port());
    other.Send(Get("/jobs"));
    status = other.Read().status;
  }
  EXPECT_EQ(status, 503);
  ExpectServing();
}

TEST_F(RudeClients, OddFramesAreRefused) {
  const auto status = [&](const std::string& headers, const std::string& body) {
    http::Client client(server().port());
    client.Send(http::RequestText("POST", "/jobs", server().port(), "", headers) + body);
    return client.Read().status;
  };
  const std::string json = kQuickBody;
  const std::string chunks = fmt::format("{:x}\r\n{}\r\n0\r\n\r\n", json.size(), json);
  EXPECT_EQ(status("Transfer-Encoding: chunked\r\n", chunks), 202);
  EXPECT_EQ(status("Transfer-Encoding: gzip, chunked\r\n", chunks), 501);
  EXPECT_EQ(status("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", chunks), 501);
  EXPECT_EQ(status("Transfer-Encoding: chunked, chunked\r\n", chunks), 501);
  EXPECT_EQ(status("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", chunks), 400);
  EXPECT_EQ(status("X-Long: a\r\n b\r\nTransfer-Encoding: chunked\r\n", chunks), 400);
  EXPECT_EQ(status("Transfer-Encoding:\r\n\tchunked\r\n", chunks), 400);
  // Spaces that are not a fold.
  EXPECT_EQ(status("X-Long: a  b\r\nTransfer-Encoding: chunked\r\n", chunks), 202);
}

TEST_F(RudeClients, ExtensionsOfChunksAreBounded) {
  const std::string extension = ";x=" + std::string(1000, 'y');
  http::Client client(server().port());
  client.Send(http::RequestText("POST", "/jobs", server().port(), "", "Transfer-Encoding: chunked\r\n"));
  int sent = 0;
  while (sent < 1000 && client.Send("1" + extension + "\r\n \r\n")) ++sent;
  client.Send("0\r\n\r\n");
  EXPECT_EQ(client.Read().status, 431);
  ExpectServing();
}

TEST_F(RudeClients, APortThatIsTakenIsNamed) {
  settings_.http.port = server().port();
  const TempFolder other;
  settings_.jobs_folder = other.path();
  EXPECT_THAT(MessageOf(ErrorKind::kUsage, [&] { Server(jobs::TinyPipeline(), settings_); }),
              HasSubstr("--port"));
}

}  // namespace
}  // namespace qwen_image::server
