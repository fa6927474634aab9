#include "services/controller/state_store.h"

#include <filesystem>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "services/controller/sqlite.h"
#include "services/controller/state_json.h"

namespace stria {
namespace {

using nlohmann::json;

// One script per step of the schema; a file at version n has seen the first n, each in a transaction of its own. A script that was
// released is never edited: what changes (the tables, or what their JSON holds, a new setting too) is one more script, so that an
// older controller refuses a file that it would misread, and a newer one brings an old file up to date.
constexpr const char* kMigrations[] = {
    R"sql(
  CREATE TABLE schema_version (version INTEGER NOT NULL);
  INSERT INTO schema_version VALUES (0);
  CREATE TABLE revisions (revision INTEGER PRIMARY KEY, unix_seconds REAL NOT NULL, who TEXT NOT NULL, why TEXT NOT NULL,
                          before TEXT NOT NULL, after TEXT NOT NULL);
  CREATE TABLE epochs (epoch INTEGER PRIMARY KEY, unix_seconds REAL NOT NULL, model TEXT NOT NULL, vector TEXT NOT NULL);
  CREATE TABLE flips (id INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, unix_seconds REAL NOT NULL, model TEXT NOT NULL,
                      layer INTEGER NOT NULL, from_bits INTEGER NOT NULL, to_bits INTEGER NOT NULL, first INTEGER NOT NULL);
  CREATE TABLE models (model TEXT PRIMARY KEY, unix_seconds REAL NOT NULL, state TEXT NOT NULL);
)sql",
    // 2: settings have more fields; an old revision goes on as Unnamed() says.
    "",
    // 3: the quality target: settings for it, models' states hold what was measured and where the loop is, and its steps are kept.
    R"sql(
  CREATE TABLE loop_steps (id INTEGER PRIMARY KEY, unix_seconds REAL NOT NULL, model TEXT NOT NULL, value REAL NOT NULL,
                           kl REAL NOT NULL, tokens INTEGER NOT NULL);
)sql",
};
constexpr uint64_t kSchemaVersion = std::size(kMigrations);

absl::StatusOr<json> Parse(const std::string& text, const char* what) {
  json value = json::parse(text, nullptr, false);
  if (value.is_discarded()) return absl::DataLossError(absl::StrCat(what, " is not JSON"));
  return value;
}

// What a revision meant that does not name a setting, because it is older than the setting.
Settings Unnamed() {
  Settings settings;
  settings.promote_band = 0;
  settings.promote_after = 1;
  settings.promote_at_once = 1.25;
  return settings;
}

absl::StatusOr<Settings> ReadSettings(const std::string& text) {
  STRIA_ASSIGN_OR_RETURN(const json object, Parse(text, "a revision's settings"));
  absl::StatusOr<Settings> settings = SettingsFromJson(object, Unnamed());
  if (!settings.ok()) return absl::DataLossError(absl::StrCat("a revision's settings: ", std::string(settings.status().message())));
  return settings;
}

// A row of the revisions table.
absl::StatusOr<Revision> ReadRevision(const SqliteStatement& row) {
  Revision revision;
  revision.number = row.Integer(0);
  revision.unix_seconds = row.Real(1);
  revision.who = row.Text(2);
  revision.why = row.Text(3);
  STRIA_ASSIGN_OR_RETURN(revision.before, ReadSettings(row.Text(4)));
  STRIA_ASSIGN_OR_RETURN(revision.after, ReadSettings(row.Text(5)));
  return revision;
}

class SqliteStore final : public StateStore {
 public:
  SqliteStore(std::unique_ptr<Sqlite> db, size_t keep_rows) : db_(std::move(db)), keep_rows_(keep_rows) {}

  absl::Status Prepare();
  absl::StatusOr<ControllerState> Load() override;
  absl::Status AppendRevision(const Revision& revision) override;
  absl::Status CommitEpoch(const Publication& publication, const ModelState& after, double unix_seconds) override;
  absl::Status SaveModels(std::span<const ModelState* const> models, std::span<const LoopStep> steps, double unix_seconds) override;
  absl::StatusOr<std::vector<Revision>> Revisions(uint64_t from, size_t limit) override;
  absl::StatusOr<Revision> FindRevision(uint64_t number) override;
  absl::StatusOr<std::vector<Flip>> Flips(size_t limit) override;
  absl::StatusOr<std::vector<LoopStep>> LoopSteps(size_t limit) override;

