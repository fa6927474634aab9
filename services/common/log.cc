#include "services/common/log.h"

#include <chrono>
#include <cstdio>
#include <ctime>

namespace stria {
namespace {

const char* NameOf(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo: return "INFO";
    case LogLevel::kWarning: return "WARNING";
    case LogLevel::kError: return "ERROR";
  }
  return "?";
}

bool IsPlain(std::string_view text) {
  for (unsigned char c : text) {
    if (c <= ' ' || c == '"' || c == '=' || c == '\\' || c == 0x7f) return false;
  }
  return !text.empty();
}

void AppendQuoted(std::string& line, std::string_view text) {
  line += '"';
  for (unsigned char c : text) {
    if (c == '"' || c == '\\') {
      line += '\\';
      line += static_cast<char>(c);
    } else if (c < ' ' || c == 0x7f) {
      char escaped[5];
      std::snprintf(escaped, sizeof escaped, "\\x%02x", c);
      line += escaped;
    } else {
      line += static_cast<char>(c);
    }
  }
  line += '"';
}

}  // namespace

std::string FormatNumber(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

std::string FormatLogLine(LogLevel level, std::string_view service, std::string_view event, std::initializer_list<LogField> fields) {
  std::string line = NameOf(level);
  line.append(" ").append(service).append(" ");
  AppendQuoted(line, event);
  for (const LogField& field : fields) {
    line.append(" ").append(field.key).append("=");
    if (IsPlain(field.value)) {
      line += field.value;
    } else {
      AppendQuoted(line, field.value);
    }
  }
  return line;
}

void Logger::Write(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) const {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const int milliseconds =
      static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char stamp[40];
  const size_t length = std::strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(stamp + length, sizeof stamp - length, ".%03dZ ", milliseconds);
  const std::string line = stamp + FormatLogLine(level, service_, event, fields) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);  // one write: lines of several threads do not mix
}

}  // namespace stria
