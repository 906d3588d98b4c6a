#include "hub/http.h"

#include <curl/curl.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "core/fail.h"
#include "files/text.h"
#include "hub/certificates.h"

namespace qwen_image::hub {
namespace {

constexpr long kConnectSeconds = 30;
constexpr long kSilenceSeconds = 60;  // as long as this without a byte is a cut connection
constexpr long kMaxRedirects = 10;
constexpr size_t kMaxHeaders = 200, kMaxHeaderValue = 8192;

std::string Lowercase(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return lower;
}

std::string_view WithoutSpace(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == text.npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r\n") + 1 - first);
}

bool MayPass(CURLcode code) {  // problems of the moment, not of the address or the certificate
  switch (code) {
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
      return true;
    default:
      return false;
  }
}

void InitializeCurl() {
  static const CURLcode code = curl_global_init(CURL_GLOBAL_DEFAULT);  // once, whatever thread comes first
  if (code != CURLE_OK) Fail(ErrorKind::kInternal, "libcurl: {}", curl_easy_strerror(code));
}

}  // namespace

struct HttpClient::State {
  CURL* curl = nullptr;
  std::function<bool()> stopped;
  bool certificates_set = false;
  // Of the request under way:
  const Sink* sink = nullptr;
  HttpHead head;
  std::exception_ptr thrown;  // must not pass through C; kept until curl has returned

  ~State() { curl_easy_cleanup(curl); }

  template <typename Value>
  void Set(CURLoption option, Value value) {
    if (const CURLcode code = curl_easy_setopt(curl, option, value); code != CURLE_OK)
      Fail(ErrorKind::kInternal, "libcurl refuses option {}: {}", static_cast<int>(option),
           curl_easy_strerror(code));
  }

  void SetForAllRequests();
  void SetCertificates();
  void SetForRequest(const HttpRequest& request, curl_slist* headers);

  static size_t OnHeader(const char* data, size_t size, size_t count, void* self);
  static size_t OnBody(const char* data, size_t size, size_t count, void* self);
  static int OnProgress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t);
};

// A header line of any of the answers on the way; a status line begins the next one.
size_t HttpClient::State::OnHeader(const char* data, size_t size, size_t count, void* self) {
  State& state = *static_cast<State*>(self);
  const std::string_view line(data, size * count);
  try {
    if (line.starts_with("HTTP/")) state.head.headers.clear();
    const size_t colon = line.find(':');
    if (colon != line.npos && state.head.headers.size() < kMaxHeaders) {
      state.head.headers[Lowercase(line.substr(0, colon))] =
          WithoutSpace(line.substr(colon + 1)).substr(0, kMaxHeaderValue);
    }
  } catch (...) {
    state.thrown = std::current_exception();
    return 0;
  }
  return line.size();
}

size_t HttpClient::State::OnBody(const char* data, size_t size, size_t count, void* self) {
  State& state = *static_cast<State*>(self);
  const std::string_view bytes(data, size * count);
  try {
    long status = 0;
    curl_easy_getinfo(state.curl, CURLINFO_RESPONSE_CODE, &status);
    state.head.status = static_cast<int>(status);
    if (state.stopped()) throw Error(ErrorKind::kInterrupted, "interrupted");
    if (state.head.has_body()) (*state.sink)(state.head, bytes);
  } catch (...) {
    state.thrown = std::current_exception();
    return CURL_WRITEFUNC_ERROR;
  }
  return bytes.size();
}

int HttpClient::State::OnProgress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<State*>(self)->stopped() ? 1 : 0;
}

void HttpClient::State::SetForAllRequests() {
  Set(CURLOPT_NOSIGNAL, 1L);
  Set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  Set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  Set(CURLOPT_LOW_SPEED_TIME, kSilenceSeconds);
  Set(CURLOPT_MAXREDIRS, kMaxRedirects);
  Set(CURLOPT_PROTOCOLS_STR, "http,https");
  Set(CURLOPT_USERAGENT, "qwen-image.cpp");
  Set(CURLOPT_HEADERFUNCTION, &OnHeader);
  Set(CURLOPT_HEADERDATA, static_cast<void*>(this));
  Set(CURLOPT_WRITEFUNCTION, &OnBody);
  Set(CURLOPT_WRITEDATA, static_cast<void*>(this));
  Set(CURLOPT_NOPROGRESS, 0L);
  Set(CURLOPT_XFERINFOFUNCTION, &OnProgress);
  Set(CURLOPT_XFERINFODATA, static_cast<void*>(this));
}