 private:
  absl::StatusOr<uint64_t> Scalar(const char* sql);
  absl::StatusOr<uint64_t> Version();
  absl::Status SaveModel(const ModelState& model, double unix_seconds);

  std::unique_ptr<Sqlite> db_;
  size_t keep_rows_;
};

absl::StatusOr<uint64_t> SqliteStore::Scalar(const char* sql) {
  STRIA_ASSIGN_OR_RETURN(SqliteStatement query, db_->Prepare(sql));
  STRIA_ASSIGN_OR_RETURN(const bool found, query.Step());
  return found ? query.Integer(0) : 0;
}

absl::Status SqliteStore::Prepare() {
  // Exclusive: a second controller on the same file would hand out the same epochs.
  STRIA_RETURN_IF_ERROR(db_->Execute("PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
                                     "BEGIN EXCLUSIVE; COMMIT;"));
  STRIA_ASSIGN_OR_RETURN(SqliteStatement check, db_->Prepare("PRAGMA quick_check(1)"));
  STRIA_ASSIGN_OR_RETURN(const bool row, check.Step());
  if (!row || check.Text(0) != "ok") return absl::DataLossError(row ? check.Text(0) : "quick_check said nothing");
  STRIA_ASSIGN_OR_RETURN(const uint64_t version, Version());
  if (version > kSchemaVersion) {
    return absl::FailedPreconditionError(
        absl::StrFormat("schema version %d is newer than %d, which this controller knows", version, kSchemaVersion));
  }
  for (uint64_t next = version; next < kSchemaVersion; ++next) {
    STRIA_RETURN_IF_ERROR(db_->Transaction([&]() -> absl::Status {
      STRIA_RETURN_IF_ERROR(db_->Execute(kMigrations[next]));
      STRIA_ASSIGN_OR_RETURN(SqliteStatement update, db_->Prepare("UPDATE schema_version SET version = ?"));
      return update.Bind(1, next + 1).Run();
    }));
  }
  return absl::OkStatus();
}

// Of the file's tables; 0: an empty file.
absl::StatusOr<uint64_t> SqliteStore::Version() {
  STRIA_ASSIGN_OR_RETURN(const uint64_t tables, Scalar("SELECT count(*) FROM sqlite_master"));
  if (tables == 0) return 0;
  STRIA_ASSIGN_OR_RETURN(const uint64_t known, Scalar("SELECT count(*) FROM sqlite_master WHERE name = 'schema_version'"));
  if (known == 0) return absl::DataLossError("a database, but not the controller's");
  STRIA_ASSIGN_OR_RETURN(const uint64_t version, Scalar("SELECT version FROM schema_version"));
  if (version == 0) return absl::DataLossError("no schema version");
  return version;
}

absl::StatusOr<ControllerState> SqliteStore::Load() {
  ControllerState state;
  STRIA_ASSIGN_OR_RETURN(SqliteStatement newest, db_->Prepare("SELECT revision, after FROM revisions ORDER BY revision DESC LIMIT 1"));
  STRIA_ASSIGN_OR_RETURN(const bool changed, newest.Step());
  if (changed) {
    state.revision = newest.Integer(0);
    STRIA_ASSIGN_OR_RETURN(state.settings, ReadSettings(newest.Text(1)));
  }
  STRIA_ASSIGN_OR_RETURN(state.max_epoch, Scalar("SELECT max(epoch) FROM epochs"));
  STRIA_ASSIGN_OR_RETURN(SqliteStatement models, db_->Prepare("SELECT state FROM models ORDER BY model"));
  while (true) {
    STRIA_ASSIGN_OR_RETURN(const bool more, models.Step());
    if (!more) return state;
    STRIA_ASSIGN_OR_RETURN(const json object, Parse(models.Text(0), "a model's state"));
    STRIA_ASSIGN_OR_RETURN(ModelState model, ModelStateFromJson(object));
    state.models.push_back(std::move(model));
  }
}

absl::Status SqliteStore::AppendRevision(const Revision& revision) {
  STRIA_ASSIGN_OR_RETURN(SqliteStatement insert, db_->Prepare("INSERT INTO revisions VALUES (?, ?, ?, ?, ?, ?)"));
  return insert.Bind(1, revision.number)
      .Bind(2, revision.unix_seconds)
      .Bind(3, revision.who)
      .Bind(4, revision.why)
      .Bind(5, Dump(ToJson(revision.before)))
      .Bind(6, Dump(ToJson(revision.after)))
      .Run();
}

