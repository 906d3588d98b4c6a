// Between Beast's messages and ours.
#pragma once

#include <boost/beast/core/string_type.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/system/error_code.hpp>
#include <optional>
#include <string>

#include "server/http/access.h"
#include "server/http/listener.h"

namespace qwen_image::http {

using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
using WireResponse = boost::beast::http::response<boost::beast::http::string_body>;

inline constexpr const char* kNoMemory = "there is not enough memory for this request";

// What to tell a client whose request could not be read. None: the connection is lost, and nobody can be
// told.
std::optional<Refusal> ReadingRefusal(const boost::system::error_code& error, const Settings& settings);

std::string Header(const Parser& parser, boost::beast::string_view name);
RequestHead HeadOf(const Parser& parser, const std::string& local_address, bool is_public);

// Every reply gets the headers that keep browsers from other sources than this server.
WireResponse MakeResponse(Response from, const Request& request, bool is_head, bool keep_alive,
                          unsigned version);
// The stream ends with the connection, so its header says no length.
std::string EventStreamHeader(const std::string& request_id);
std::string EventText(const Event& event);

}  // namespace qwen_image::http
