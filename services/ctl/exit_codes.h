// Stable: scripts depend on them. striactl --help and docs/operating.md list them.
#pragma once

namespace stria {

enum ExitCode {
  kExitOk = 0,
  kExitDiffers = 1,      // status: some worker does not apply the current tier vector
  kExitUsage = 2,        // a bad command line or a bad value
  kExitAway = 3,         // no controller answers there
  kExitConflict = 4,     // --check-rev is not the newest revision
  kExitController = 5,   // the controller answered with an error of its own
};

inline constexpr char kExitCodeHelp[] =
    "Exit codes: 0 done; 1 differs (status: a worker is not SYNCED, or there is none); 2 bad command or value;\n"
    "3 the controller is away; 4 --check-rev is not the newest revision; 5 an error inside the controller.";

}  // namespace stria
