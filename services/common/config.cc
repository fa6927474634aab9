#include "services/common/config.h"

#include <cctype>
#include <cstdio>
#include <limits>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace stria {
namespace {

bool IsSecret(const std::string& name) {
  for (const char* part : {"key", "token", "secret"}) {
    if (name.find(part) != std::string::npos) return true;
  }
  return false;
}

// Numbers and booleans as such, everything else as text.
nlohmann::ordered_json ValueOf(const std::string& text) {
  if (text == "true" || text == "false") return text == "true";
  const nlohmann::ordered_json parsed = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  return parsed.is_number() ? parsed : nlohmann::ordered_json(text);
}

}  // namespace

std::optional<int> ParseFlags(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return 0;
  } catch (const CLI::CallForAllHelp&) {
    std::fputs(app.help("", CLI::AppFormatMode::All).c_str(), stdout);
    return 0;
  } catch (const CLI::CallForVersion& version) {
    std::printf("%s\n", version.what());
    return 0;
  } catch (const CLI::ParseError& error) {
    std::string line = error.what();
    for (char& c : line) {
      if (c == '\n') c = ' ';
    }
    std::fprintf(stderr, "%s: %s\n", app.get_name().empty() ? argv[0] : app.get_name().c_str(), line.c_str());
    return 2;
  }
}

std::string EffectiveConfigJson(const CLI::App& app) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_single_name();
    if (name.empty() || name == "help" || name == "version") continue;
    std::string text;
    if (option->count() > 0) {
      for (const std::string& part : option->results()) text += (text.empty() ? "" : ",") + part;
      if (option->get_items_expected_max() == 0 && text.empty()) text = "true";
    } else {
      text = option->get_items_expected_max() == 0 ? "false" : option->get_default_str();
    }
    json[name] = IsSecret(name) && !text.empty() && text != "false" ? nlohmann::ordered_json("***") : ValueOf(text);
  }
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

absl::StatusOr<uint64_t> ParseBytes(std::string_view text) {
  const auto bad = [&] {
    return absl::InvalidArgumentError(absl::StrCat("not a number of bytes (like 1073741824, 512M or 1GiB): ", std::string(text)));
  };
  size_t i = 0;
  uint64_t value = 0;
  for (; i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])); ++i) {
    const uint64_t digit = text[i] - '0';
    if (value > (std::numeric_limits<uint64_t>::max() - digit) / 10) return bad();
    value = value * 10 + digit;
  }
  if (i == 0) return bad();
  std::string unit;
  for (char c : text.substr(i)) unit.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
  int shift = 0;
  if (!unit.empty() && unit != "b") {
    const std::string_view units = "kmgt";
    const size_t index = units.find(unit[0]);
    const std::string rest = unit.substr(1);
    if (index == std::string_view::npos || !(rest.empty() || rest == "b" || rest == "ib")) return bad();
    shift = 10 * (static_cast<int>(index) + 1);
  }
  if (shift > 0 && value > (std::numeric_limits<uint64_t>::max() >> shift)) return bad();
  return value << shift;
}

CLI::Option* AddBytesOption(CLI::App& app, const std::string& name, uint64_t* bytes, const std::string& help) {
  const auto parse = [bytes, name](const std::string& text) {
    const absl::StatusOr<uint64_t> parsed = ParseBytes(text);
    if (!parsed.ok()) throw CLI::ValidationError(name, std::string(parsed.status().message()));  // CLI11's own channel, ends in ParseFlags
    *bytes = *parsed;
  };
  return app.add_option_function<std::string>(name, parse, help)->default_str(std::to_string(*bytes))->type_name("BYTES");
}

}  // namespace stria
