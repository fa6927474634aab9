// striactl: the operator's hand on the controller.
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include <pwd.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "services/common/config.h"
#include "services/common/process.h"
#include "services/ctl/admin_client.h"
#include "services/ctl/command_line.h"
#include "services/ctl/exit_codes.h"

namespace stria {
namespace {

std::string Whoami() {
  const passwd* user = getpwuid(geteuid());
  return std::string(user == nullptr ? std::to_string(geteuid()) : user->pw_name) + "@" + HostName();
}

// Never a command line argument: those are there for everybody to read.
absl::StatusOr<std::string> ReadToken(const std::string& file) {
  std::string token;
  if (file.empty()) {
    const char* value = std::getenv("STRIA_TOKEN");
    token = value == nullptr ? "" : value;
  } else {
    std::ifstream stream(file);
    token.assign(std::istreambuf_iterator<char>(stream), {});
    if (!stream.good()) return absl::InvalidArgumentError(absl::StrCat("cannot read the token in ", file));
    token.erase(std::find_if(token.rbegin(), token.rend(), [](unsigned char c) { return !std::isspace(c); }).base(), token.end());
  }
  const bool sound = std::all_of(token.begin(), token.end(), [](unsigned char c) { return std::isgraph(c); });
  if (!sound) return absl::InvalidArgumentError("the token holds a space or a character that is not printable");
  return token;
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "striactl: %s\n", std::string(status.message()).c_str());
  return kExitUsage;
}

int Main(int argc, char** argv) {
  CommandLine line;
  if (const std::optional<int> code = ParseFlags(line.app(), argc, argv)) return *code;
  if (line.text()) {
    const absl::StatusOr<std::string> text = line.text()();
    if (!text.ok()) return Fail(text.status());
    std::fputs(text->c_str(), stdout);
    return kExitOk;
  }
  if (line.change().who.empty()) line.change().who = Whoami();
  const absl::StatusOr<std::string> token = ReadToken(line.global().token_file);
  if (!token.ok()) return Fail(token.status());
  absl::StatusOr<AdminClient> client = AdminClient::Create(line.global().controller, line.global().timeout, *token);
  if (!client.ok()) return Fail(client.status());
  const std::string& output = line.global().output;
  const OutputStyle style{
      .format = output == "json" ? OutputFormat::kJson : output == "yaml" ? OutputFormat::kYaml : OutputFormat::kTable,
      .colour = isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr};
  Commands commands(*client, style, stdout, stderr);
  return line.action()(commands);
}

}  // namespace
}  // namespace stria

int main(int argc, char** argv) { return stria::Main(argc, argv); }
