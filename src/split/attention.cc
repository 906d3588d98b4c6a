// Attention: each machine gets all tokens of its heads, and gives back what belongs to others' tokens.
#include <algorithm>

#include "core/fail.h"
#include "split/bytes.h"
#include "split/listener.h"
#include "split/split_ops.h"

namespace qwen_image::split {
namespace {

using machines::Cut;
using machines::Group;

int64_t TokensOf(const Joint& parts) {
  int64_t tokens = 0;
  for (const Array& part : parts) tokens += part.dim(1);
  return tokens;
}

void Copy(ConstView from, View to) {
  for (int64_t i = 0; i < from.rows; ++i) std::copy_n(from.row(i), from.cols, to.row(i));
}

}  // namespace

// The way of one attention's numbers from tokens to heads and back.
class SplitOps::HeadsMoved {
 public:
  // Machines have as many heads of keys and values as they can share out evenly, and the queries of these.
  HeadsMoved(SplitOps& ops, const AttentionInput& input)
      : ops_(ops),
        group_(ops.group_),
        kv_heads_{input.kv_heads, group_.size()},
        kv_cols_(input.head_dim),
        q_cols_(input.head_dim * (input.heads / input.kv_heads)) {
    if (ops_.heads_.size() < 4) ops_.heads_.resize(4);
  }

  int64_t own_kv_heads() const { return kv_heads_.Count(group_.rank()); }

  // Which of the arrays that are kept.
  enum Place { kQuery, kKey, kValue, kOutput };

  // Makes room for this machine's heads of all of its tokens.
  View Heads(Place place, const Joint& parts) {
    const int64_t tokens = TokensOf(parts), cols = own_kv_heads() * ColsOf(place);
    Array& memory = ops_.heads_[place];
    if (!memory.memory || memory.memory->size() < tokens * cols) {
      memory = {};  // give the old memory back first
      memory = ops_.inner_->New({1, tokens, std::max<int64_t>(cols, 1)});
    }
    return {memory.memory->data(), tokens, cols};
  }

  // Queries, keys and values from their tokens' machines.
  void Bring(std::span<const Joint* const> inputs, std::span<const View> heads) {
    BeginMessages(inputs);
    const int self = group_.rank();
    for (size_t i = 0; i < inputs.size(); ++i) {
      const auto place = static_cast<Place>(i);
      int64_t first = 0;  // token of the part
      for (const Array& part : *inputs[i]) {
        const Shares& shares = *SharesOf(part);
        for (int other = 0; other < group_.size(); ++other) {
          const View to = heads[i].Rows(first + shares.Begin(other), shares.Count(other));
          const ConstView own = HeadsOf(part.view, place, other);
          if (other == self) {
            Copy(own, to);
          } else {
            Send(other, own);
            Receive(other, to);
          }
        }
        first += part.dim(1);
      }
    }
    group_.Exchange(outgoing_, incoming_);
  }

  // Results to their tokens' machines.
  void GiveBack(View heads, Joint& out) {
    BeginMessages({});
    const int self = group_.rank();
    std::vector<std::pair<ConstView, View>> arrived;
    int64_t first = 0;
    for (Array& part : out) {
      const Shares& shares = *SharesOf(part);
      for (int other = 0; other < group_.size(); ++other) {
        const View own = heads.Rows(first + shares.Begin(other), shares.Count(other));
        const View to = HeadsOf(part.view, kOutput, other);
        if (other == self) {
          Copy(own, to);
          continue;
        }
        if (own.size() > 0) outgoing_.push_back({other, BytesOf(own)});
        const View message = Message(to.rows, to.cols);
        Receive(other, message);
        arrived.emplace_back(message, to);
      }
      first += part.dim(1);
    }
    group_.Exchange(outgoing_, incoming_);
    for (const auto& [message, to] : arrived) Copy(message, to);
  }

 private:
  int64_t ColsOf(Place place) const { return place == kKey || place == kValue ? kv_cols_ : q_cols_; }
  // Of a row of all heads those of one machine.
  template <typename Rows>
  Rows HeadsOf(Rows rows, Place place, int rank) const {
    return rows.Cols(kv_heads_.Begin(rank) * ColsOf(place), kv_heads_.Count(rank) * ColsOf(place));
  }

  // All that this machine sends, or receives to put it between other heads, has room in one tensor: never
  // more than its own rows of what is sent, or of the result.
  void BeginMessages(std::span<const Joint* const> inputs) {
    outgoing_.clear();
    incoming_.clear();
    used_ = 0;
    int64_t floats = 0;
    for (const Joint* input : inputs)
      for (const Array& part : *input) floats += part.view.rows * part.cols();
    if (ops_.messages_.size() >= floats) return;
    ops_.messages_ = Tensor();  // give the old memory back first
    ops_.messages_ = Tensor({floats});
  }
  View Message(int64_t rows, int64_t cols) {
    if (used_ + rows * cols > ops_.messages_.size())
      Fail(ErrorKind::kInternal, "a message between machines has no room");
    const View message(ops_.messages_.data() + used_, rows, cols);
    used_ += rows * cols;
    return message;
  }
  void Send(int to, ConstView rows) {
    if (rows.size() == 0) return;
    const View message = Message(rows.rows, rows.cols);
    Copy(rows, message);
    outgoing_.push_back({to, BytesOf(message)});
  }
  void Receive(int from, View rows) {
    if (rows.size() > 0) incoming_.push_back({from, BytesOf(rows)});
  }

  SplitOps& ops_;
  const Group& group_;
  const Cut kv_heads_;
  const int64_t kv_cols_, q_cols_;  // for one head of keys and values
  std::vector<Group::Outgoing> outgoing_;
  std::vector<Group::Incoming> incoming_;
  int64_t used_ = 0;  // of the messages
};

void SplitOps::Attend(const AttentionInput& input, Joint& out, const Tap& tap) {
  HeadsMoved moved(*this, input);
  const View q = moved.Heads(HeadsMoved::kQuery, *input.q), k = moved.Heads(HeadsMoved::kKey, *input.k),
             v = moved.Heads(HeadsMoved::kValue, *input.v), output = moved.Heads(HeadsMoved::kOutput, out);
  {
    const Profile::Scope timed = Timed();
    moved.Bring(std::array{input.q, input.k, input.v}, std::array{q, k, v});
  }
  const auto whole = [](View view) {
    return Joint{{.shape = {1, view.rows, view.cols}, .view = view, .memory = nullptr, .values = nullptr}};
  };
  const Joint queries = whole(q), keys = whole(k), values = whole(v);
  Joint results = whole(output);
  AttentionInput local = input;
  local.q = &queries;
  local.k = &keys;
  local.v = &values;
  const int64_t together = input.heads / input.kv_heads;
  local.kv_heads = moved.own_kv_heads();
  local.heads = together * local.kv_heads;
  local.output = nullptr;  // shown below, when all have it
  const SharesPtr heads = EvenShares(input.kv_heads);
  Shares of_queries = *heads;
  for (int64_t& end : of_queries.ends) end *= together;
  const Listener listener(
      *this, tap,
      {{input.weights ? std::string_view(input.weights) : std::string_view(), &of_queries, true},
       {input.entropy ? std::string_view(input.entropy) : std::string_view(), &of_queries, true}});
  if (local.heads > 0 || listener.tap()) inner_->Attend(local, results, listener.tap());
  {
    const Profile::Scope timed = Timed();
    moved.GiveBack(output, out);
  }
  ShowJoint(tap, input.output, out);
}

}  // namespace qwen_image::split
