#include "hub/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "files/testing.h"

namespace qwen_image::hub {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Variables = std::map<std::string, std::string>;

EnvironmentReader With(Variables variables) {
  return [variables = std::move(variables)](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end() || found->second.empty()) return std::nullopt;
    return found->second;
  };
}

TEST(HubEnvironment, WhereTheCacheIs) {
  Variables variables = {{"HOME", "/home/me"}};
  EXPECT_EQ(CacheFolder(With(variables)), "/home/me/.cache/huggingface/hub");
  variables["XDG_CACHE_HOME"] = "/xdg";
  EXPECT_EQ(CacheFolder(With(variables)), "/xdg/huggingface/hub");
  variables["HF_HOME"] = "~/hf";
  EXPECT_EQ(CacheFolder(With(variables)), "/home/me/hf/hub");
  variables["HUGGINGFACE_HUB_CACHE"] = "/old";
  EXPECT_EQ(CacheFolder(With(variables)), "/old");
  variables["HF_HUB_CACHE"] = "/cache";
  EXPECT_EQ(CacheFolder(With(variables)), "/cache");
  variables["HF_HUB_CACHE"] = "";
  EXPECT_EQ(CacheFolder(With(variables)), "/old");
  EXPECT_THAT(MessageOf(ErrorKind::kUsage, [] { CacheFolder(With({})); }), HasSubstr("HF_HOME"));
}

TEST(HubEnvironment, ServerAndToken) {
  const TempFolder home;
  Variables variables = {{"HF_HOME", home.path().string()}};
  EXPECT_EQ(ServerFrom(With(variables)).endpoint, "https://huggingface.co");
  EXPECT_EQ(ServerFrom(With(variables)).token, "");
  home.Write("token", "hf_from_file\n");
  EXPECT_EQ(ServerFrom(With(variables)).token, "hf_from_file");
  variables["HF_TOKEN_PATH"] = home.Write("elsewhere", " hf_elsewhere ").string();
  EXPECT_EQ(ServerFrom(With(variables)).token, "hf_elsewhere");
  variables["HF_TOKEN"] = "hf_abc\r\n";
  variables["HF_ENDPOINT"] = "https://mirror.example/";
  EXPECT_EQ(ServerFrom(With(variables)).token, "hf_abc");
  EXPECT_EQ(ServerFrom(With(variables)).endpoint, "https://mirror.example");
}

TEST(HubEnvironment, RefusesWhatCannotBeMeant) {
  const Variables home = {{"HOME", "/nowhere"}};
  const auto message = [&](const char* name, const char* value) {
    Variables variables = home;
    variables[name] = value;
    return MessageOf(ErrorKind::kUsage, [&] { ServerFrom(With(variables)); });
  };
  EXPECT_THAT(message("HF_ENDPOINT", "file:///etc"), HasSubstr("HF_ENDPOINT"));
  EXPECT_THAT(message("HF_ENDPOINT", "huggingface.co"), HasSubstr("https://"));
  EXPECT_THAT(message("HF_HUB_OFFLINE", "1"), HasSubstr("HF_HUB_OFFLINE"));
  EXPECT_THAT(message("HF_HUB_OFFLINE", "true"), HasSubstr("HF_HUB_OFFLINE"));
  // It must not end up in a log.
  EXPECT_THAT(message("HF_TOKEN", "hf_abc\r\nX-Evil: 1"), Not(HasSubstr("hf_abc")));
}

}  // namespace
}  // namespace qwen_image::hub
