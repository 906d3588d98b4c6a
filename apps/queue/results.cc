#include "queue/results.h"

#include "core/fail.h"
#include "files/folder.h"
#include "files/mmap.h"
#include "files/output_file.h"
#include "queue/job_message.h"
#include "qwen_image/image_file.h"

namespace qwen_image::queue {
namespace {

// More than the largest picture that a request may ask for takes as PNG.
constexpr size_t kMaxPictureBytes = 128 << 20;

// What lies in a shared place may be anybody's.
bool IsPicture(const std::string& bytes, const std::string& name) {
  try {
    DecodeImage(bytes, name);
    return true;
  } catch (const Error&) {
    return false;
  }
}

class FolderResults : public Results {
 public:
  explicit FolderResults(std::filesystem::path folder) : folder_(std::move(folder)) {
    std::error_code error;
    std::filesystem::create_directories(folder_, error);  // if that fails, this says why:
    CheckWritable(folder_ / "probe");
  }

  void Keep(const std::string& name, const std::string& png) override {
    if (Read(name)) return;
    OutputFile file(folder_ / name);
    file.Write(png.data(), png.size());
    file.Sync();
    file.Commit();
  }

  std::optional<std::string> Read(const std::string& name) override {
    if (!Exists(folder_ / name)) return std::nullopt;
    try {
      const MappedFile file(folder_ / name);
      if (file.text().size() > kMaxPictureBytes) return std::nullopt;
      std::string bytes(file.text());
      if (IsPicture(bytes, name)) return bytes;
    } catch (const Error&) {  // somebody removed it
    }
    return std::nullopt;
  }

  const char* kind() const override { return kInFolder; }
  std::string where() const override { return folder_.string(); }

 private:
  const std::filesystem::path folder_;
};

class ObjectResults : public Results {
 public:
  explicit ObjectResults(ObjectStore& objects) : objects_(objects) {}

  void Keep(const std::string& name, const std::string& png) override { objects_.Put(name, png); }

  std::optional<std::string> Read(const std::string& name) override {
    std::optional<std::string> bytes = objects_.Get(name, kMaxPictureBytes);
    if (bytes && !IsPicture(*bytes, name))
      Fail(ErrorKind::kBadInput, "{} in the object store is no picture", name);
    return bytes;
  }

  const char* kind() const override { return kInObjects; }
  std::string where() const override { return "the object store of the NATS server"; }

 private:
  ObjectStore& objects_;
};

}  // namespace

std::unique_ptr<Results> OpenResults(const std::filesystem::path& folder, ObjectStore& objects) {
  if (folder.empty()) return std::make_unique<ObjectResults>(objects);
  return std::make_unique<FolderResults>(folder);
}

}  // namespace qwen_image::queue
