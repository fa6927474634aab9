#include "services/common/http_router.h"

#include <utility>

namespace stria {
namespace {

constexpr char kAnySegment[] = "{}";

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

std::optional<std::string> PercentDecode(std::string_view text, bool plus_is_space) {
  std::string result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      if (i + 2 >= text.size()) return std::nullopt;
      const int high = HexDigit(text[i + 1]), low = HexDigit(text[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    } else if (c == '+' && plus_is_space) {
      c = ' ';
    }
    if (c == '\0') return std::nullopt;
    result.push_back(c);
  }
  return result;
}

std::optional<HttpTarget> ParseRequestTarget(std::string_view target) {
  if (target.empty() || target.front() != '/') return std::nullopt;
  target = target.substr(0, target.find('#'));
  const size_t question = target.find('?');
  HttpTarget result;
  for (std::string_view part : Split(target.substr(1, question == std::string_view::npos ? question : question - 1), '/')) {
    std::optional<std::string> segment = PercentDecode(part);
    if (!segment) return std::nullopt;
    result.path += '/';
    result.path += *segment;
    result.segments.push_back(*std::move(segment));
  }
  if (question == std::string_view::npos) return result;
  for (std::string_view pair : Split(target.substr(question + 1), '&')) {
    if (pair.empty()) continue;
    const size_t equals = pair.find('=');
    std::optional<std::string> key = PercentDecode(pair.substr(0, equals), true);
    std::optional<std::string> value =
        equals == std::string_view::npos ? std::string() : PercentDecode(pair.substr(equals + 1), true);
    if (!key || !value) return std::nullopt;
    result.query.insert_or_assign(*std::move(key), *std::move(value));
  }
  return result;
}

void HttpRouter::Add(std::string method, std::string_view path, HttpHandler handler) {
  std::vector<std::string> segments;
  for (std::string_view part : Split(path.substr(1), '/')) segments.emplace_back(part);
  for (Entry& entry : entries_) {
    if (entry.segments == segments) {
      entry.handlers.insert_or_assign(std::move(method), std::move(handler));
      return;
    }
  }
  Entry& entry = entries_.emplace_back();
  entry.segments = std::move(segments);
  entry.handlers.emplace(std::move(method), std::move(handler));
}

std::vector<std::pair<std::string, std::string>> HttpRouter::Routes() const {
  std::vector<std::pair<std::string, std::string>> routes;
  for (const Entry& entry : entries_) {
    std::string path;
    for (const std::string& segment : entry.segments) path += "/" + segment;
    for (const auto& [method, handler] : entry.handlers) routes.emplace_back(method, path);
  }
  return routes;
}

HttpRouter::Match HttpRouter::Find(std::string_view method, const std::vector<std::string>& segments) const {
  const Entry* best = nullptr;
  Match match;
  for (const Entry& entry : entries_) {
    if (entry.segments.size() != segments.size()) continue;
    std::vector<std::string> args;
    bool fits = true;
    for (size_t i = 0; fits && i < segments.size(); ++i) {
      if (entry.segments[i] == kAnySegment && !segments[i].empty()) {
        args.push_back(segments[i]);
      } else {
        fits = entry.segments[i] == segments[i];
      }
    }
    if (!fits || (best != nullptr && args.size() >= match.args.size())) continue;
    best = &entry;
    match.args = std::move(args);
  }
  if (best == nullptr) return match;
  auto found = best->handlers.find(method);
  if (found == best->handlers.end() && method == "HEAD") found = best->handlers.find("GET");
  if (found != best->handlers.end()) match.handler = &found->second;
  for (const auto& [name, handler] : best->handlers) {
    match.allowed += name + ", ";
    if (name == "GET" && !best->handlers.contains("HEAD")) match.allowed += "HEAD, ";
  }
  match.allowed += "OPTIONS";
  return match;
}

}  // namespace stria
