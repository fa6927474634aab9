#include "services/controller/state_store.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/check.h"
#include "base/random.h"
#include "gtest/gtest.h"
#include "services/controller/sqlite.h"
#include "services/controller/state_json.h"

namespace stria {
namespace {

namespace fs = std::filesystem;

class StateStoreTest : public testing::Test {
 protected:
  StateStoreTest() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / (std::string(info->name()) + "-" + std::to_string(getpid()));
    fs::create_directories(folder_);
    path_ = folder_ / "state.db";
  }
  ~StateStoreTest() override { fs::remove_all(folder_); }

  // As an operator would who is content with a new file when the old one is damaged.
  OpenedStore Open(size_t keep_rows = 1000) {
    auto opened = OpenStateStore(path_, 1e9, {.put_damaged_aside = true, .keep_rows = keep_rows});
    EXPECT_TRUE(opened.ok()) << opened.status();
    return *std::move(opened);
  }
  void Overwrite(std::streamoff at, const std::string& bytes) {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(at);
    file << bytes;
  }
  std::vector<std::string> Files() {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  fs::path folder_;
  std::string path_;
};

Revision MakeRevision(uint64_t number) {
  Revision revision{.number = number, .unix_seconds = 1.5e9 + number, .who = "me@host", .why = "reason ä \"quoted\"",
                    .before = {}, .after = {}};
  revision.before.tau = 0.01 * number;
  revision.after.tau = 0.01 * (number + 1);
  revision.after.policy = PolicyKind::kBudget;
  revision.after.values.narrowest = Width::kInt4;
  revision.after.pins = {{7, {.keys = {Width::kInt8, Width::kInt8}, .values = {}}}, {29, {.keys = {}, .values = {Width::kInt2, Width::kInt8}}}};
  return revision;
}

Publication MakePublication(uint64_t epoch) {
  Publication publication;
  publication.vector.epoch = epoch;
  publication.vector.model = "m";
  publication.vector.layers.resize(2);
  publication.vector.layers[0].keys = Width::kInt4;
  publication.flips.push_back({epoch, 2e9, "m", 0, Width::kFp16, Width::kInt4, epoch == 1});
  return publication;
}

ModelState MakeModel(uint64_t epoch) {
  ModelState model = NewModelState("m", "Model", 2, 2);
  model.published = MakePublication(epoch).vector;
  model.ranks[1][0].plain = {Ema(0.1 + 1e-17, 3), Ema(1.0 / 3, 3), Ema(1e-300, 3)};
  model.ranks[1][0].latent[0] = Ema(0.7, 1);
  model.ranks[0][1].tier.guard_plain = Width::kInt8;
  model.ranks[0][1].decided = true;
  model.ranks[0][1].stable = {1, 2, 3};
  model.ranks[0][1].above = 2;
  model.warmup_from = 5;
  model.published_decided = {1, 0};
  model.flips = {5, 0};
  model.firings = 17;
  model.unit_epoch = ModelState::kUnitPending;
  model.quality.tokens = 12345;
  model.quality.recent = TokenMean(0.1 + 1e-17, 1499.5);
  model.quality.by_length = {{512, TokenMean(1.0 / 3, 2)}, {1024, TokenMean(1e-9, 20000)}};
  model.quality.loop = {.engaged = true, .log_value = -3.9, .error = 0.125, .recorded = -3.8};
  return model;
}

TEST_F(StateStoreTest, KeepsEverythingExactly) {
  {
    OpenedStore opened = Open();
    EXPECT_EQ(opened.state.revision, 0u);
    EXPECT_EQ(opened.state.settings, Settings{});
    ASSERT_TRUE(opened.store->AppendRevision(MakeRevision(1)).ok());
    ASSERT_TRUE(opened.store->AppendRevision(MakeRevision(2)).ok());
    ASSERT_TRUE(opened.store->CommitEpoch(MakePublication(41), MakeModel(41), 2e9).ok());
  }
  OpenedStore opened = Open();
  EXPECT_EQ(opened.damage, "");
  EXPECT_EQ(opened.state.revision, 2u);
  EXPECT_EQ(opened.state.settings, MakeRevision(2).after);
  EXPECT_EQ(opened.state.max_epoch, 41u);
  ASSERT_EQ(opened.state.models.size(), 1u);
  const ModelState& model = opened.state.models[0];
  const ModelState expected = MakeModel(41);
  EXPECT_EQ(model.ranks, expected.ranks);
  EXPECT_EQ(model.published, expected.published);
  EXPECT_EQ(model.published_decided, expected.published_decided);
  EXPECT_EQ(model.flips, expected.flips);
  EXPECT_EQ(model.firings, 17u);
  EXPECT_EQ(model.unit_epoch, ModelState::kUnitPending);
  EXPECT_EQ(model.quality.tokens, 12345u);
  EXPECT_EQ(model.quality.recent, expected.quality.recent);
  EXPECT_EQ(model.quality.by_length, expected.quality.by_length);
  EXPECT_EQ(model.quality.loop, expected.quality.loop);
  EXPECT_EQ(*opened.store->Revisions(2, 10), std::vector<Revision>{MakeRevision(2)});
  EXPECT_EQ(opened.store->Revisions(0, 10)->size(), 2u);
  EXPECT_EQ(*opened.store->Revisions(0, 1), std::vector<Revision>{MakeRevision(2)}) << "the newest";
  EXPECT_EQ(*opened.store->Flips(10), MakePublication(41).flips);
}

TEST_F(StateStoreTest, RevisionsAreNeverOverwritten) {
  OpenedStore opened = Open();
  ASSERT_TRUE(opened.store->AppendRevision(MakeRevision(1)).ok());
  EXPECT_FALSE(opened.store->AppendRevision(MakeRevision(1)).ok());
  ASSERT_TRUE(opened.store->CommitEpoch(MakePublication(1), MakeModel(1), 0).ok());
  EXPECT_FALSE(opened.store->CommitEpoch(MakePublication(1), MakeModel(1), 0).ok());
  EXPECT_EQ(opened.store->Flips(10)->size(), 1u) << "the failed transaction left nothing";
  EXPECT_TRUE(opened.store->CommitEpoch(MakePublication(2), MakeModel(2), 0).ok());
}

TEST_F(StateStoreTest, BoundsItsHistory) {
  OpenedStore opened = Open(5);
  for (uint64_t epoch = 1; epoch <= 20; ++epoch) {
    ASSERT_TRUE(opened.store->CommitEpoch(MakePublication(epoch), MakeModel(epoch), 0).ok());
  }
  const auto flips = opened.store->Flips(100);
  ASSERT_EQ(flips->size(), 5u);
  EXPECT_EQ(flips->front().epoch, 16u);
  EXPECT_EQ(flips->back().epoch, 20u);
  EXPECT_EQ(opened.store->Load()->max_epoch, 20u);
}

TEST_F(StateStoreTest, KeepsTheNewestStepsOfTheLoops) {
  OpenedStore opened = Open(/*keep_rows=*/3);
  std::vector<LoopStep> steps;
  for (uint64_t i = 1; i <= 5; ++i) steps.push_back({1e9 + static_cast<double>(i), "m", 0.022 / static_cast<double>(i), 0.1 + 1e-17, 100 * i});
  ASSERT_TRUE(opened.store->SaveModels({}, std::span(steps).first(2), 0).ok());
  ASSERT_TRUE(opened.store->SaveModels({}, std::span(steps).subspan(2), 0).ok());
  EXPECT_EQ(*opened.store->LoopSteps(10), std::vector<LoopStep>(steps.begin() + 2, steps.end()));
  EXPECT_EQ(*opened.store->LoopSteps(1), std::vector<LoopStep>{steps[4]}) << "the newest";
}

TEST_F(StateStoreTest, TwoControllersCannotShareAFile) {
  OpenedStore opened = Open();
  const auto second = OpenStateStore(path_, 1e9);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition) << second.status();
  EXPECT_EQ(Files().front(), "state.db");
}

TEST_F(StateStoreTest, AFileThatIsNoDatabaseIsKeptAside) {
  std::ofstream(path_) << std::string(10'000, 'x');
  OpenedStore opened = Open();
  EXPECT_NE(opened.damage.find(path_), std::string::npos);
  EXPECT_EQ(opened.state.revision, 0u);
  ASSERT_TRUE(opened.store->AppendRevision(MakeRevision(1)).ok());
  ASSERT_TRUE(fs::exists(path_ + ".damaged-1000000000.000"));
  EXPECT_EQ(fs::file_size(path_ + ".damaged-1000000000.000"), 10'000u);
}

TEST_F(StateStoreTest, ADamagedFileIsLeftAloneUnlessOneSaysOtherwise) {
  std::ofstream(path_) << std::string(10'000, 'x');
  const auto refused = OpenStateStore(path_, 1e9);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kDataLoss) << refused.status();
  EXPECT_NE(std::string(refused.status().message()).find(path_), std::string::npos);
  EXPECT_EQ(Files(), std::vector<std::string>{"state.db"});
  std::ifstream file(path_);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), std::string(10'000, 'x'));
}

TEST_F(StateStoreTest, OneRevisionIsFoundByItsNumber) {
  OpenedStore opened = Open();
  for (uint64_t i = 1; i <= 3; ++i) ASSERT_TRUE(opened.store->AppendRevision(MakeRevision(i)).ok());
  EXPECT_EQ(*opened.store->FindRevision(2), MakeRevision(2));
  EXPECT_EQ(opened.store->FindRevision(4).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(opened.store->FindRevision(0).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(StateStoreTest, DamageInTheMiddleIsFound) {
  {
    OpenedStore opened = Open();
    for (uint64_t i = 1; i <= 30; ++i) {
      Revision revision = MakeRevision(i);
      revision.why.assign(4000, 'x');  // enough pages for one to lie in the middle
      ASSERT_TRUE(opened.store->AppendRevision(revision).ok());
    }
  }
  Overwrite(fs::file_size(path_) / 2 & ~4095, std::string(4096, '\xa5'));
  OpenedStore opened = Open();
  EXPECT_NE(opened.damage, "");
  EXPECT_EQ(opened.state.revision, 0u);
  EXPECT_TRUE(fs::exists(path_ + ".damaged-1000000000.000"));
}

TEST_F(StateStoreTest, ContentThatMakesNoSenseIsDamageToo) {
  const auto damaged = [&](const char* sql) {
    fs::remove(path_);
    Open().store->CommitEpoch(MakePublication(1), MakeModel(1), 0).IgnoreError();
    EXPECT_TRUE((*Sqlite::Open(path_))->Execute(sql).ok()) << sql;
    return !Open().damage.empty();
  };
  EXPECT_TRUE(damaged("UPDATE models SET state = '{'"));
  EXPECT_TRUE(damaged("UPDATE models SET state = '{}'"));
  EXPECT_TRUE(damaged("UPDATE models SET state = json_set(state, '$.published.layers[0][0]', 5)"));
  EXPECT_TRUE(damaged("UPDATE models SET state = json_set(state, '$.ranks[0][0].plain[0][0]', -1)"));
  EXPECT_TRUE(damaged("UPDATE models SET state = json_remove(state, '$.ranks[1][1]')"));
  EXPECT_TRUE(damaged("INSERT INTO revisions VALUES (1, 0, '', '', '{}', '{\"tau\": -1}')"));
  EXPECT_TRUE(damaged("UPDATE flips SET to_bits = 3"));
  EXPECT_TRUE(damaged("DROP TABLE epochs"));
  EXPECT_FALSE(damaged("SELECT 1"));
}

TEST_F(StateStoreTest, AFileOfANewerControllerIsRefusedAndLeftAlone) {
  Open();
  ASSERT_TRUE((*Sqlite::Open(path_))->Execute("UPDATE schema_version SET version = 99").ok());
  const auto opened = OpenStateStore(path_, 1e9);
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kFailedPrecondition) << opened.status();
  EXPECT_EQ(Files(), std::vector<std::string>{"state.db"});
}

TEST_F(StateStoreTest, AFolderThatIsNotThereIsAnError) {
  EXPECT_EQ(OpenStateStore(folder_ / "no" / "state.db", 0).status().code(), absl::StatusCode::kUnavailable);
}

// A child commits revisions and epochs as fast as it can and reports each after its call returned. It is killed at a random
// moment; whatever it reported must be there, whole, and nothing in between may be missing.
TEST_F(StateStoreTest, KilledAtAnyMomentItLosesNothingAcknowledged) {
  uint64_t reported = 0;
  for (uint64_t round = 0; round < 12; ++round) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto opened = OpenStateStore(path_, 1e9);
      if (!opened.ok()) _exit(3);
      for (uint64_t i = opened->state.revision + 1;; ++i) {
        if (!opened->store->AppendRevision(MakeRevision(i)).ok()) _exit(4);
        if (!opened->store->CommitEpoch(MakePublication(i), MakeModel(i), 0).ok()) _exit(5);
        if (write(ends[1], &i, sizeof i) != sizeof i) _exit(6);
      }
    }
    close(ends[1]);
    uint64_t number = 0;
    ASSERT_EQ(read(ends[0], &number, sizeof number), static_cast<ssize_t>(sizeof number)) << "the child failed";
    reported = number;
    std::this_thread::sleep_for(std::chrono::microseconds(static_cast<int>(20'000 * Uniform(11, 0, round))));
    kill(child, SIGKILL);
    while (read(ends[0], &number, sizeof number) == sizeof number) reported = number;
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself: " << WEXITSTATUS(status);

    OpenedStore opened = Open();
    EXPECT_EQ(opened.damage, "");
    EXPECT_GE(opened.state.revision, reported);
    EXPECT_GE(opened.state.max_epoch, reported);
    EXPECT_LE(opened.state.revision - opened.state.max_epoch, 1u);
    ASSERT_EQ(opened.state.models.size(), 1u);
    EXPECT_EQ(opened.state.models[0].published.epoch, opened.state.max_epoch) << "vector and evidence of one transaction";
    const auto revisions = opened.store->Revisions(0, 1'000'000);
    ASSERT_TRUE(revisions.ok());
    ASSERT_EQ(revisions->size(), opened.state.revision);
    EXPECT_EQ(revisions->back(), MakeRevision(opened.state.revision));
    // Only the revision may have made it: bring both in step for the next round.
    if (opened.state.max_epoch < opened.state.revision) {
      const uint64_t i = opened.state.revision;
      ASSERT_TRUE(opened.store->CommitEpoch(MakePublication(i), MakeModel(i), 0).ok());
    }
  }
  EXPECT_GT(reported, 12u);
}

// What the file must hold after each acknowledged step of the child below.
constexpr int kSteps = 5;
absl::Status TakeStep(StateStore& store, int step) {
  switch (step) {
    case 0: return store.AppendRevision(MakeRevision(1));
    case 1: return store.CommitEpoch(MakePublication(1), MakeModel(1), 0);
    case 2: return store.AppendRevision(MakeRevision(2));
    case 3: return store.CommitEpoch(MakePublication(2), MakeModel(2), 0);
    default: {
      const ModelState model = MakeModel(2);
      const ModelState* const list[] = {&model};
      return store.SaveModels(list, std::vector<LoopStep>{{.unix_seconds = 1, .model = "m", .value = 0.02, .kl = 0.001, .tokens = 300}}, 0);
    }
  }
}

// Kills this process before the nth statement that SQLite begins, or after the nth that it ends.
struct DeathAt {
  int remaining;
  unsigned event;  // SQLITE_TRACE_STMT or SQLITE_TRACE_PROFILE
};
DeathAt death;

int Die(unsigned event, void*, void*, void*) {
  if (event == death.event && --death.remaining == 0) kill(getpid(), SIGKILL);
  return 0;
}

int WatchStatements(sqlite3* db, const char**, const sqlite3_api_routines*) {
  return sqlite3_trace_v2(db, death.event, &Die, nullptr);
}

// Runs the steps in a child that dies at the given statement. Returns how many it acknowledged; `died` is false when it lived to the end.
int StepsBeforeDeath(const std::string& path, DeathAt at, bool& died) {
  int ends[2];
  STRIA_CHECK(pipe(ends) == 0);
  const pid_t child = fork();
  STRIA_CHECK(child >= 0);
  if (child == 0) {
    death = at;
    sqlite3_auto_extension(reinterpret_cast<void (*)()>(&WatchStatements));
    auto opened = OpenStateStore(path, 1e9);
    if (!opened.ok()) _exit(3);
    for (int step = 0; step < kSteps; ++step) {
      if (!TakeStep(*opened->store, step).ok()) _exit(4);
      const char done = 1;
      if (write(ends[1], &done, 1) != 1) _exit(5);
    }
    _exit(0);
  }
  close(ends[1]);
  int acknowledged = 0;
  for (char done; read(ends[0], &done, 1) == 1;) ++acknowledged;
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  died = WIFSIGNALED(status);
  EXPECT_TRUE(died || WEXITSTATUS(status) == 0) << "the child failed: " << WEXITSTATUS(status);
  return acknowledged;
}

TEST_F(StateStoreTest, KilledAtAnyStatementItLosesNothingAcknowledged) {
  for (const unsigned event : {SQLITE_TRACE_STMT, SQLITE_TRACE_PROFILE}) {
    int deaths = 0;
    for (bool died = true; died; ++deaths) {
      ASSERT_LT(deaths, 500);
      for (const std::string& name : Files()) fs::remove(folder_ / name);
      const int acknowledged = StepsBeforeDeath(path_, {deaths + 1, event}, died);
      const auto opened = OpenStateStore(path_, 1e9);  // by default: damage would be an error
      ASSERT_TRUE(opened.ok()) << "death " << deaths << ": " << opened.status();
      // What was under way may be there or not, but only whole; what was acknowledged is there.
      const uint64_t revisions = opened->state.revision, epoch = opened->state.max_epoch;
      const auto within = [&](uint64_t value, int first_step) {
        const uint64_t least = (acknowledged > first_step) + (acknowledged > first_step + 2);
        const uint64_t most = (acknowledged >= first_step) + (acknowledged >= first_step + 2);
        return value >= least && value <= most;
      };
      EXPECT_TRUE(within(revisions, 0)) << "death " << deaths << ": " << acknowledged << " steps, revision " << revisions;
      EXPECT_TRUE(within(epoch, 1)) << "death " << deaths << ": " << acknowledged << " steps, epoch " << epoch;
      EXPECT_EQ(opened->store->Revisions(0, 100)->size(), revisions);
      EXPECT_EQ(opened->store->Flips(100)->size(), epoch) << "vector and flips of one transaction";
      ASSERT_EQ(opened->state.models.size(), epoch > 0);
      if (epoch > 0) {
        EXPECT_EQ(opened->state.models[0].published, MakePublication(epoch).vector);
      }
    }
    EXPECT_GT(deaths, 30) << "statements were not seen";
  }
}

// A file made by the first release, from its tables' text.
void MakeVersion1(const std::string& path) {
  std::ifstream file("services/controller/testdata/state_v1.sql");
  const std::string sql{std::istreambuf_iterator<char>(file), {}};
  ASSERT_FALSE(sql.empty());
  ASSERT_TRUE((*Sqlite::Open(path))->Execute(sql.c_str()).ok());
}

void ExpectVersion1Content(OpenedStore& opened) {
  EXPECT_EQ(opened.state.revision, 2u);
  EXPECT_EQ(opened.state.max_epoch, 41u);
  EXPECT_DOUBLE_EQ(opened.state.settings.tau, 0.03);
  Settings then;
  then.tau = 0.03;
  then.alpha = 0.1;
  then.promote_band = 0;
  then.promote_after = 1;
  then.promote_at_once = 1.25;
  EXPECT_EQ(opened.state.settings, then) << "what it does not name means what it meant then";
  ASSERT_EQ(opened.state.models.size(), 1u);
  const ModelState& model = opened.state.models[0];
  ModelState expected = MakeModel(41);
  expected.ranks[0][1].above = 0;  // not known then
  // Guards were FP16 before the first reading; the next decision sets them right.
  for (LayerTier& tier : expected.published.layers) tier.guard_plain = tier.guard_latent = Width::kFp16;
  for (auto& layers : expected.ranks) {
    for (LayerState& layer : layers) {
      layer.tier.guard_latent = Width::kFp16;
      if (layer.tier.guard_plain == Width::kInt2) layer.tier.guard_plain = Width::kFp16;
    }
  }
  EXPECT_EQ(model.published, expected.published);
  EXPECT_EQ(model.ranks, expected.ranks);
  EXPECT_EQ(model.warmup_from, 0u);
  EXPECT_EQ(model.quality.tokens, 0u);
  EXPECT_FALSE(model.quality.loop.engaged);
  EXPECT_EQ(model.flips, MakeModel(41).flips);
  EXPECT_EQ(*opened.store->Flips(10), MakePublication(41).flips);
  EXPECT_EQ(opened.store->FindRevision(1)->why, MakeRevision(1).why);
}

TEST_F(StateStoreTest, AFileOfTheFirstReleaseIsBroughtUpToDate) {
  MakeVersion1(path_);
  {
    OpenedStore opened = Open();
    EXPECT_EQ(opened.damage, "");
    ExpectVersion1Content(opened);
    ASSERT_TRUE(opened.store->AppendRevision(MakeRevision(3)).ok());
  }
  {
    const auto db = Sqlite::Open(path_);
    ASSERT_TRUE(db.ok());
    auto version = (*db)->Prepare("SELECT version FROM schema_version");
    ASSERT_TRUE(version.ok() && *version->Step());
    EXPECT_GT(version->Integer(0), 1u);
  }
  EXPECT_EQ(Open().state.revision, 3u);
}

TEST_F(StateStoreTest, KilledAtAnyStatementOfTheMigrationItStillHasAll) {
  bool died = true;
  for (int n = 1; died; ++n) {
    ASSERT_LT(n, 500);
    for (const std::string& name : Files()) fs::remove(folder_ / name);
    MakeVersion1(path_);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      death = {n, SQLITE_TRACE_STMT};
      sqlite3_auto_extension(reinterpret_cast<void (*)()>(&WatchStatements));
      _exit(OpenStateStore(path_, 1e9).ok() ? 0 : 3);
    }
    int status = 0;
    waitpid(child, &status, 0);
    died = WIFSIGNALED(status);
    ASSERT_TRUE(died || WEXITSTATUS(status) == 0);
    auto opened = OpenStateStore(path_, 1e9);
    ASSERT_TRUE(opened.ok()) << opened.status();
    ExpectVersion1Content(*opened);
  }
}

TEST(StateJson, UndoPutsBackWhatOneChangeDidAndLeavesTheRest) {
  const auto parse = [](const char* text) { return nlohmann::json::parse(text); };
  const auto before = parse(R"({"tau": 1, "rate": 1, "pins": {"1": {"keys": "int8"}, "2": {"keys": "int2"}}})");
  const auto after = parse(R"({"tau": 2, "rate": 1, "pins": {"1": {"keys": "fp16"}, "3": {"keys": "int4"}}})");
  const auto now = parse(R"({"tau": 3, "rate": 5, "pins": {"1": {"keys": "fp16"}, "3": {"keys": "int4"}, "4": {"keys": "int8"}}})");
  EXPECT_EQ(UndoChange(now, before, after),
            parse(R"({"tau": 1, "rate": 5, "pins": {"1": {"keys": "int8"}, "2": {"keys": "int2"}, "4": {"keys": "int8"}}})"));
  EXPECT_EQ(UndoChange(after, before, after), before);
}

TEST(StateJson, SettingsTakeOnlyWhatTheyKnow) {
  const auto refused = [](const char* text) { return std::string(SettingsFromJson(nlohmann::json::parse(text), {}).status().message()); };
  EXPECT_EQ(SettingsFromJson(nlohmann::json::parse(R"({"tau": 1, "frozen": true})"), {})->frozen, true);
  EXPECT_NE(refused(R"({"taw": 1})").find("taw"), std::string::npos);
  EXPECT_NE(refused(R"({"tau": "1"})").find("tau = \"1\""), std::string::npos);
  EXPECT_NE(refused(R"({"frozen": 1})").find("frozen = 1"), std::string::npos);
  EXPECT_NE(refused(R"({"tau": true})").find("tau = true"), std::string::npos);
  EXPECT_NE(refused(R"({"tau": null})").find("tau = null"), std::string::npos);
  EXPECT_NE(refused(R"({"demote_after": 1.5})").find("demote_after = 1.5"), std::string::npos);
  EXPECT_NE(refused(R"({"reference_length": -4096})").find("reference_length = -4096"), std::string::npos);
  EXPECT_NE(refused(R"({"keys_widest": 1})").find("keys_widest = \"1\": must be one of int2"), std::string::npos) << "a choice is a name, not a place in a list";
  EXPECT_NE(refused("[]").find("object"), std::string::npos);
}

TEST(StateJson, BytesThatAreNotTextDoNotStopIt) {
  EXPECT_EQ(Dump(nlohmann::json("a\xff" "b")), "\"a\xEF\xBF\xBD" "b\"");
}

}  // namespace
}  // namespace stria
