// Shell completion from the command tree, so that no command is forgotten in it.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace stria {

// `shell` is bash, zsh or fish; the script is to be sourced there. Completes commands, options once a dash is typed, values that an option or
// argument lists in braces ("{table,json}"), and files where it says FILE.
std::string CompletionScript(const CLI::App& app, const std::string& shell);

}  // namespace stria
