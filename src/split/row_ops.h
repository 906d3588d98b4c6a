// Operations of a machine that computes some of a pass's blocks, in a row of machines that have the others.
// None of them needs all of the weights.
#pragma once

#include <memory>

#include "machines/group.h"
#include "ops/wrapped.h"

namespace qwen_image::split {

class RowOps final : public WrappedOps {
 public:
  // `group`, in the order of the blocks, must outlive this object.
  RowOps(std::unique_ptr<Ops> inner, const machines::Group& group, Profile* profile)
      : WrappedOps(std::move(inner)), group_(group), profile_(profile) {}

  Blocks OwnBlocks(size_t count) const override;
  // Throws Error kInterrupted if the first machine was told to stop.
  void TakeOver(std::span<Array* const> state) override;
  void HandOver(std::span<Array* const> state) override;
  Tensor ToHost(const Array& x) override;

 private:
  const machines::Group& group_;
  Profile* const profile_;
};

// Of the first machine, which stops before it has handed over all that the others wait for.
void TellToStop(const machines::Group& group);

}  // namespace qwen_image::split
