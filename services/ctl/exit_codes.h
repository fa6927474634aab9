// Stable: scripts depend on them. striactl --help, its man page and docs/operating.md list them.
#pragma once

namespace stria {

enum ExitCode {
  kExitOk = 0,
  kExitDiffers = 1,      // status: some worker does not apply the current tier vector; diff: the two differ
  kExitUsage = 2,        // a bad command line, file or value
  kExitAway = 3,         // no controller answers there
  kExitConflict = 4,     // --check-rev is not the newest revision
  kExitController = 5,   // the controller answered with an error of its own
  kExitDenied = 6,       // no token, an unknown one, or a viewer's for a change
};

struct ExitCodeMeaning {
  ExitCode code;
  const char* meaning;
};

inline constexpr ExitCodeMeaning kExitCodes[] = {
    {kExitOk, "done; diff: no difference"},
    {kExitDiffers, "differs (diff; status: a worker is not SYNCED, or there is none)"},
    {kExitUsage, "bad command, file or value"},
    {kExitAway, "no controller answers"},
    {kExitConflict, "--check-rev is not the newest revision"},
    {kExitController, "an error inside the controller"},
    {kExitDenied, "the token is missing, unknown, or a viewer's"},
};

}  // namespace stria
