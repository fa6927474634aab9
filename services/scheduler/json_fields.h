// Strict reading of JSON bodies: every field is known by name, checked for type and range, and named when it is wrong. Nothing
// is ignored silently.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "services/common/http_server.h"

namespace stria {

using Json = nlohmann::json;

struct ApiError {
  int status = 400;
  std::string message;
  std::string param = "";
  std::string code = "";
  int retry_after = 0;  // seconds; 0: no such header
};

HttpResponse ToResponse(const ApiError& error);

// The whole body as one JSON object. Refuses invalid UTF-8, lone surrogates, nesting deeper than 32, and a name that occurs twice
// in one object: parsers disagree on which of the two counts.
std::optional<ApiError> ParseObject(std::string_view body, Json* object);

// Reads one object. The first error is kept in `*error` (shared by nested readers); later calls then do nothing that matters.
// A field that is null counts as absent.
class ObjectReader {
 public:
  // `path`: where the object is, "" at the top, for instance "kv" or "messages[3]". A value that is no object is an error.
  ObjectReader(const Json& value, std::string path, std::optional<ApiError>* error);

  const Json* Find(const char* name);  // nullptr: absent
  std::optional<bool> Bool(const char* name);
  std::optional<std::string> String(const char* name);
  std::optional<int64_t> Integer(const char* name, int64_t min, int64_t max);
  std::optional<double> Number(const char* name, double min, double max);  // both ends included

  // Known, without effect.
  void Accept(const char* name) { Find(name); }
  // Known, and refused when present.
  void Refuse(const char* name, std::string_view why);
  // Everything that no call above named is an error.
  void RefuseRest();

  void Fail(const char* name, std::string message, std::string code = "");
  std::string PathOf(std::string_view name) const;
  bool failed() const { return error_->has_value(); }

 private:
  const Json* object_ = nullptr;
  std::string path_;
  std::optional<ApiError>* error_;
  std::set<std::string_view> known_;
};

// A value as it may stand in a message: its JSON text, cut when it is long.
std::string Quote(const Json& value);

}  // namespace stria