// When they are needed first: a local server without https is no reason to look for them.
void HttpClient::State::SetCertificates() {
  if (std::exchange(certificates_set, true)) return;
  const Certificates found = FindCertificates();
  Set(CURLOPT_CAINFO, found.file.empty() ? nullptr : found.file.c_str());
  Set(CURLOPT_CAPATH, found.folder.empty() ? nullptr : found.folder.c_str());
}

void HttpClient::State::SetForRequest(const HttpRequest& request, curl_slist* headers) {
  Set(CURLOPT_URL, request.url.c_str());
  // An open address may lead to an encrypted one, where libcurl's own place of certificates will do.
  if (request.url.starts_with("https:")) SetCertificates();
  // An encrypted address must not redirect to an open one.
  Set(CURLOPT_REDIR_PROTOCOLS_STR, request.url.starts_with("https:") ? "https" : "http,https");
  Set(CURLOPT_HTTPHEADER, headers);
  Set(CURLOPT_NOBODY, request.head ? 1L : 0L);
  if (!request.head) Set(CURLOPT_HTTPGET, 1L);
  Set(CURLOPT_FOLLOWLOCATION, request.head ? 0L : 1L);
  // Not CURLOPT_RESUME_FROM: a server that ignores the range and sends everything would be an error then.
  const std::string range = fmt::format("{}-", request.offset);
  Set(CURLOPT_RANGE, request.offset > 0 ? range.c_str() : nullptr);
}

std::string HttpHead::Header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

HttpClient::HttpClient(std::function<bool()> stopped) : state_(std::make_unique<State>()) {
  InitializeCurl();
  state_->stopped = std::move(stopped);
  state_->curl = curl_easy_init();
  if (!state_->curl) Fail(ErrorKind::kInternal, "libcurl cannot be started");
  state_->SetForAllRequests();
}

HttpClient::~HttpClient() = default;

HttpResult HttpClient::Get(const HttpRequest& request, const Sink& sink) {
  State& state = *state_;
  state.sink = &sink;
  state.head = {};
  state.thrown = nullptr;
  struct List {
    curl_slist* items = nullptr;
    ~List() { curl_slist_free_all(items); }
    void Add(const std::string& line) { items = curl_slist_append(items, line.c_str()); }
  } headers;
  headers.Add("Accept-Encoding: identity");  // sizes and offsets are those of the file itself
  // libcurl leaves this header out once a redirect leads to another host, port or protocol.
  if (!request.token.empty()) headers.Add("Authorization: Bearer " + request.token);
  state.SetForRequest(request, headers.items);
  char details[CURL_ERROR_SIZE] = "";
  state.Set(CURLOPT_ERRORBUFFER, details);

  const CURLcode code = curl_easy_perform(state.curl);
  state.Set(CURLOPT_ERRORBUFFER, static_cast<char*>(nullptr));
  if (state.thrown) std::rethrow_exception(state.thrown);
  if (code == CURLE_ABORTED_BY_CALLBACK) throw Error(ErrorKind::kInterrupted, "interrupted");
  HttpResult result;
  long status = 0;
  curl_off_t retry_after = 0;
  curl_easy_getinfo(state.curl, CURLINFO_RESPONSE_CODE, &status);
  curl_easy_getinfo(state.curl, CURLINFO_RETRY_AFTER, &retry_after);
  state.head.status = static_cast<int>(status);
  result.head = std::move(state.head);
  result.retry_after = std::chrono::seconds(std::clamp<curl_off_t>(retry_after, 0, 3600));
  if (code != CURLE_OK) {
    result.problem = Printable(*details ? details : curl_easy_strerror(code));
    result.temporary = MayPass(code);
  } else {
    result.temporary = status == 429 || status >= 500;
  }
  return result;
}

std::string UrlEncoded(std::string_view text, bool keep_slashes) {
  std::string encoded;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~' || (keep_slashes && c == '/');
    if (plain) {
      encoded += c;
    } else {
      encoded += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return encoded;
}

}  // namespace qwen_image::hub
