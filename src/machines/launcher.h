// Whether this process is one of several that a launcher started, and which message-passing library they are
// to talk by.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "machines/wire.h"

namespace qwen_image::machines {

struct Launcher {
  std::string library;   // "Open MPI", "MPICH"
  int size = 0;          // processes, more than one; 0: only the library knows
  int size_on_host = 0;  // of them on this machine; 0: unknown
  bool bound = false;    // each has processors of its own
};

// Reads the variables that launchers set (`variable` is getenv, or a test's). Nothing for a single process,
// and for one of many that Slurm started without a message-passing library.
std::optional<Launcher> FindLauncher(const std::function<const char*(const char*)>& variable);

// The file that talks by the launcher's library, in the first of the folders that has it. Throws Error
// kUsage that says how to get it.
std::filesystem::path FindPlugin(const Launcher& launcher, const std::vector<std::filesystem::path>& folders);

// Loads the plugin from the first of the folders that has it. Throws Error kUsage.
std::unique_ptr<Wire> OpenWireOf(const Launcher& launcher, const std::vector<std::filesystem::path>& folders);

// Where plugins lie: beside the program, or the library that this code is in.
std::vector<std::filesystem::path> PluginFolders();

}  // namespace qwen_image::machines
