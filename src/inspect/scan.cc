#include "inspect/scan.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <numeric>
#include <set>

#include "core/fail.h"

namespace qwen_image::inspect {
namespace {

// About 4 MB. A multiple of every group of packed weights (15 because of 3 and 5 bits), of every element and
// of a page.
constexpr size_t kChunkBytes = size_t{15} << 18;

struct Chunk {
  size_t component, tensor;  // their places
  size_t number;             // in its tensor
  std::span<const std::byte> bytes;
};

Checksum ChecksumOf(const void* data, size_t size) {
  const XXH128_hash_t hash = XXH3_128bits(data, size);
  return {hash.low64, hash.high64};
}

// In the order of the files, for disks that like it.
std::vector<Chunk> AllChunks(const std::vector<InspectedComponent>& components) {
  std::vector<Chunk> chunks;
  for (size_t c = 0; c < components.size(); ++c) {
    const std::vector<InspectedTensor>& tensors = components[c].tensors;
    std::vector<size_t> order(tensors.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return std::less<>()(tensors[a].stored->bytes.data(), tensors[b].stored->bytes.data());
    });
    for (const size_t t : order) {
      const std::span<const std::byte> bytes = tensors[t].stored->bytes;
      for (size_t at = 0; at < bytes.size(); at += kChunkBytes) {
        chunks.push_back(
            {c, t, at / kChunkBytes, bytes.subspan(at, std::min(kChunkBytes, bytes.size() - at))});
      }
    }
  }
  return chunks;
}

int64_t TotalBytes(const std::vector<Chunk>& chunks) {
  return std::accumulate(chunks.begin(), chunks.end(), int64_t{0}, [](int64_t sum, const Chunk& chunk) {
    return sum + static_cast<int64_t>(chunk.bytes.size());
  });
}

// The statistics of the values that lie in this chunk of stored bytes.
ValueStatistics Measure(const Chunk& chunk, const InspectedTensor& tensor) {
  const WeightTensor& weight = *tensor.weight;
  // Chunks end between groups of packed values, so the shares are whole numbers. In 128 bits: the product of
  // a hostile size might not fit.
  const auto first_value = [&](size_t byte) {
    return static_cast<int64_t>(static_cast<__int128>(byte) * weight.NumberCount() / tensor.bytes());
  };
  const int64_t begin = first_value(chunk.number * kChunkBytes);
  const int64_t end = first_value(chunk.number * kChunkBytes + chunk.bytes.size());
  ValueStatistics statistics;
  std::vector<double> block(WeightTensor::kMaxPiece);
  for (int64_t at = begin; at < end; at += WeightTensor::kMaxPiece) {
    const int64_t count = std::min(WeightTensor::kMaxPiece, end - at);
    weight.ReadNumbers(at, count, block.data());
    statistics.Add(block.data(), count);
  }
  weight.ReleasePages(begin, end - begin);
  return statistics;
}

class ReadOnlyFile {
 public:
  explicit ReadOnlyFile(const std::filesystem::path& path)
      : path_(path), fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (fd_ < 0) Fail(ErrorKind::kBadInput, "cannot open {} again: {}", path.string(), std::strerror(errno));
  }
  ~ReadOnlyFile() { close(fd_); }
  ReadOnlyFile(const ReadOnlyFile&) = delete;
  ReadOnlyFile& operator=(const ReadOnlyFile&) = delete;

  // From the disk, not from what the system kept in memory, where it lets us choose.
  void ReadFresh(int64_t offset, std::vector<std::byte>& to) const {
    posix_fadvise(fd_, offset, static_cast<off_t>(to.size()), POSIX_FADV_DONTNEED);
    for (size_t done = 0; done < to.size();) {
      const ssize_t got = pread(fd_, to.data() + done, to.size() - done, offset + static_cast<off_t>(done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        Fail(ErrorKind::kBadInput, "cannot read {} again: {}", path_.string(),
             got < 0 ? std::strerror(errno) : "it became shorter");
      }
      done += static_cast<size_t>(got);
    }
  }

 private:
  std::filesystem::path path_;
  int fd_;
};

}  // namespace

