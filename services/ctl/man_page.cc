#include "services/ctl/man_page.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "services/ctl/exit_codes.h"

namespace stria {
namespace {

// Text as roff takes it literally: backslashes and dashes escaped, no request at a line's start.
std::string Roff(const std::string& text) {
  const std::string escaped = absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}, {"\n", " "}});
  return !escaped.empty() && (escaped[0] == '.' || escaped[0] == '\'') ? "\\&" + escaped : escaped;
}

std::string Names(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return absl::StrJoin(names, ", ");
}

void AppendOptions(const CLI::App& app, std::string& text) {
  for (const CLI::Option* option : app.get_options()) {
    const bool positional = option->get_positional();
    if (!positional && option->get_lnames() == std::vector<std::string>{"help"}) continue;
    const std::string type = option->get_items_expected_max() > 0 && !positional ? " " + option->get_type_name() : "";
    absl::StrAppend(&text, ".TP\n\\fB", Roff(positional ? option->get_name(true) : Names(*option)), "\\fR", Roff(type), "\n",
                    Roff(option->get_description()));
    if (const std::string otherwise = option->get_default_str(); !otherwise.empty()) absl::StrAppend(&text, " (default ", Roff(otherwise), ")");
    if (const std::string variable = option->get_envname(); !variable.empty()) absl::StrAppend(&text, "; environment: ", Roff(variable));
    text += "\n";
  }
}

void AppendCommand(const CLI::App& app, const std::string& prefix, std::string& text) {
  const std::string path = prefix + app.get_name();
  const auto children = app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* child : children) AppendCommand(*child, path + " ", text);
  if (!children.empty()) return;
  std::string arguments;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) absl::StrAppend(&arguments, option->get_required() ? " " : " [", option->get_name(true), option->get_required() ? "" : "]");
  }
  absl::StrAppend(&text, ".SS ", Roff(path + arguments), "\n", Roff(app.get_description()), "\n");
  AppendOptions(app, text);
}

}  // namespace

std::string ManPage(const CLI::App& app) {
  const std::string name = app.get_name();
  std::string text = absl::StrCat(".TH STRIACTL 1 \"\" Stria \"Stria's manual\"\n.SH NAME\n", name, " \\- ", Roff(app.get_description()),
                                  "\n.SH SYNOPSIS\n\\fB", name, "\\fR [options] \\fIcommand\\fR [arguments]\n.SH OPTIONS\n"
                                  "They may stand before or behind the command.\n");
  AppendOptions(app, text);
  text += ".SH COMMANDS\n";
  for (const CLI::App* child : app.get_subcommands([](const CLI::App*) { return true; })) AppendCommand(*child, "", text);
  text += ".SH ENVIRONMENT\n.TP\n\\fBSTRIA_CONTROLLER\\fR\nthe controller's URL\n.TP\n\\fBSTRIA_TOKEN\\fR\nthe token, where the controller wants one\n"
          ".TP\n\\fBNO_COLOR\\fR\nno colour on a terminal either\n.SH EXIT STATUS\n";
  for (const ExitCodeMeaning& code : kExitCodes) absl::StrAppend(&text, ".TP\n\\fB", static_cast<int>(code.code), "\\fR\n", Roff(code.meaning), "\n");
  return text;
}

}  // namespace stria
