// One event, one line on stderr: 2026-01-31T12:00:00.123Z INFO worker "model loaded" layers=30 seconds=1.2
#pragma once

#include <concepts>
#include <initializer_list>
#include <string>
#include <string_view>

namespace stria {

struct LogField {
  std::string_view key;
  std::string value;
  LogField(std::string_view key, std::string_view value) : key(key), value(value) {}
  LogField(std::string_view key, const std::string& value) : key(key), value(value) {}
  LogField(std::string_view key, const char* value) : key(key), value(value) {}
  LogField(std::string_view key, bool value) : key(key), value(value ? "true" : "false") {}
  LogField(std::string_view key, std::integral auto value) : key(key), value(std::to_string(value)) {}
  LogField(std::string_view key, std::floating_point auto value);
};

enum class LogLevel { kInfo, kWarning, kError };

// The line without its time stamp and newline: quotes and control characters of values escaped, so it stays one line.
std::string FormatLogLine(LogLevel level, std::string_view service, std::string_view event, std::initializer_list<LogField> fields);

class Logger {
 public:
  explicit Logger(std::string service) : service_(std::move(service)) {}
  void Info(std::string_view event, std::initializer_list<LogField> fields = {}) const { Write(LogLevel::kInfo, event, fields); }
  void Warning(std::string_view event, std::initializer_list<LogField> fields = {}) const { Write(LogLevel::kWarning, event, fields); }
  void Error(std::string_view event, std::initializer_list<LogField> fields = {}) const { Write(LogLevel::kError, event, fields); }

 private:
  void Write(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) const;
  std::string service_;
};

std::string FormatNumber(double value);  // shortest text that reads back the same to 6 digits

inline LogField::LogField(std::string_view key, std::floating_point auto value) : key(key), value(FormatNumber(value)) {}

}  // namespace stria
