// Flags → effective config. Only services/*/main.cc parse flags; everything below takes structs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

#include "absl/status/statusor.h"

namespace stria {

// Parses; gives the exit code when the process should end now: 0 after --help, 2 after one line on stderr for a bad flag.
std::optional<int> ParseFlags(CLI::App& app, int argc, char** argv);

// {"flag-name": value, …} of every option, given or default; flags whose name contains "key", "token" or "secret" show as "***" when set.
std::string EffectiveConfigJson(const CLI::App& app);

// "1073741824", "1GiB", "1g", "512M", "64k": powers of 1024. InvalidArgument names the text.
absl::StatusOr<uint64_t> ParseBytes(std::string_view text);
// For --flag values: check with CLI::Validator. Stores into *bytes.
CLI::Option* AddBytesOption(CLI::App& app, const std::string& name, uint64_t* bytes, const std::string& help);

}  // namespace stria
