// What a request of OpenAI's says of its reply, and what the reply is then: pictures as text or addresses, in
// one piece or as events while they are drawn.
#pragma once

#include <optional>
#include <string>

#include "files/picture_file.h"
#include "server/api/fields.h"
#include "server/http/message.h"
#include "server/jobs/queue.h"

namespace qwen_image::api {

struct OpenAiForm {
  bool base64 = true, url = true;  // both if nothing is said: OpenAI's models differ in that
  EncodedAs as;
  std::optional<std::string> quality;  // as it was asked for
  bool stream = false;
  int64_t partial_images = 0;  // of a stream: how many previews are told
  bool edit = false;           // what the events are called after
};

// Throws FieldError.
OpenAiForm OpenAiFormOf(const Fields& fields, bool edit);

http::Response OpenAiReply(const http::Request& request, const jobs::Queue& queue, const jobs::Job& job,
                           const OpenAiForm& form);

// The previews that were asked for, then the picture, or what went wrong. If the client leaves before, the
// job is cancelled.
http::EventStream OpenAiStream(const http::Request& request, jobs::Queue& queue, const std::string& id,
                               const OpenAiForm& form);

}  // namespace qwen_image::api
