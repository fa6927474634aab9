#include "services/ctl/completion.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/check.h"

namespace stria {
namespace {

using Words = std::vector<std::string>;

// What may be given where a value is wanted.
struct Values {
  Words choices;
  bool file = false;
  bool empty() const { return choices.empty() && !file; }
};

// One command: its path ("striactl tau"), the words that may follow, its options, its arguments in their order.
struct Command {
  std::string path;
  Words children, options;
  std::vector<Values> arguments;
};

struct Tree {
  std::vector<Command> commands;
  std::map<std::string, Values> valued;  // options that take a value, by each of their names
};

Values ValuesOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  Values values;
  const size_t open = type.find('{'), close = type.find('}');
  if (open != std::string::npos && close != std::string::npos) values.choices = absl::StrSplit(type.substr(open + 1, close - open - 1), ',');
  values.file = type == "FILE";
  return values;
}

void AddOptions(const CLI::App& app, Command& command, Tree& tree) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) {
      command.arguments.push_back(ValuesOf(*option));
      continue;
    }
    Words names;
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : names) {
      command.options.push_back(name);
      if (option->get_items_expected_max() > 0) tree.valued[name] = ValuesOf(*option);
    }
  }
}

void AddCommand(const CLI::App& root, const CLI::App& app, const std::string& prefix, Tree& tree) {
  Command command;
  command.path = prefix + app.get_name();
  AddOptions(app, command, tree);
  if (&app != &root) AddOptions(root, command, tree);  // they may stand behind a command too
  std::sort(command.options.begin(), command.options.end());
  command.options.erase(std::unique(command.options.begin(), command.options.end()), command.options.end());
  const auto children = app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* child : children) command.children.push_back(child->get_name());
  const std::string path = command.path;
  tree.commands.push_back(std::move(command));
  for (const CLI::App* child : children) AddCommand(root, *child, path + " ", tree);
}

std::string Quoted(const std::string& text) { return "\"" + text + "\""; }

// How a shell offers WORDS, and files.
struct CaseShell {
  std::string words, files;
};

// The part that bash and zsh share: where the cursor is ($at:$place), then what may stand there. Both put the words before the cursor into
// $before, and what is typed so far into $typed.
std::string CaseBody(const Tree& tree, const CaseShell& shell) {
  const auto offer = [&](const Values& values) {
    return values.file ? shell.files : values.choices.empty() ? std::string(":") : absl::StrReplaceAll(shell.words, {{"WORDS", absl::StrJoin(values.choices, " ")}});
  };
  Words valued, known;
  for (const auto& [name, values] : tree.valued) valued.push_back(name);
  for (const Command& command : tree.commands) {
    for (const std::string& child : command.children) known.push_back(Quoted(command.path + " " + child));
  }
  std::string text = absl::StrCat("  local at=striactl place=0 word previous=\n"
                                  "  for word in \"${before[@]}\"; do\n"
                                  "    case \"$previous\" in\n"
                                  "      ", absl::StrJoin(valued, "|"), ") previous= ; continue ;;\n"
                                  "    esac\n"
                                  "    previous=$word\n"
                                  "    case \"$at $word\" in\n"
                                  "      ", absl::StrJoin(known, "|"), ") at=\"$at $word\" ;;\n"
                                  "      *\" -\"*) ;;\n"
                                  "      *) place=$((place + 1)) ;;\n"
                                  "    esac\n"
                                  "  done\n"
                                  "  case \"$previous\" in\n");
  for (const auto& [name, values] : tree.valued) absl::StrAppend(&text, "    ", name, ") ", offer(values), "; return ;;\n");
  absl::StrAppend(&text, "  esac\n  case \"$typed\" in\n    -*)\n      case \"$at\" in\n");
  for (const Command& command : tree.commands) {
    absl::StrAppend(&text, "        ", Quoted(command.path), ") ", offer({command.options}), " ;;\n");
  }
  absl::StrAppend(&text, "      esac\n      return ;;\n  esac\n  case \"$at:$place\" in\n");
  for (const Command& command : tree.commands) {
    if (!command.children.empty()) absl::StrAppend(&text, "    ", Quoted(command.path + ":0"), ") ", offer({command.children}), " ;;\n");
    for (size_t i = 0; i < command.arguments.size(); ++i) {
      if (command.arguments[i].empty()) continue;
      absl::StrAppend(&text, "    ", Quoted(absl::StrCat(command.path, ":", i)), ") ", offer(command.arguments[i]), " ;;\n");
    }
  }
  return text + "  esac\n";
}

