// The flags that give a process its CURVE keys, and the environment variables that give them where files are unhandy. Keys never stand
// on a command line: it is there for everybody to read.
#pragma once

#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "absl/status/statusor.h"
#include "services/common/bus.h"
#include "services/common/curve.h"

namespace stria {

inline constexpr char kCurveKeyVariable[] = "STRIA_CURVE_KEY";          // this process's secret key
inline constexpr char kCurveWorkersVariable[] = "STRIA_CURVE_WORKERS";  // public keys of workers: NAME KEY; NAME KEY
inline constexpr char kCurveServersVariable[] = "STRIA_CURVE_SERVERS";  // public keys: scheduler KEY; controller KEY

struct CurveFlags {
  std::string key_file;
  std::string peers_file;  // a server's workers, or a worker's servers
  bool insecure = false;
};

// --curve-key-file, --curve-workers-file. (The services that bind have their own --insecure.)
void AddCurveServerFlags(CLI::App& app, CurveFlags* flags);
// --curve-key-file, --curve-servers-file, --insecure.
void AddCurveClientFlags(CLI::App& app, CurveFlags* flags);

struct CurveSetup {
  std::string secret_key;            // empty: plain sockets
  std::optional<PublicKeys> peers;   // set when the key is

  BusSecurity Server(bool insecure) const { return {insecure, secret_key, ""}; }
  // `name` is "scheduler" or "controller".
  absl::StatusOr<BusSecurity> Client(const std::string& name, bool insecure) const;
};

// A key without peers, or peers without a key, is InvalidArgument: one of the two was forgotten, and would leave a link plain or dead.
absl::StatusOr<CurveSetup> LoadCurveServer(const CurveFlags& flags);
absl::StatusOr<CurveSetup> LoadCurveClient(const CurveFlags& flags);

}  // namespace stria