absl::Status SqliteStore::SaveModel(const ModelState& model, double unix_seconds) {
  STRIA_ASSIGN_OR_RETURN(SqliteStatement insert, db_->Prepare("INSERT OR REPLACE INTO models VALUES (?, ?, ?)"));
  return insert.Bind(1, model.model).Bind(2, unix_seconds).Bind(3, Dump(ToJson(model))).Run();
}

absl::Status SqliteStore::CommitEpoch(const Publication& publication, const ModelState& after, double unix_seconds) {
  return db_->Transaction([&]() -> absl::Status {
    const TierVector& vector = publication.vector;
    STRIA_ASSIGN_OR_RETURN(SqliteStatement epoch, db_->Prepare("INSERT INTO epochs VALUES (?, ?, ?, ?)"));
    STRIA_RETURN_IF_ERROR(
        epoch.Bind(1, vector.epoch).Bind(2, unix_seconds).Bind(3, vector.model).Bind(4, Dump(ToJson(vector))).Run());
    STRIA_ASSIGN_OR_RETURN(SqliteStatement flips, db_->Prepare("INSERT INTO flips VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)"));
    for (const Flip& flip : publication.flips) {
      STRIA_RETURN_IF_ERROR(flips.Bind(1, flip.epoch)
                                .Bind(2, flip.unix_seconds)
                                .Bind(3, flip.model)
                                .Bind(4, uint64_t{flip.layer})
                                .Bind(5, static_cast<uint64_t>(Bits(flip.from)))
                                .Bind(6, static_cast<uint64_t>(Bits(flip.to)))
                                .Bind(7, uint64_t{flip.first})
                                .Run());
    }
    STRIA_RETURN_IF_ERROR(SaveModel(after, unix_seconds));
    STRIA_ASSIGN_OR_RETURN(SqliteStatement prune, db_->Prepare("DELETE FROM flips WHERE id <= (SELECT max(id) FROM flips) - ?"));
    STRIA_RETURN_IF_ERROR(prune.Bind(1, uint64_t{keep_rows_}).Run());
    STRIA_ASSIGN_OR_RETURN(SqliteStatement old, db_->Prepare("DELETE FROM epochs WHERE epoch <= (SELECT max(epoch) FROM epochs) - ?"));
    return old.Bind(1, uint64_t{keep_rows_}).Run();
  });
}

absl::Status SqliteStore::SaveModels(std::span<const ModelState* const> models, std::span<const LoopStep> steps, double unix_seconds) {
  if (models.empty() && steps.empty()) return absl::OkStatus();
  return db_->Transaction([&]() -> absl::Status {
    for (const ModelState* model : models) STRIA_RETURN_IF_ERROR(SaveModel(*model, unix_seconds));
    if (steps.empty()) return absl::OkStatus();
    STRIA_ASSIGN_OR_RETURN(SqliteStatement insert, db_->Prepare("INSERT INTO loop_steps VALUES (NULL, ?, ?, ?, ?, ?)"));
    for (const LoopStep& step : steps) {
      STRIA_RETURN_IF_ERROR(
          insert.Bind(1, step.unix_seconds).Bind(2, step.model).Bind(3, step.value).Bind(4, step.kl).Bind(5, step.tokens).Run());
    }
    STRIA_ASSIGN_OR_RETURN(SqliteStatement prune, db_->Prepare("DELETE FROM loop_steps WHERE id <= (SELECT max(id) FROM loop_steps) - ?"));
    return prune.Bind(1, uint64_t{keep_rows_}).Run();
  });
}

absl::StatusOr<std::vector<Revision>> SqliteStore::Revisions(uint64_t from, size_t limit) {
  STRIA_ASSIGN_OR_RETURN(SqliteStatement query, db_->Prepare("SELECT * FROM (SELECT * FROM revisions WHERE revision >= ? "
                                                             "ORDER BY revision DESC LIMIT ?) ORDER BY revision"));
  query.Bind(1, from).Bind(2, uint64_t{limit});
  std::vector<Revision> revisions;
  while (true) {
    STRIA_ASSIGN_OR_RETURN(const bool more, query.Step());
    if (!more) return revisions;
    STRIA_ASSIGN_OR_RETURN(Revision revision, ReadRevision(query));
    revisions.push_back(std::move(revision));
  }
}

