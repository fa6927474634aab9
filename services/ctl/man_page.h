// striactl's manual page from the command tree.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace stria {

// In roff with the man macros: every command with its arguments and options, the environment, the exit codes.
std::string ManPage(const CLI::App& app);

}  // namespace stria
