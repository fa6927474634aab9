// Which handler answers a request: method and path, where {} stands for one segment.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "services/common/http_server.h"

namespace stria {

// Percent-decoded; nullopt for a broken escape or a NUL byte. In a query `+` is a space.
std::optional<std::string> PercentDecode(std::string_view text, bool plus_is_space = false);

// A request target in origin form, decoded.
struct HttpTarget {
  std::string path;
  std::vector<std::string> segments;  // of the path, split before decoding: an escaped slash stays inside its segment
  std::map<std::string, std::string> query;
};
std::optional<HttpTarget> ParseRequestTarget(std::string_view target);

class HttpRouter {
 public:
  void Add(std::string method, std::string_view path, HttpHandler handler);
  std::vector<std::pair<std::string, std::string>> Routes() const;  // method, path

  struct Match {
    const HttpHandler* handler = nullptr;  // null: no such path, or, with `allowed` filled, no such method on it
    std::vector<std::string> args;         // what the {}s matched
    std::string allowed;                   // "GET, HEAD, OPTIONS": methods of this path
  };
  // HEAD takes GET's handler. Literal segments win over {}.
  Match Find(std::string_view method, const std::vector<std::string>& segments) const;

 private:
  struct Entry {
    std::vector<std::string> segments;
    std::map<std::string, HttpHandler, std::less<>> handlers;
  };
  std::vector<Entry> entries_;
};

}  // namespace stria