absl::StatusOr<Revision> SqliteStore::FindRevision(uint64_t number) {
  STRIA_ASSIGN_OR_RETURN(SqliteStatement query, db_->Prepare("SELECT * FROM revisions WHERE revision = ?"));
  STRIA_ASSIGN_OR_RETURN(const bool found, query.Bind(1, number).Step());
  if (!found) return absl::NotFoundError(absl::StrCat("there is no revision ", number));
  return ReadRevision(query);
}

absl::StatusOr<std::vector<Flip>> SqliteStore::Flips(size_t limit) {
  STRIA_ASSIGN_OR_RETURN(SqliteStatement query,
                         db_->Prepare("SELECT epoch, unix_seconds, model, layer, from_bits, to_bits, first FROM "
                                      "(SELECT * FROM flips ORDER BY id DESC LIMIT ?) ORDER BY id"));
  query.Bind(1, uint64_t{limit});
  std::vector<Flip> flips;
  while (true) {
    STRIA_ASSIGN_OR_RETURN(const bool more, query.Step());
    if (!more) return flips;
    const int from = static_cast<int>(query.Integer(4)), to = static_cast<int>(query.Integer(5));
    if (!IsWidth(from) || !IsWidth(to)) return absl::DataLossError(absl::StrFormat("a flip from %d to %d bits", from, to));
    flips.push_back({query.Integer(0), query.Real(1), query.Text(2), static_cast<uint32_t>(query.Integer(3)),
                     static_cast<Width>(from), static_cast<Width>(to), query.Integer(6) != 0});
  }
}

absl::StatusOr<std::vector<LoopStep>> SqliteStore::LoopSteps(size_t limit) {
  STRIA_ASSIGN_OR_RETURN(SqliteStatement query, db_->Prepare("SELECT unix_seconds, model, value, kl, tokens FROM "
                                                             "(SELECT * FROM loop_steps ORDER BY id DESC LIMIT ?) ORDER BY id"));
  query.Bind(1, uint64_t{limit});
  std::vector<LoopStep> steps;
  while (true) {
    STRIA_ASSIGN_OR_RETURN(const bool more, query.Step());
    if (!more) return steps;
    steps.push_back({query.Real(0), query.Text(1), query.Real(2), query.Real(3), query.Integer(4)});
  }
}

absl::StatusOr<OpenedStore> Open(const std::string& path, size_t keep_rows) {
  STRIA_ASSIGN_OR_RETURN(std::unique_ptr<Sqlite> db, Sqlite::Open(path));
  auto store = std::make_unique<SqliteStore>(std::move(db), keep_rows);
  STRIA_RETURN_IF_ERROR(store->Prepare());
  OpenedStore opened;
  STRIA_ASSIGN_OR_RETURN(opened.state, store->Load());
  // What the history routes will read must be readable too.
  STRIA_RETURN_IF_ERROR(store->Revisions(0, SIZE_MAX >> 1).status());
  STRIA_RETURN_IF_ERROR(store->Flips(keep_rows).status());
  STRIA_RETURN_IF_ERROR(store->LoopSteps(keep_rows).status());
  opened.store = std::move(store);
  return opened;
}

}  // namespace

absl::StatusOr<OpenedStore> OpenStateStore(const std::string& path, double unix_seconds, OpenOptions options) {
  absl::StatusOr<OpenedStore> opened = Open(path, options.keep_rows);
  if (opened.ok()) return opened;
  const std::string problem(opened.status().message());
  if (!absl::IsDataLoss(opened.status())) {
    return absl::Status(opened.status().code(), absl::StrCat("state file ", path, ": ", problem));
  }
  if (!options.put_damaged_aside) return absl::DataLossError(absl::StrCat("state file ", path, " is damaged: ", problem));
  const std::string aside = absl::StrFormat("%s.damaged-%.3f", path, unix_seconds);
  for (const char* suffix : {"", "-wal", "-shm"}) {
    std::error_code error;
    std::filesystem::rename(path + suffix, aside + suffix, error);
    if (error && error != std::errc::no_such_file_or_directory) {
      return absl::UnavailableError(
          absl::StrFormat("state file %s is damaged (%s) and cannot be renamed: %s", path, problem, error.message()));
    }
  }
  opened = Open(path, options.keep_rows);
  if (opened.ok()) opened->damage = absl::StrFormat("%s was damaged (%s); it is kept as %s", path, problem, aside);
  return opened;
}

}  // namespace stria
