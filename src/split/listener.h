// What listens inside an operation of one machine, and shows a listener what all machines computed.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "split/split_ops.h"

namespace qwen_image::split {

class SplitOps::Listener final : public CheckpointSink {
 public:
  struct Name {
    Name(const char* n, const Array& x) : Name(n ? std::string_view(n) : std::string_view(), SharesOf(x)) {}
    Name(std::string_view n, const Shares* s, bool heads = false) : name(n), shares(s), of_heads(heads) {}

    std::string_view name;  // no data: there is no such checkpoint
    const Shares* shares;   // of its rows; null: all machines have all
    bool of_heads;          // the shares are those of heads
  };
  // Of the names those that `tap` wants; all machines ask for the same ones in the same order.
  Listener(const SplitOps& ops, const Tap& tap, const std::vector<Name>& names) : ops_(ops), whole_(tap) {
    for (const Name& name : names)
      if (name.name.data() && tap && tap.Wants(name.name)) wanted_.push_back(name);
  }

  // Of this machine's operations. No tap where nothing is wanted, so that they fuse.
  Tap tap() const { return wanted_.empty() ? Tap() : Tap(const_cast<Listener*>(this)); }

  bool Wants(std::string_view name) const override { return Find(name) != nullptr; }
  void OnCheckpoint(const std::string& name, const CheckpointView& view) override {
    const Name& known = *Find(name);
    auto* const own = std::get<float*>(view.data);
    const bool shared = known.shares && (known.of_heads || view.shape.size() > 2);
    if (!shared) return whole_(name, own, view.shape);
    Shape whole = view.shape;
    whole[1] = known.shares->ends.back();
    ops_.ShowWhole(whole_, name, whole, *known.shares, own);
  }

 private:
  const Name* Find(std::string_view name) const {
    const auto found =
        std::find_if(wanted_.begin(), wanted_.end(), [&](const Name& wanted) { return wanted.name == name; });
    return found == wanted_.end() ? nullptr : &*found;
  }

  const SplitOps& ops_;
  const Tap& whole_;
  std::vector<Name> wanted_;
};

}  // namespace qwen_image::split
