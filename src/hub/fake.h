// Speaks the routes of Hugging Face that a download needs, for one repository: the list of files, the files,
// and, on a second server, the contents of the large ones.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "hub/test_server.h"

namespace qwen_image::hub {

class FakeHub {
 public:
  explicit FakeHub(std::string repo = "owner/model");

  // `large`: stored with Git LFS, named by its sha256, and fetched from the other server.
  void Add(const std::string& path, const std::string& bytes, bool large = false);

  std::string endpoint() const { return hub_.url(); }
  const std::string& commit() const { return commit_; }
  std::string HashOf(const std::string& path) const { return files_.at(path).hash; }

  // Requests of both servers whose path contains `part`.
  std::vector<TestRequest> Requests(const std::string& part) const;

  // May change any answer of both servers; one call at a time.
  std::function<void(const TestRequest&, TestResponse&)> fault;
  std::string required_token;  // without it, every request to the first server is refused
  std::string revision = "main";
  bool lists_hashes = true;         // else only the headers of the files tell
  std::vector<std::string> copies;  // other repositories that have the same files

 private:
  struct File {
    std::string bytes, hash;
    bool large = false;
  };
  TestResponse AnswerHub(const TestRequest& request);
  TestResponse AnswerRepo(const TestRequest& request, const std::string& repo) const;
  TestResponse AnswerStore(const TestRequest& request);
  void Misbehave(const TestRequest& request, TestResponse& answer);
  TestResponse Listing() const;
  TestResponse FileAnswer(const TestRequest& request, const File& file) const;

  std::string repo_;
  std::string commit_ = "0123456789abcdef0123456789abcdef01234567";
  std::map<std::string, File> files_;
  std::mutex fault_mutex_;
  TestServer store_, hub_;  // last: their threads use all of the above
};

}  // namespace qwen_image::hub
