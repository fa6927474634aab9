#include "services/ctl/key_files.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "services/common/curve.h"

namespace stria {
namespace {

absl::Status Write(const std::filesystem::path& path, const std::string& text, int mode) {
  const auto failed = [&] { return absl::InvalidArgumentError(absl::StrCat(path.string(), ": ", std::strerror(errno))); };
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (fd < 0) return failed();
  const bool written = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const bool closed = close(fd) == 0;
  return written && closed ? absl::OkStatus() : failed();
}

bool IsName(const std::string& name) {
  const auto sound = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.'; };
  return !name.empty() && std::isalnum(static_cast<unsigned char>(name[0])) && std::all_of(name.begin(), name.end(), sound);
}

}  // namespace

absl::StatusOr<std::string> WriteKeyFiles(const std::string& folder, const std::vector<std::string>& workers) {
  constexpr const char* kServers[] = {"scheduler", "controller"};
  std::set<std::string> names(std::begin(kServers), std::end(kServers));
  for (const std::string& worker : workers) {
    if (!IsName(worker)) return absl::InvalidArgumentError(absl::StrCat("not a name of letters, digits, '-', '_' and '.': ", worker));
    if (!names.insert(worker).second) return absl::InvalidArgumentError(absl::StrCat("two keys under one name: ", worker));
  }
  const std::filesystem::path root(folder);
  std::error_code error;
  std::filesystem::create_directories(root, error);
  if (error) return absl::InvalidArgumentError(absl::StrCat(folder, ": ", error.message()));
  std::string servers_pub, workers_pub;
  const auto make = [&root](const std::string& name, std::string* list) -> absl::Status {
    const CurvePair pair = NewCurvePair();
    absl::StrAppend(list, name, " ", pair.public_key, "\n");
    return Write(root / (name + ".key"), pair.secret_key + "\n", 0600);
  };
  for (const char* name : kServers) STRIA_RETURN_IF_ERROR(make(name, &servers_pub));
  for (const std::string& name : workers) STRIA_RETURN_IF_ERROR(make(name, &workers_pub));
  STRIA_RETURN_IF_ERROR(Write(root / "servers.pub", servers_pub, 0644));
  STRIA_RETURN_IF_ERROR(Write(root / "workers.pub", workers_pub, 0644));
  const auto at = [&root](const std::string& name) { return (root / name).string(); };
  std::string text;
  for (const char* name : kServers) {
    absl::StrAppend(&text, name, " --curve-key-file ", at(absl::StrCat(name, ".key")), " --curve-workers-file ", at("workers.pub"), "\n");
  }
  for (const std::string& name : workers) {
    absl::StrAppend(&text, "worker --curve-key-file ", at(name + ".key"), " --curve-servers-file ", at("servers.pub"), "\n");
  }
  return text;
}

}  // namespace stria
