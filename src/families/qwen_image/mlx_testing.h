// What the tests of both both share: a pass on the host is recorded, the same pass on MLX compared with it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/checkpoint.h"
#include "files/testing.h"
#include "mlx/backend.h"

namespace qwen_image {

namespace fs = std::filesystem;
inline const fs::path kSource = QWEN_IMAGE_SOURCE_DIR;
inline const fs::path kGoldens = kSource / "tests/goldens";

// NMSE of an operation alone, whose inputs are the host's; and of a whole pass.
inline constexpr double kIsolated = 1e-10, kWhole = 1e-8;

inline Tensor RandomTensor(const Shape& shape, unsigned seed, float scale = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  Tensor tensor(shape);
  for (int64_t i = 0; i < tensor.size(); ++i) tensor[i] = normal(random);
  return tensor;
}

inline bool SameBits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && std::memcmp(a.data(), b.data(), static_cast<size_t>(a.size()) * 4) == 0;
}

// Σ (got − want)² ≤ limit · Σ want²; NaN is not.
inline ::testing::AssertionResult Near(const float* got, const Tensor& want, double limit) {
  double error = 0, power = 0;
  for (int64_t i = 0; i < want.size(); ++i) {
    error += std::pow(static_cast<double>(got[i]) - want[i], 2);
    power += std::pow(static_cast<double>(want[i]), 2);
  }
  if (error <= limit * power) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "NMSE " << error / power << " is above " << limit;
}
inline ::testing::AssertionResult Near(const Tensor& got, const Tensor& want, double limit) {
  if (got.shape() != want.shape()) return ::testing::AssertionFailure() << "the shapes differ";
  return Near(got.data(), want, limit);
}

class Recording : public CheckpointSink {
 public:
  bool Wants(std::string_view) const override { return true; }
  void OnCheckpoint(const std::string& name, const CheckpointView& view) override {
    Tensor tensor(view.shape);
    std::copy_n(std::get<float*>(view.data), tensor.size(), tensor.data());
    EXPECT_TRUE(tensors.emplace(name, std::move(tensor)).second) << name << " comes twice";
  }

  std::map<std::string, Tensor> tensors;
};

// Compares every checkpoint with the recorded one, then puts that in its place: so each error is the
// operation's own.
class Comparison : public CheckpointSink {
 public:
  explicit Comparison(const Recording& recording) : recording_(recording) {}
  ~Comparison() override {
    for (const auto& [name, tensor] : recording_.tensors)
      EXPECT_TRUE(seen_.contains(name)) << name << " is missing";
  }

  bool Wants(std::string_view) const override { return true; }
  void OnCheckpoint(const std::string& name, const CheckpointView& view) override {
    EXPECT_TRUE(seen_.insert(name).second) << name << " comes twice";
    const auto found = recording_.tensors.find(name);
    ASSERT_TRUE(found != recording_.tensors.end()) << name << " is not the host's";
    const Tensor& want = found->second;
    ASSERT_EQ(view.shape, want.shape()) << name;
    float* const got = std::get<float*>(view.data);
    EXPECT_TRUE(Near(got, want, kIsolated)) << name;
    std::copy_n(want.data(), want.size(), got);
  }

 private:
  const Recording& recording_;
  std::set<std::string> seen_;
};

// Changes one checkpoint, as a user may.
class Meddler : public CheckpointSink {
 public:
  explicit Meddler(std::string name) : name_(std::move(name)) {}
  bool Wants(std::string_view name) const override { return name == name_; }
  void OnCheckpoint(const std::string&, const CheckpointView& view) override {
    float* const data = std::get<float*>(view.data);
    for (int64_t i = 0; i < ElementCount(view.shape); ++i) data[i] += 0.1f * static_cast<float>(i % 7 - 2);
  }

 private:
  const std::string name_;
};

// The published model's stream reaches ±4.5e7, where numbers of bfloat16 lie 262,144 apart and those of
// float32 4. Makes the stream so huge after one layer, and looks what is left of it after the next.
class HugeStream : public CheckpointSink {
 public:
  HugeStream(std::string from, std::string to) : from_(std::move(from)), to_(std::move(to)) {}
  ~HugeStream() override {
    EXPECT_GE(largest_change_, 0) << to_ << " was not seen";
    EXPECT_LT(largest_change_, 1000);
  }
  bool Wants(std::string_view name) const override { return name == from_ || name == to_; }
  void OnCheckpoint(const std::string& name, const CheckpointView& view) override {
    float* const data = std::get<float*>(view.data);
    for (int64_t i = 0; i < ElementCount(view.shape); ++i) {
      const float huge = (i % 2 == 0 ? 4.5e7f : -4.5e7f) + static_cast<float>(4 * (i % 1000));
      if (name == from_) {
        data[i] = huge;
      } else {
        largest_change_ = std::max(largest_change_, std::abs(data[i] - huge));
      }
    }
  }

 private:
  const std::string from_, to_;
  float largest_change_ = -1;
};

