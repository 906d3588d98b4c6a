// Arrays of which each machine has a share.
#include <algorithm>
#include <utility>

#include "core/fail.h"
#include "split/bytes.h"
#include "split/listener.h"
#include "split/split_ops.h"

namespace qwen_image::split {
namespace {

// Each part of a sequence has shares of its own, whose sizes are rounded: together they may be a little more
// than the share of the whole.
constexpr int64_t kMostParts = 16;

bool IsTokens(const Shape& shape) { return shape.size() == 3 && shape[0] == 1; }

}  // namespace

struct SplitOps::KeptShare : DeviceValues {
  Array kept;
};

SplitOps::SharesPtr SplitOps::EvenShares(int64_t rows) const {
  const machines::Cut cut{rows, group_.size()};
  auto shares = std::make_shared<Shares>();
  for (int rank = 0; rank < group_.size(); ++rank) shares->ends.push_back(cut.Begin(rank + 1));
  return shares;
}

Array SplitOps::Split(Array local, const Shape& shape, SharesPtr shares) {
  local.shape = shape;
  local.values = std::move(shares);
  return local;
}

Array SplitOps::Local(const Array& x) {
  if (!x.values) return x;
  Array local = x;
  local.shape = {1, x.view.rows, x.cols()};
  local.values = nullptr;
  return local;
}

int64_t SplitOps::OwnBegin(const Array& x) const {
  const Shares* const shares = SharesOf(x);
  return shares ? shares->Begin(group_.rank()) : 0;
}

Array SplitOps::New(const Shape& shape) {
  if (!IsTokens(shape)) return inner_->New(shape);
  const SharesPtr shares = EvenShares(shape[1]);
  const int64_t own = shares->Count(group_.rank());
  return Split(inner_->Rows(inner_->New({1, own + kMostParts, shape[2]}), 0, own), shape, shares);
}

Joint SplitOps::PartsOf(const Array& memory, std::span<const int64_t> tokens) {
  Joint parts;
  Array rows = Local(memory);
  int64_t first = 0;
  for (const int64_t count : tokens) {
    const SharesPtr shares = EvenShares(count);
    const int64_t own = shares->Count(group_.rank());
    if ((first + own) * memory.cols() > memory.memory->size())
      Fail(ErrorKind::kInternal, "a sequence of {} parts does not fit into its memory", tokens.size());
    parts.push_back(Split(inner_->Rows(rows, first, own), {1, count, memory.cols()}, shares));
    first += own;
  }
  return parts;
}

Array SplitOps::FromHost(const Tensor& x) {
  if (!IsTokens(x.shape())) return inner_->FromHost(x);
  Array array = New(x.shape());
  const int64_t begin = OwnBegin(array);
  std::copy_n(x.data() + begin * array.cols(), array.view.size(), array.view.data);
  return array;
}

Tensor SplitOps::ToHost(const Array& x) {
  if (!x.values) return inner_->ToHost(x);
  const Tensor own = inner_->ToHost(Local(x));
  return Gather(own.data(), x.shape, *SharesOf(x));
}

Array SplitOps::Rows(const Array& x, int64_t first, int64_t count) {
  const Shares* const shares = SharesOf(x);
  if (!shares) return inner_->Rows(x, first, count);
  auto cut = std::make_shared<Shares>();
  for (const int64_t end : shares->ends) cut->ends.push_back(std::clamp(end - first, int64_t{0}, count));
  const int rank = group_.rank();
  const int64_t skipped = std::max<int64_t>(0, first - shares->Begin(rank));
  const int64_t own = cut->Count(rank);
  // The first of no rows may lie behind the last one.
  return Split(inner_->Rows(Local(x), own == 0 ? 0 : skipped, own), {1, count, x.cols()}, cut);
}

Array SplitOps::Cols(const Array& x, int64_t first, int64_t count) {
  Shape shape = x.shape;
  shape.back() = count;
  return Split(inner_->Cols(Local(x), first, count), shape, std::static_pointer_cast<const Shares>(x.values));
}

// Every machine sends each of the others the rows that it is to have.
Array SplitOps::JoinRows(std::span<const Array> parts) {
  if (!parts.front().values) return inner_->JoinRows(parts);
  const Profile::Scope timed = Timed();
  int64_t rows = 0;
  for (const Array& part : parts) rows += part.dim(1);
  Array whole = New({1, rows, parts.front().cols()});
  const Shares& to = *SharesOf(whole);
  const int self = group_.rank();
  std::vector<machines::Group::Outgoing> outgoing;
  std::vector<machines::Group::Incoming> incoming;
  int64_t part_begin = 0;  // in the whole
  for (const Array& part : parts) {
    const Shares& from = *SharesOf(part);
    // The rows of machine `giver` that machine `taker` is to have: where they begin in the whole, and how
    // many.
    const auto common = [&](int giver, int taker) {
      const int64_t begin = std::max(part_begin + from.Begin(giver), to.Begin(taker));
      const int64_t end =
          std::min(part_begin + from.Begin(giver) + from.Count(giver), to.Begin(taker) + to.Count(taker));
      return std::pair(begin, std::max<int64_t>(0, end - begin));
    };
    const auto given = [&](int64_t begin, int64_t count) -> ConstView {
      return part.view.Rows(begin - part_begin - from.Begin(self), count);
    };
    const auto taken = [&](int64_t begin, int64_t count) {
      return whole.view.Rows(begin - to.Begin(self), count);
    };
    for (int other = 0; other < group_.size(); ++other) {
      const auto [out, out_count] = common(self, other);
      const auto [in, in_count] = common(other, self);
      if (other == self) {
        std::copy_n(given(out, out_count).data, out_count * whole.cols(), taken(in, in_count).data);
        continue;
      }
      if (out_count > 0) outgoing.push_back({other, BytesOf(given(out, out_count))});
      if (in_count > 0) incoming.push_back({other, BytesOf(taken(in, in_count))});
    }
    part_begin += part.dim(1);
  }
  group_.Exchange(outgoing, incoming);
  return whole;
}

Array SplitOps::Even(const Array& x) {
  if (!x.values || SharesOf(x)->ends == EvenShares(x.dim(1))->ends) return x;
  return JoinRows({&x, 1});
}

Array SplitOps::JoinCols(std::span<const Array> parts) {
  std::vector<Array> local;
  int64_t cols = 0;
  for (const Array& part : parts) {
    local.push_back(Local(part));
    cols += part.cols();
  }
  Shape shape = parts.front().shape;
  shape.back() = cols;
  return Split(inner_->JoinCols(local), shape, std::static_pointer_cast<const Shares>(parts.front().values));
}

Array SplitOps::Reshaped(const Array& x, const Shape& shape) {
  if (x.values) Fail(ErrorKind::kInternal, "rows of several machines cannot be seen as another shape");
  return inner_->Reshaped(x, shape);
}

Array SplitOps::Reordered(const Array& x, std::span<const int64_t> order, int64_t unit) {
  if (x.values) Fail(ErrorKind::kInternal, "rows of several machines cannot be put into another order");
  return inner_->Reordered(x, order, unit);
}

// As a share of an array with as many rows, which it is restored to.
Array SplitOps::Keep(const Array& x, Keeping keeping) {
  if (!x.values) return inner_->Keep(x, keeping);
  auto share = std::make_shared<KeptShare>();
  share->kept = inner_->Keep(Local(Even(x)), keeping);
  return {.shape = x.shape, .view = {}, .memory = nullptr, .values = std::move(share)};
}

void SplitOps::Restore(const Array& kept, Array& x) {
  if (!x.values) return inner_->Restore(kept, x);
  Array local = Local(x);
  inner_->Restore(static_cast<const KeptShare*>(kept.values.get())->kept, local);
}

Tensor SplitOps::Gather(const float* own, const Shape& whole, const Shares& shares) const {
  const Profile::Scope timed = Timed();
  Tensor all(whole);
  const int64_t row = whole[1] == 0 ? 0 : all.size() / whole[1];
  std::vector<std::span<std::byte>> parts;
  for (int rank = 0; rank < group_.size(); ++rank)
    parts.push_back(BytesOf(View(all.data() + shares.Begin(rank) * row, shares.Count(rank), row)));
  const auto self = static_cast<size_t>(group_.rank());
  std::copy_n(reinterpret_cast<const std::byte*>(own), parts[self].size(), parts[self].data());
  group_.Share(parts);
  return all;
}

void SplitOps::ShowWhole(const Tap& tap, std::string_view name, const Shape& whole, const Shares& shares,
                         float* own) const {
  Tensor all = Gather(own, whole, shares);
  tap(name, all);
  const int64_t row = whole[1] == 0 ? 0 : all.size() / whole[1];
  std::copy_n(all.data() + shares.Begin(group_.rank()) * row, shares.Count(group_.rank()) * row, own);
}

void SplitOps::Show(const Tap& tap, std::string_view name, Array& x) {
  if (!x.values) return inner_->Show(tap, name, x);
  if (!tap.Wants(name)) return;
  Array local = Local(x);
  const Listener listener(*this, tap, {{name, SharesOf(x)}});
  inner_->Show(listener.tap(), name, local);
}

void SplitOps::ShowJoint(const Tap& tap, const char* name, Joint& parts) const {
  if (!name || !tap.Wants(name)) return;
  int64_t rows = 0;
  for (const Array& part : parts) rows += part.dim(1);
  Tensor all({1, rows, parts.front().cols()});
  float* at = all.data();
  for (const Array& part : parts) {
    const Tensor whole = Gather(part.view.data, part.shape, *SharesOf(part));
    at = std::copy_n(whole.data(), whole.size(), at);
  }
  tap(name, all);
  const float* from = all.data();
  for (Array& part : parts) {
    std::copy_n(from + OwnBegin(part) * part.cols(), part.view.size(), part.view.data);
    from += ElementCount(part.shape);
  }
}

}  // namespace qwen_image::split
