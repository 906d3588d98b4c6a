#include "server/http/listener.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <csignal>

#include "core/fail.h"
#include "files/text.h"
#include "server/http/connection.h"

namespace qwen_image::http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr int kMaxRefusing = 32;  // connections that are told that there are too many

asio::ip::address ParseAddress(const std::string& host) {
  error_code error;
  const auto address = asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, error);
  if (error)
    Fail(ErrorKind::kUsage, "{} is not an address to listen on; for example 127.0.0.1 or 0.0.0.0",
         Quoted(host));
  return address;
}

std::string Url(const tcp::endpoint& endpoint) {
  std::string address = endpoint.address().to_string();
  if (endpoint.address().is_v6()) address = "[" + address + "]";
  return fmt::format("http://{}:{}", address, endpoint.port());
}

// The connection's coroutine keeps it alive.
asio::awaitable<void> RunConnection(std::shared_ptr<Connection> connection, Listener::Impl& server) {
  bool failed = false;
  try {
    co_await connection->Serve();
  } catch (const std::exception&) {  // no memory: this client is lost, the others are not
    failed = true;
  }
  if (failed) connection->SayNoMemory();
  connection = nullptr;
  server.EndIfIdle();
}

}  // namespace

Listener::Impl::Impl(Settings the_settings, Hooks the_hooks)
    : settings(std::move(the_settings)), hooks(std::move(the_hooks)) {
  Listen();
}

void Listener::Impl::Listen() {
  const auto address = ParseAddress(settings.host);
  CheckListening(settings.host, address.is_loopback(), settings.key);
  const tcp::endpoint wanted(address, settings.port);
  error_code error;
  acceptor.open(wanted.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(wanted, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error == asio::error::address_in_use)
    Fail(ErrorKind::kUsage,
         "another program listens on {}; choose another port with --port (0: any that is free)", Url(wanted));
  if (error) Fail(ErrorKind::kUsage, "cannot listen on {}: {}", Url(wanted), error.message());
  const tcp::endpoint bound = acceptor.local_endpoint();
  url = Url(bound);
  rules = {.key = settings.key, .hosts = settings.allowed_hosts, .port = bound.port()};
}

asio::awaitable<void> Listener::Impl::Accept() {
  while (acceptor.is_open()) {
    try {
      co_await AcceptOne();
    } catch (const std::exception&) {  // no memory: this client is lost, the next one may have more luck
    }
  }
}

asio::awaitable<void> Listener::Impl::AcceptOne() {
  error_code error;
  tcp::socket socket = co_await acceptor.async_accept(asio::redirect_error(asio::use_awaitable, error));
  if (!acceptor.is_open()) co_return;
  if (error) {
    // Out of file descriptors, most likely; some will be free again.
    accept_pause.expires_after(std::chrono::milliseconds(50));
    co_await accept_pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
    co_return;
  }
  const bool refuse = places >= settings.max_connections && !CloseLongestSilent();
  if (refuse) {
    const std::lock_guard lock(stats_mutex);
    ++stats.refused_connections;
  }
  if (refuse && refusing >= kMaxRefusing) co_return;  // closes it
  const auto connection = std::make_shared<Connection>(*this, std::move(socket), refuse);
  asio::co_spawn(context, RunConnection(connection, *this), asio::detached);
}

bool Listener::Impl::CloseLongestSilent() {
  Connection* longest = nullptr;
  for (Connection* connection : connections) {
    if (!connection->silent_since()) continue;
    if (!longest || *connection->silent_since() < *longest->silent_since()) longest = connection;
  }
  if (longest) longest->GiveUpPlace();
  return longest != nullptr;
}

void Listener::Impl::BeginStop() {
  if (std::exchange(stopping, true)) return;
  error_code ignored;
  acceptor.close(ignored);
  for (Connection* connection : connections) connection->CloseIfIdle();
  grace.expires_after(settings.shutdown_grace);
  grace.async_wait([this](const error_code& error) {
    if (!error) context.stop();
  });
  EndIfIdle();
}

void Listener::Impl::WaitForSignal() {
  signals.async_wait([this](const error_code& error, int signal) {
    if (error) return;
    ++signal_count;
    if (signal_count == 2) {
      error_code ignored;
      signals.clear(ignored);  // a third one ends the process as if nothing had been arranged
    } else {
      WaitForSignal();
    }
    on_signal(signal);
  });
}

Listener::Listener(Settings settings, Hooks hooks)
    : impl_(std::make_unique<Impl>(std::move(settings), std::move(hooks))) {}

Listener::~Listener() { impl_->workers.Join(); }

uint16_t Listener::port() const { return impl_->rules.port; }

std::string Listener::url() const { return impl_->url; }

void Listener::Run() {
  asio::co_spawn(impl_->context, impl_->Accept(), asio::detached);
  const auto work = asio::make_work_guard(impl_->context);
  RunAll(impl_->context);
}

void Listener::StopAccepting() {
  asio::post(impl_->context, [this] {
    error_code ignored;
    impl_->acceptor.close(ignored);
  });
}

void Listener::Stop() {
  asio::post(impl_->context, [this] { impl_->BeginStop(); });
}

ListenerStats Listener::Stats() const {
  const std::lock_guard lock(impl_->stats_mutex);
  return impl_->stats;
}

void Listener::OnSignals(std::function<void(int count)> handler) {
  impl_->on_signal = std::move(handler);
  impl_->signals.add(SIGINT);
  impl_->signals.add(SIGTERM);
  impl_->WaitForSignal();
}

}  // namespace qwen_image::http
