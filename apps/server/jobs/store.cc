#include "server/jobs/store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <set>

#include "core/fail.h"
#include "files/json.h"
#include "files/mmap.h"
#include "files/output_file.h"
#include "files/png.h"
#include "files/random_hex.h"
#include "files/text.h"
#include "options/field.h"
#include "options/json_form.h"
#include "weights/config_reader.h"

namespace qwen_image::jobs {
namespace {

namespace fs = std::filesystem;

constexpr size_t kIdDigits = 32;
constexpr size_t kMaxRecordBytes = 4 << 20;
constexpr size_t kMaxPictures = 10000;  // of one job; more than any limit of a request
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

constexpr std::pair<ErrorKind, const char*> kErrorNames[] = {
    {ErrorKind::kUsage, "usage"},
    {ErrorKind::kBadInput, "bad input"},
    {ErrorKind::kOutOfMemory, "out of memory"},
    {ErrorKind::kCannotWrite, "cannot write"},
    {ErrorKind::kInterrupted, "interrupted"},
    {ErrorKind::kMachine, "machine"},
    {ErrorKind::kInternal, "internal"},
};

State ParseState(const std::string& name, const std::string& where) {
  for (const State state : kStates) {
    if (name == Name(state)) return state;
  }
  Fail(ErrorKind::kBadInput, "{}: {} is not the state of a job", where, Quoted(name));
}

uint64_t Seed(const Json& object, const std::string& where) {
  const auto seed = object.find("seed");
  if (seed == object.end() || !seed->is_number_unsigned())
    Fail(ErrorKind::kBadInput, "{}: \"seed\" is not a whole number from 0 to 2^64 - 1", where);
  return seed->get<uint64_t>();
}

const Json& Array(const Json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array() || found->size() > kMaxPictures)
    Fail(ErrorKind::kBadInput, "{}: \"{}\" is not a list, or is too long", where, key);
  return *found;
}

// A size or a number of steps that was not known yet. Version 0.1 wrote 0.
bool IsUnknown(const options::Field& field, const Json& value) {
  return value.is_null() ||
         (std::holds_alternative<std::optional<int64_t> GenerateRequest::*>(field.member) && value == 0);
}

// The settings that StoredJobText wrote. What an older version did not write keeps its default.
GenerateRequest ParseSettings(const Json& json, const std::string& where) {
  GenerateRequest settings;
  for (const options::Field& field : options::Fields()) {
    if (options::IsData(field) || field.not_in.http) continue;
    const auto found = json.find(field.name);
    if (found == json.end() || IsUnknown(field, *found)) {
      const bool optional = options::ToJson(field, settings).is_null();
      if (field.recorded == options::Recorded::kRequired && !optional)
        Fail(ErrorKind::kBadInput, "{}: \"{}\" is missing", where, field.name);
      continue;
    }
    const std::string allowed = options::SetFromJson(field, *found, {}, settings);
    if (!allowed.empty()) Fail(ErrorKind::kBadInput, "{}: \"{}\" must be {}", where, field.name, allowed);
  }
  return settings;
}

// The id in "ID.json", "ID-3.png", ".ID.json.tmp-7-1"; empty: the file is none of ours.
std::string IdIn(std::string_view name) {
  if (name.starts_with('.')) name.remove_prefix(1);
  const std::string_view id = name.substr(0, kIdDigits);
  return IsJobId(id) ? std::string(id) : "";
}

bool IsTemporary(std::string_view name) { return name.starts_with('.') && name.find(".tmp-") != name.npos; }

bool IsPicture(std::string_view name) {
  return name.size() > kIdDigits && name[kIdDigits] == '-' && name.ends_with(".png");
}

}  // namespace

std::string NewJobId() { return RandomHex(kIdDigits); }

bool IsJobId(std::string_view text) {
  return text.size() == kIdDigits && text.find_first_not_of("0123456789abcdef") == text.npos;
}

std::string StoredJobText(const Job& job) {
  Json json = {{"id", job.id},
               {"state", Name(job.state)},
               {"created", job.created},
               {"started", job.started},
               {"finished", job.finished},
               {"count", job.count},
               {"input_images", job.input_images},
               {"has_init_image", job.has_init_image},
               {"has_mask", job.has_mask},
               {"images", Json::array()},
               {"notes", job.notes},
               {"error", job.error}};
  for (const options::Field& field : options::Fields()) {
    const bool left_out =
        options::IsData(field) || field.not_in.http ||
        (field.recorded == options::Recorded::kIfSet && options::IsDefault(field, job.settings));
    if (!left_out) json[field.name] = options::ToJson(field, job.settings);
  }
  for (const JobImage& image : job.images) {
    json["images"].push_back({{"width", image.width}, {"height", image.height}, {"seed", image.seed}});
    if (image.channels == 4) json["images"].back()["alpha"] = true;
  }
  for (const auto& [kind, name] : kErrorNames) {
    if (kind == job.error_kind) json["error_kind"] = name;
  }
  return json.dump(1, ' ', false, Json::error_handler_t::replace);
}

