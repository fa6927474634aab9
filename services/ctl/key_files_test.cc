#include "services/ctl/key_files.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

#include "services/common/curve.h"

namespace stria {
namespace {

namespace fs = std::filesystem;

std::string Read(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

fs::path Folder(const char* name) { return fs::path(testing::TempDir()) / name; }

TEST(KeyFiles, SecretAndPublicKeysBelongTogether) {
  const fs::path folder = Folder("keys");
  const auto text = WriteKeyFiles(folder, {"worker", "spare"});
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_NE(text->find("worker --curve-key-file " + (folder / "spare.key").string()), std::string::npos) << *text;
  const auto servers = PublicKeys::Parse(Read(folder / "servers.pub")), workers = PublicKeys::Parse(Read(folder / "workers.pub"));
  ASSERT_TRUE(servers.ok() && workers.ok());
  const std::pair<const PublicKeys*, const char*> owners[] = {
      {&*servers, "scheduler"}, {&*servers, "controller"}, {&*workers, "worker"}, {&*workers, "spare"}};
  for (const auto& [list, name] : owners) {
    const fs::path file = folder / (std::string(name) + ".key");
    EXPECT_EQ(fs::status(file).permissions(), fs::perms::owner_read | fs::perms::owner_write) << file;
    std::string secret = Read(file);
    ASSERT_EQ(secret.back(), '\n');
    secret.pop_back();
    const auto derived = PublicKeyOf(secret), listed = list->Of(name);
    ASSERT_TRUE(derived.ok() && listed.ok()) << name;
    EXPECT_EQ(*derived, *listed) << name;
  }
}

TEST(KeyFiles, NeverOverwritesAndNamesWhatIsWrong) {
  const fs::path folder = Folder("twice");
  ASSERT_TRUE(WriteKeyFiles(folder, {"worker"}).ok());
  const std::string before = Read(folder / "scheduler.key");
  const auto again = WriteKeyFiles(folder, {"worker"});
  EXPECT_TRUE(absl::IsInvalidArgument(again.status()));
  EXPECT_NE(again.status().message().find("scheduler.key"), std::string::npos) << again.status();
  EXPECT_EQ(Read(folder / "scheduler.key"), before);
  for (const char* bad : {"../up", "", "a b", "scheduler"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(WriteKeyFiles(Folder("bad"), {bad}).status())) << bad;
  }
  EXPECT_FALSE(fs::exists(Folder("bad")));
}

}  // namespace
}  // namespace stria
