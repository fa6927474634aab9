// SQLite's C interface as two owning classes; errors are Status and name the file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <sqlite3.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace stria {

class SqliteStatement {
 public:
  SqliteStatement(sqlite3* db, sqlite3_stmt* statement) : db_(db), statement_(statement, &sqlite3_finalize) {}

  // Parameters count from 1, columns from 0.
  SqliteStatement& Bind(int index, uint64_t value);
  SqliteStatement& Bind(int index, double value);
  SqliteStatement& Bind(int index, std::string_view value);

  absl::StatusOr<bool> Step();  // true: a row is there
  absl::Status Run();           // steps to the end and resets, so that it can be bound again
  uint64_t Integer(int column) const;
  double Real(int column) const;
  std::string Text(int column) const;

 private:
  sqlite3* db_;
  std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement_;
};

class Sqlite {
 public:
  // DataLoss: not a database, damaged, or without the tables that a statement names; FailedPrecondition: in use; Unavailable: anything else.
  static absl::StatusOr<std::unique_ptr<Sqlite>> Open(const std::string& path);

  absl::Status Execute(const char* sql);
  absl::StatusOr<SqliteStatement> Prepare(const char* sql);
  // Runs `body` between BEGIN IMMEDIATE and COMMIT; rolls back when either fails.
  template <typename Body>
  absl::Status Transaction(Body body) {
    if (absl::Status status = Execute("BEGIN IMMEDIATE"); !status.ok()) return status;
    absl::Status status = body();
    if (status.ok()) status = Execute("COMMIT");
    if (!status.ok()) Execute("ROLLBACK").IgnoreError();
    return status;
  }

 private:
  explicit Sqlite(sqlite3* db) : db_(db, &sqlite3_close) {}
  std::unique_ptr<sqlite3, int (*)(sqlite3*)> db_;
};

}  // namespace stria
