#include "services/controller/sqlite.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace stria {
namespace {

absl::Status ErrorOf(sqlite3* db, int code) {
  const char* file = sqlite3_db_filename(db, "main");
  const std::string message = absl::StrCat(file == nullptr ? "" : file, ": ", sqlite3_errmsg(db));
  switch (code & 0xff) {  // the primary code of an extended one
    case SQLITE_ERROR:  // our SQL is fixed, so it is the tables that are wrong
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: return absl::DataLossError(message);
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return absl::FailedPreconditionError(message);
    default: return absl::UnavailableError(message);
  }
}

}  // namespace

SqliteStatement& SqliteStatement::Bind(int index, uint64_t value) {
  // SQLite's integers are signed; the bits survive the round trip.
  STRIA_CHECK(sqlite3_bind_int64(statement_.get(), index, static_cast<sqlite3_int64>(value)) == SQLITE_OK);
  return *this;
}

SqliteStatement& SqliteStatement::Bind(int index, double value) {
  STRIA_CHECK(sqlite3_bind_double(statement_.get(), index, value) == SQLITE_OK);
  return *this;
}

SqliteStatement& SqliteStatement::Bind(int index, std::string_view value) {
  STRIA_CHECK(sqlite3_bind_text64(statement_.get(), index, value.data(), value.size(), SQLITE_TRANSIENT, SQLITE_UTF8) ==
              SQLITE_OK);
  return *this;
}

absl::StatusOr<bool> SqliteStatement::Step() {
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return ErrorOf(db_, code);
}

absl::Status SqliteStatement::Run() {
  absl::StatusOr<bool> row = true;
  while (row.ok() && *row) row = Step();
  sqlite3_reset(statement_.get());
  return row.status();
}

uint64_t SqliteStatement::Integer(int column) const {
  return static_cast<uint64_t>(sqlite3_column_int64(statement_.get(), column));
}

double SqliteStatement::Real(int column) const { return sqlite3_column_double(statement_.get(), column); }

std::string SqliteStatement::Text(int column) const {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_.get(), column));
  return text == nullptr ? "" : std::string(text, sqlite3_column_bytes(statement_.get(), column));
}

absl::StatusOr<std::unique_ptr<Sqlite>> Sqlite::Open(const std::string& path) {
  sqlite3* db = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr);
  std::unique_ptr<Sqlite> opened(new Sqlite(db));  // even a failed open gives a handle to close
  if (code != SQLITE_OK) return ErrorOf(db, code);
  return opened;
}

absl::Status Sqlite::Execute(const char* sql) {
  const int code = sqlite3_exec(db_.get(), sql, nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : ErrorOf(db_.get(), code);
}

absl::StatusOr<SqliteStatement> Sqlite::Prepare(const char* sql) {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v2(db_.get(), sql, -1, &statement, nullptr);
  if (code != SQLITE_OK) return ErrorOf(db_.get(), code);
  return SqliteStatement(db_.get(), statement);
}

}  // namespace stria