// One pass of a component: what it returns.
template <typename Component>
using Pass = std::function<Tensor(const Component&, const Compute&, CheckpointSink*)>;

template <typename Component>
Tensor RunPass(const Pass<Component>& pass, const Component& component, CheckpointSink* sink = nullptr) {
  ThreadPool pool(2);
  const CancelFlag never;
  return pass(component, {pool, never}, sink);
}

// Every operation alone, and all of them. Returns the names of the checkpoints.
template <typename Component>
std::vector<std::string> ExpectAlike(const Component& host, const Component& on_mlx,
                                     const Pass<Component>& pass) {
  Recording recording;
  const Tensor want = RunPass(pass, host, &recording);
  {
    Comparison comparison(recording);
    EXPECT_TRUE(Near(RunPass(pass, on_mlx, &comparison), want, kIsolated)) << "after the last checkpoint";
  }
  EXPECT_TRUE(Near(RunPass(pass, on_mlx), want, kWhole)) << "the whole pass";
  std::vector<std::string> names;
  for (const auto& [name, tensor] : recording.tensors) names.push_back(name);
  return names;
}

// Whoever changes a tensor on the way changes both results, and in the same way.
template <typename Component>
void ExpectMeddlingAlike(const Component& host, const Component& on_mlx, const Pass<Component>& pass,
                         const std::vector<std::string>& names) {
  const Tensor plain = RunPass(pass, host), plain_on_mlx = RunPass(pass, on_mlx);
  size_t heard = 0;
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    Meddler meddler(name);
    const Tensor want = RunPass(pass, host, &meddler);
    const Tensor got = RunPass(pass, on_mlx, &meddler);
    EXPECT_TRUE(Near(got, want, kWhole));
    // Some are shown beside what is computed, and of a last block's text nothing is used.
    const bool changed = !SameBits(want, plain);
    EXPECT_EQ(!SameBits(got, plain_on_mlx), changed);
    heard += changed;
  }
  EXPECT_GT(heard, names.size() * 3 / 4);
}

// The same progress; a request to stop is heard at the next part; no trace of it stays.
template <typename Component>
void ExpectProgressAndCancel(const Component& host, const Component& on_mlx, const Pass<Component>& pass) {
  ThreadPool pool(2);
  const auto progress_of = [&](const Component& component) {
    const CancelFlag never;
    std::vector<double> progress;
    pass(component, {pool, never, [&](double fraction) { progress.push_back(fraction); }}, nullptr);
    return progress;
  };
  const std::vector<double> progress = progress_of(host);
  EXPECT_EQ(progress_of(on_mlx), progress);
  EXPECT_GE(progress.size(), 2u);
  const Tensor before = RunPass(pass, on_mlx);
  for (size_t stop = 1; stop < progress.size(); ++stop) {
    CancelFlag cancel;
    size_t parts = 0;
    const auto on_progress = [&](double) {
      if (++parts == stop) cancel.Cancel();
    };
    MessageOf(ErrorKind::kInterrupted, [&] { pass(on_mlx, {pool, cancel, on_progress}, nullptr); });
    EXPECT_EQ(parts, stop);
  }
  EXPECT_TRUE(SameBits(RunPass(pass, on_mlx), before));
}

// After its copy of the weights is gone, and on another thread than the first.
template <typename Component>
void ExpectSameBitsAgain(const Component& on_mlx, const Pass<Component>& pass) {
  const Tensor first = RunPass(pass, on_mlx);
  EXPECT_TRUE(SameBits(RunPass(pass, on_mlx), first)) << "with the weights that are there";
  on_mlx.ReleasePages();
  EXPECT_TRUE(SameBits(RunPass(pass, on_mlx), first)) << "with weights copied anew";
  Tensor elsewhere;
  std::thread([&] { elsewhere = RunPass(pass, on_mlx); }).join();
  EXPECT_TRUE(SameBits(elsewhere, first)) << "on another thread";
  on_mlx.ReleasePages();
  std::thread([&] { elsewhere = RunPass(pass, on_mlx); }).join();
  EXPECT_TRUE(SameBits(elsewhere, first)) << "on another thread that copies the weights";
  EXPECT_TRUE(SameBits(RunPass(pass, on_mlx), first)) << "with weights that another thread copied";
}

// A file or folder of tests/goldens/formats with the config it lacks.
class ForeignModel {
 public:
  ForeignModel(const std::string& file, const std::string& config) {
    const fs::path from = kGoldens / "formats" / file;
    const bool folder = fs::is_directory(from);
    path_ = folder ? folder_.path() : folder_.path() / from.filename();
    fs::copy(from, path_, fs::copy_options::recursive);
    fs::copy(kGoldens / "formats/configs" / config / "config.json", folder_.path() / "config.json");
  }
  const fs::path& path() const { return path_; }

 private:
  const TempFolder folder_;
  fs::path path_;
};

inline const on_mlx::Placement kOnMlxCpu{on_mlx::mx::Device::cpu};

}  // namespace qwen_image
