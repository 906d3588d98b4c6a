// How a NATS server is named and reached: the options of all commands that use one.
#pragma once

#include <string>

#include "command.h"
#include "queue/connect.h"

namespace qwen_image::cli {

OptionList NatsOptionList(queue::NatsSettings& settings, const char* help, bool required);

// What jobs call the model, and so which workers take them.
Option QueueNameOption(std::string& name);

}  // namespace qwen_image::cli