Job ParseStoredJob(std::string_view text, const std::string& where) {
  const Json json = ParseJson(text, where);
  const ConfigReader reader(json, where);
  Job job{.id = reader.String("id", ""),
          .state = ParseState(reader.String("state", ""), where),
          .created = reader.Int("created", 0, kMax),
          .started = reader.Int("started", 0, kMax),
          .finished = reader.Int("finished", 0, kMax),
          .settings = ParseSettings(json, where),
          .count = reader.Int("count", 1, kMaxPictures),
          .input_images = reader.Int("input_images", 0, kMax),
          .has_init_image = reader.Bool("has_init_image", false),
          .has_mask = reader.Bool("has_mask", false),
          .error = reader.String("error", "")};
  if (!IsJobId(job.id)) Fail(ErrorKind::kBadInput, "{}: {} is not the id of a job", where, Quoted(job.id));
  for (const Json& image : Array(json, "images", where)) {
    const ConfigReader size(image, where + ": images");
    job.images.push_back({size.Int("width", 1, kMax), size.Int("height", 1, kMax), Seed(image, where),
                          size.Bool("alpha", false) ? 4 : 3});
  }
  for (const Json& note : Array(json, "notes", where)) {
    if (!note.is_string()) Fail(ErrorKind::kBadInput, "{}: a note is not a text", where);
    job.notes.push_back(note.get<std::string>());
  }
  const std::string kind = reader.String("error_kind", "internal");
  for (const auto& [value, name] : kErrorNames) {
    if (kind == name) job.error_kind = value;
  }
  return job;
}

Store::Store(fs::path folder) : folder_(std::move(folder)) {
  std::error_code error;
  if (!fs::is_directory(folder_, error)) {
    if (folder_.has_parent_path()) fs::create_directories(folder_.parent_path(), error);
    // Other users of the machine must not see prompts and pictures.
    if (mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST)
      Fail(ErrorKind::kCannotWrite, "cannot make the folder {} for jobs: {}", folder_.string(),
           std::strerror(errno));
  }
  CheckWritable(folder_ / "probe");
  const fs::path lock = folder_ / "lock";
  lock_ = open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (lock_ < 0) Fail(ErrorKind::kCannotWrite, "cannot open {}: {}", lock.string(), std::strerror(errno));
  if (flock(lock_, LOCK_EX | LOCK_NB) == 0) return;
  const int reason = errno;
  close(lock_);
  if (reason == EWOULDBLOCK)
    Fail(ErrorKind::kCannotWrite,
         "another server keeps its jobs in {}; stop it, or choose another folder with --jobs-dir",
         folder_.string());
  Fail(ErrorKind::kCannotWrite, "cannot lock {}: {}", lock.string(), std::strerror(reason));
}

Store::~Store() { close(lock_); }

Store::Contents Store::Load() const {
  Contents contents;
  std::vector<std::string> names;
  std::set<std::string> with_record;
  std::error_code error;
  for (fs::directory_iterator at(folder_, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    std::error_code unreadable;
    if (IdIn(name).empty() || !fs::is_regular_file(at->symlink_status(unreadable))) continue;
    // A folder that was made by others may let everybody in.
    fs::permissions(at->path(), fs::perms::owner_read | fs::perms::owner_write, unreadable);
    names.push_back(name);
    if (name == IdIn(name) + ".json") with_record.insert(IdIn(name));
  }
  for (const std::string& name : names) {
    const std::string id = IdIn(name);
    if (IsTemporary(name) || (IsPicture(name) && !with_record.contains(id))) {
      fs::remove(folder_ / name, error);
    } else if (name == id + ".json") {
      try {
        const MappedFile file(folder_ / name);
        if (file.text().size() > kMaxRecordBytes)
          Fail(ErrorKind::kBadInput, "{}: too large for a job", file.path().string());
        Job job = ParseStoredJob(file.text(), file.path().string());
        if (job.id != id)
          Fail(ErrorKind::kBadInput, "{}: it is the record of another job, {}", file.path().string(), job.id);
        contents.jobs.push_back(std::move(job));
      } catch (const Error& problem) {
        contents.problems.push_back(problem.message());
      }
    }
  }
  std::sort(contents.jobs.begin(), contents.jobs.end(),
            [](const Job& a, const Job& b) { return std::tie(a.created, a.id) < std::tie(b.created, b.id); });
  return contents;
}

// Others read why a job was not kept; where it would have been is not for them to know.
void Store::WriteFile(const fs::path& path, std::string_view bytes, bool sync) const {
  try {
    OutputFile file(path, OutputFile::Folder::kOwn);
    file.Write(bytes.data(), bytes.size());
    if (sync) file.Sync();
    file.Commit();
  } catch (const Error& error) {
    constexpr std::string_view kShown = "<jobs-dir>";
    const std::string folder = folder_.string();
    std::string message = error.message();
    for (size_t at = 0; (at = message.find(folder, at)) != message.npos; at += kShown.size())
      message.replace(at, folder.size(), kShown);
    throw Error(error.kind(), message);
  }
}

void Store::Write(const Job& job) const {
  WriteFile(RecordPath(job.id), StoredJobText(job), HasEnded(job.state));
}

void Store::WritePicture(const std::string& id, int64_t index, const Image& image,
                         const std::map<std::string, std::string>& text) const {
  WritePng(id, index, EncodePng(image, text));
}

void Store::WritePng(const std::string& id, int64_t index, std::string_view png) const {
  WriteFile(PicturePath(id, index), png, false);
}

std::optional<std::string> Store::ReadPicture(const std::string& id, int64_t index) const {
  try {
    return std::string(MappedFile(PicturePath(id, index)).text());
  } catch (const Error&) {
    return std::nullopt;  // somebody removed it
  }
}

void Store::Remove(const std::string& id, int64_t pictures) const {
  std::error_code ignored;
  fs::remove(RecordPath(id), ignored);
  for (int64_t i = 0; i < pictures; ++i) fs::remove(PicturePath(id, i), ignored);
}

fs::path Store::RecordPath(const std::string& id) const { return folder_ / (id + ".json"); }

fs::path Store::PicturePath(const std::string& id, int64_t index) const {
  return folder_ / fmt::format("{}-{}.png", id, index);
}

}  // namespace qwen_image::jobs
