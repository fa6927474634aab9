#include "services/common/curve_flags.h"

#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "services/common/bearer.h"

namespace stria {
namespace {

void AddKeyFlag(CLI::App& app, CurveFlags* flags) {
  app.add_option("--curve-key-file", flags->key_file,
                 absl::StrCat("this process's secret CURVE key (striactl keys makes it); or in the variable ", kCurveKeyVariable));
}

struct Source {
  std::string text;
  std::string where;  // for errors
};

absl::StatusOr<Source> FileOrVariable(const std::string& path, const char* variable) {
  if (path.empty()) {
    const char* value = std::getenv(variable);
    return Source{value == nullptr ? "" : value, variable};
  }
  STRIA_ASSIGN_OR_RETURN(std::string text, ReadSecretsFile(path, "CURVE key"));
  if (absl::StripAsciiWhitespace(text).empty()) return absl::InvalidArgumentError(absl::StrCat(path, " holds no key"));
  return Source{std::move(text), path};
}

absl::Status In(const Source& source, const absl::Status& status) {
  return absl::InvalidArgumentError(absl::StrCat(source.where, ": ", std::string(status.message())));
}

absl::StatusOr<CurveSetup> Load(const CurveFlags& flags, const char* peers_variable, const char* peers_flag) {
  STRIA_ASSIGN_OR_RETURN(const Source key, FileOrVariable(flags.key_file, kCurveKeyVariable));
  STRIA_ASSIGN_OR_RETURN(const Source peers, FileOrVariable(flags.peers_file, peers_variable));
  CurveSetup setup;
  setup.secret_key = std::string(absl::StripAsciiWhitespace(key.text));
  absl::StatusOr<PublicKeys> parsed = PublicKeys::Parse(peers.text);
  if (!parsed.ok()) return In(peers, parsed.status());
  if (setup.secret_key.empty() != parsed->empty()) {
    return absl::InvalidArgumentError(absl::StrCat("CURVE needs both: this process's key (--curve-key-file or ", kCurveKeyVariable,
                                                   ") and its peers' (", peers_flag, " or ", peers_variable, "); only ",
                                                   parsed->empty() ? "the first" : "the second", " is there"));
  }
  if (setup.secret_key.empty()) return setup;
  if (const auto public_key = PublicKeyOf(setup.secret_key); !public_key.ok()) return In(key, public_key.status());
  setup.peers = *std::move(parsed);
  return setup;
}

}  // namespace

void AddCurveServerFlags(CLI::App& app, CurveFlags* flags) {
  AddKeyFlag(app, flags);
  app.add_option("--curve-workers-file", flags->peers_file,
                 absl::StrCat("public CURVE keys of the workers that may connect, lines NAME KEY; or in the variable ", kCurveWorkersVariable));
}

void AddCurveClientFlags(CLI::App& app, CurveFlags* flags) {
  AddKeyFlag(app, flags);
  app.add_option("--curve-servers-file", flags->peers_file,
                 absl::StrCat("public CURVE keys of the scheduler and the controller, lines NAME KEY; or in the variable ", kCurveServersVariable));
  app.add_flag("--insecure", flags->insecure, "off loopback, dial scheduler and controller over plain sockets, and serve HTTP without tokens");
}

absl::StatusOr<BusSecurity> CurveSetup::Client(const std::string& name, bool insecure) const {
  BusSecurity security{insecure, secret_key, ""};
  if (peers) {
    STRIA_ASSIGN_OR_RETURN(security.server_key, peers->Of(name));
  }
  return security;
}

absl::StatusOr<CurveSetup> LoadCurveServer(const CurveFlags& flags) { return Load(flags, kCurveWorkersVariable, "--curve-workers-file"); }

absl::StatusOr<CurveSetup> LoadCurveClient(const CurveFlags& flags) { return Load(flags, kCurveServersVariable, "--curve-servers-file"); }

}  // namespace stria
