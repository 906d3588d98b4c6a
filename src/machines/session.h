// The machines that a launcher started together, from their meeting to their leave.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "machines/group.h"
#include "machines/heartbeat.h"
#include "machines/launcher.h"

namespace qwen_image::machines {

// The exit code of a program that had to end because of another machine.
inline constexpr int kOtherMachineFailed = 6;

class Session {
 public:
  // Meets the others.
  Session(std::unique_ptr<Wire> wire, const Launcher& launcher);
  // The first machine must have dismissed the others. After Fail nothing is waited for.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const Group& all() const { return all_; }
  Group Of(std::vector<int> ranks) const { return {*wire_, std::move(ranks)}; }
  int rank() const { return all_.rank(); }
  int size() const { return all_.size(); }
  int size_on_host() const { return size_on_host_; }
  bool bound() const { return bound_; }  // each machine on a host has processors of its own
  std::string NameOf(int rank) const;    // for messages: "node7 (rank 2)"

  // What this machine computes with the others cannot go on: they are ended with it. The exit code is the
  // program's own, if it has one.
  void Fail() const { failed_ = true; }
  bool failed() const { return failed_; }
  void set_exit_code(int code) { exit_code_ = code; }
  [[noreturn]] void Abort() const;

 private:
  void OnSilence(int rank);

  std::unique_ptr<Wire> wire_;
  Group all_;
  int size_on_host_;
  bool bound_;
  std::vector<std::string> hosts_;
  mutable std::atomic<bool> failed_ = false;
  int exit_code_ = kOtherMachineFailed;
  std::unique_ptr<Heartbeat> heartbeat_;
};

}  // namespace qwen_image::machines