std::string Bash(const Tree& tree) {
  return absl::StrCat("# striactl completion for bash: source <(striactl completion bash)\n"
                      "_striactl() {\n"
                      "  local typed=${COMP_WORDS[COMP_CWORD]}\n"
                      "  local before=(\"${COMP_WORDS[@]:1:COMP_CWORD-1}\")\n"
                      "  COMPREPLY=()\n",
                      CaseBody(tree, {"COMPREPLY=($(compgen -W \"WORDS\" -- \"$typed\"))", "COMPREPLY=($(compgen -f -- \"$typed\"))"}),
                      "}\ncomplete -F _striactl striactl\n");
}

std::string Zsh(const Tree& tree) {
  return absl::StrCat("#compdef striactl\n"
                      "# striactl completion for zsh: source <(striactl completion zsh), or this file as _striactl in $fpath\n"
                      "_striactl() {\n"
                      "  local typed=${words[CURRENT]}\n"
                      "  local -a before; before=(${words[2,CURRENT-1]})\n",
                      CaseBody(tree, {"compadd -- WORDS", "_files"}),
                      "}\nif [ \"$funcstack[1]\" = _striactl ]; then _striactl \"$@\"; else compdef _striactl striactl; fi\n");
}

std::string Fish(const Tree& tree) {
  Words valued, known;
  for (const auto& [name, values] : tree.valued) valued.push_back(name);
  for (const Command& command : tree.commands) {
    for (const std::string& child : command.children) known.push_back(Quoted(command.path + " " + child));
  }
  std::string text = absl::StrCat("# striactl completion for fish: striactl completion fish | source\n"
                                  "function __striactl_at\n"
                                  "  set -l at striactl\n"
                                  "  set -l place 0\n"
                                  "  set -l previous ''\n"
                                  "  set -l before (commandline -opc)\n"
                                  "  for word in $before[2..]\n"
                                  "    if contains -- \"$previous\" ", absl::StrJoin(valued, " "), "\n"
                                  "      set previous ''\n"
                                  "      continue\n"
                                  "    end\n"
                                  "    set previous $word\n"
                                  "    if contains -- \"$at $word\" ", absl::StrJoin(known, " "), "\n"
                                  "      set at \"$at $word\"\n"
                                  "    else if not string match -q -- '-*' $word\n"
                                  "      set place (math $place + 1)\n"
                                  "    end\n"
                                  "  end\n"
                                  "  echo $at:$place\n"
                                  "end\n"
                                  "complete -c striactl -f\n");
  const auto line = [&](const std::string& at, const Values& values) {
    absl::StrAppend(&text, "complete -c striactl -n \"test (__striactl_at) = '", at, "'\" ",
                    values.file ? std::string("-F") : absl::StrCat("-a '", absl::StrJoin(values.choices, " "), "'"), "\n");
  };
  for (const Command& command : tree.commands) {
    if (!command.children.empty()) line(command.path + ":0", {command.children});
    for (size_t i = 0; i < command.arguments.size(); ++i) {
      if (!command.arguments[i].empty()) line(absl::StrCat(command.path, ":", i), command.arguments[i]);
    }
    for (const std::string& option : command.options) {
      const bool is_long = option[1] == '-';
      absl::StrAppend(&text, "complete -c striactl -n \"string match -q -- '", command.path, ":*' (__striactl_at)\" ", is_long ? "-l " : "-s ",
                      option.substr(is_long ? 2 : 1));
      const auto found = tree.valued.find(option);
      if (found != tree.valued.end()) {
        absl::StrAppend(&text, found->second.file ? " -rF" : " -x");
        if (!found->second.choices.empty()) absl::StrAppend(&text, " -a '", absl::StrJoin(found->second.choices, " "), "'");
      }
      text += "\n";
    }
  }
  return text;
}

}  // namespace

std::string CompletionScript(const CLI::App& app, const std::string& shell) {
  Tree tree;
  AddCommand(app, app, "", tree);
  if (shell == "bash") return Bash(tree);
  if (shell == "zsh") return Zsh(tree);
  STRIA_CHECK(shell == "fish");
  return Fish(tree);
}

}  // namespace stria