void ProgressCounter::Done(int64_t bytes) {
  context_.cancel.ThrowIfCancelled();
  const std::lock_guard lock(mutex_);
  done_ += bytes;
  if (context_.progress) context_.progress(done_, total_);
}

void ThrowIfDamaged(const std::vector<InspectedComponent>& components) {
  for (const InspectedComponent& component : components) {
    for (const auto& file : component.files) file->file().ThrowIfDamaged();
  }
}

void ScanTensors(std::vector<InspectedComponent>& components, const ScanContext& context) {
  const std::vector<Chunk> chunks = AllChunks(components);
  struct Result {
    Checksum checksum;
    ValueStatistics statistics;
  };
  std::vector<Result> results(chunks.size());
  ProgressCounter progress(context, TotalBytes(chunks));
  context.pool.ParallelFor(static_cast<int64_t>(chunks.size()), [&](int64_t i) {
    const Chunk& chunk = chunks[static_cast<size_t>(i)];
    const InspectedTensor& tensor = components[chunk.component].tensors[chunk.tensor];
    Result& result = results[static_cast<size_t>(i)];
    result.checksum = ChecksumOf(chunk.bytes.data(), chunk.bytes.size());
    if (tensor.has_numbers()) result.statistics = Measure(chunk, tensor);
    ReleasePages(chunk.bytes);
    progress.Done(static_cast<int64_t>(chunk.bytes.size()));
  });
  ThrowIfDamaged(components);
  for (InspectedComponent& component : components) {
    for (InspectedTensor& tensor : component.tensors) {
      if (tensor.has_numbers()) tensor.statistics = ValueStatistics();
    }
  }
  // Merged in order, so that the figures do not depend on the threads.
  for (size_t i = 0; i < chunks.size(); ++i) {
    InspectedTensor& tensor = components[chunks[i].component].tensors[chunks[i].tensor];
    tensor.chunks.push_back(results[i].checksum);
    if (tensor.statistics) tensor.statistics->Merge(results[i].statistics);
  }
  for (InspectedComponent& component : components) {
    for (InspectedTensor& tensor : component.tensors) {
      tensor.checksum = ChecksumOf(tensor.chunks.data(), tensor.chunks.size() * sizeof(Checksum));
    }
  }
}

SecondReading ReadAgain(const std::vector<InspectedComponent>& components, int64_t max_bytes,
                        const ScanContext& context) {
  std::map<const WeightFile*, ReadOnlyFile> files;
  for (const InspectedComponent& component : components) {
    for (const auto& file : component.files) files.try_emplace(file.get(), file->path());
  }
  std::vector<Chunk> chunks = AllChunks(components);
  SecondReading result{.total_bytes = TotalBytes(chunks)};
  // Every n-th chunk, so that all files have a share.
  const int64_t total = result.total_bytes;
  const auto step = static_cast<size_t>(total > max_bytes ? 1 + total / std::max(max_bytes, int64_t{1}) : 1);
  for (size_t i = 0; i * step < chunks.size(); ++i) chunks[i] = chunks[i * step];
  chunks.resize((chunks.size() + step - 1) / step);
  result.bytes = TotalBytes(chunks);

  ProgressCounter progress(context, result.bytes);
  std::vector<char> differs(chunks.size());
  context.pool.ParallelFor(static_cast<int64_t>(chunks.size()), [&](int64_t i) {
    const Chunk& chunk = chunks[static_cast<size_t>(i)];
    const InspectedTensor& tensor = components[chunk.component].tensors[chunk.tensor];
    std::vector<std::byte> bytes(chunk.bytes.size());
    files.at(tensor.file).ReadFresh(chunk.bytes.data() - tensor.file->file().bytes().data(), bytes);
    differs[static_cast<size_t>(i)] = ChecksumOf(bytes.data(), bytes.size()) != tensor.chunks[chunk.number];
    progress.Done(static_cast<int64_t>(bytes.size()));
  });
  std::set<std::string> names;
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (differs[i]) names.insert(components[chunks[i].component].tensors[chunks[i].tensor].name);
  }
  result.differences.assign(names.begin(), names.end());
  return result;
}

}  // namespace qwen_image::inspect
