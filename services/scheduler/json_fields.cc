#include "services/scheduler/json_fields.h"

#include <cmath>
#include <unordered_set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/common/http_error.h"

namespace stria {
namespace {

constexpr int kMaxDepth = 32;
constexpr size_t kMaxQuoted = 80;

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// Thrown and caught inside ParseObject alone: nlohmann's callback has no other way to stop.
struct Refusal {
  std::string message;
};

class StructureCheck {
 public:
  bool operator()(int depth, Json::parse_event_t event, Json& value) {
    if (depth > kMaxDepth) throw Refusal{absl::StrCat("the body is nested deeper than ", kMaxDepth)};
    if (event == Json::parse_event_t::object_start) {
      names_.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      names_.pop_back();
    } else if (event == Json::parse_event_t::key) {
      const std::string& name = value.get_ref<const std::string&>();
      if (!names_.back().insert(name).second) throw Refusal{absl::StrCat("the field ", Quote(value), " occurs twice")};
    }
    return true;
  }

 private:
  std::vector<std::unordered_set<std::string>> names_;
};

}  // namespace

HttpResponse ToResponse(const ApiError& error) {
  HttpResponse response = ErrorResponse(error.status, error.message, "", error.param, error.code);
  if (error.retry_after > 0) response.headers.emplace_back("Retry-After", std::to_string(error.retry_after));
  return response;
}

std::string Quote(const Json& value) {
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  if (text.size() > kMaxQuoted) text = text.substr(0, kMaxQuoted) + "…";
  return text;
}

std::optional<ApiError> ParseObject(std::string_view body, Json* object) {
  try {
    // The callback is handed over by value for each call: it must share its state.
    StructureCheck check;
    *object = Json::parse(body, [&check](int depth, Json::parse_event_t event, Json& value) { return check(depth, event, value); });
  } catch (const Refusal& refusal) {
    return ApiError{.message = refusal.message};
  } catch (const Json::exception& error) {
    std::string what = error.what();
    if (const size_t end = what.find("] "); end != std::string::npos) what = what.substr(end + 2);
    if (what.size() > 300) what = what.substr(0, 300) + "…";
    return ApiError{.message = absl::StrCat("the body is not JSON: ", what)};
  }
  if (!object->is_object()) return ApiError{.message = absl::StrCat("the body must be a JSON object, not ", Quote(*object))};
  return std::nullopt;
}

ObjectReader::ObjectReader(const Json& value, std::string path, std::optional<ApiError>* error)
    : path_(std::move(path)), error_(error) {
  if (value.is_object()) {
    object_ = &value;
  } else if (!failed()) {
    *error_ = ApiError{.message = absl::StrCat("'", path_, "' must be an object, not ", Quote(value)), .param = path_};
  }
}

std::string ObjectReader::PathOf(std::string_view name) const {
  return path_.empty() ? std::string(name) : absl::StrCat(path_, ".", View(name));
}

void ObjectReader::Fail(const char* name, std::string message, std::string code) {
  if (failed()) return;
  const std::string path = PathOf(name);
  *error_ = ApiError{.message = absl::StrCat("'", path, "' ", message), .param = path, .code = std::move(code)};
}

const Json* ObjectReader::Find(const char* name) {
  known_.insert(name);
  if (object_ == nullptr) return nullptr;
  const auto it = object_->find(name);
  return it == object_->end() || it->is_null() ? nullptr : &*it;
}

std::optional<bool> ObjectReader::Bool(const char* name) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  Fail(name, absl::StrCat("must be true or false, not ", Quote(*value)));
  return std::nullopt;
}

std::optional<std::string> ObjectReader::String(const char* name) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  Fail(name, absl::StrCat("must be a string, not ", Quote(*value)));
  return std::nullopt;
}

std::optional<int64_t> ObjectReader::Integer(const char* name, int64_t min, int64_t max) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  std::optional<int64_t> number;
  if (value->is_number_unsigned()) {
    if (const uint64_t n = value->get<uint64_t>(); n <= static_cast<uint64_t>(INT64_MAX)) number = static_cast<int64_t>(n);
  } else if (value->is_number_integer()) {
    number = value->get<int64_t>();
  } else if (value->is_number_float()) {  // 16.0 is an integer to JSON
    const double n = value->get<double>();
    if (n == std::floor(n) && std::abs(n) < 9e15) number = static_cast<int64_t>(n);
  }
  if (number && *number >= min && *number <= max) return number;
  Fail(name, absl::StrCat("must be an integer from ", min, " to ", max, ", not ", Quote(*value)));
  return std::nullopt;
}

std::optional<double> ObjectReader::Number(const char* name, double min, double max) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number()) {
    const double number = value->get<double>();
    if (number >= min && number <= max) return number;
  }
  Fail(name, absl::StrCat("must be a number from ", min, " to ", max, ", not ", Quote(*value)));
  return std::nullopt;
}

void ObjectReader::Refuse(const char* name, std::string_view why) {
  if (Find(name) != nullptr) Fail(name, std::string(why), "unsupported_parameter");
}

void ObjectReader::RefuseRest() {
  if (object_ == nullptr || failed()) return;
  for (const auto& [name, value] : object_->items()) {
    if (value.is_null() || known_.contains(name)) continue;
    const std::string path = Quote(Json(PathOf(name)));
    *error_ = ApiError{.message = absl::StrCat("unknown field ", path), .param = path.substr(1, path.size() - 2), .code = "unknown_parameter"};
    return;
  }
}

}  // namespace stria
