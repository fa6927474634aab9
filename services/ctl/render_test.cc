#include "services/ctl/render.h"

#include "gtest/gtest.h"
#include "services/ctl/table.h"

namespace stria {
namespace {

using nlohmann::json;

TEST(Table, AlignsByCharactersAndColoursOnlyWhenAsked) {
  Table table({"A", "B"});
  table.Add({"xyz", {"1", Colour::kGreen}});
  table.Add({"ä", "2"});
  EXPECT_EQ(table.Text(false), "A    B\nxyz  1\nä    2\n");
  EXPECT_NE(table.Text(true).find("\033[32m1\033[0m"), std::string::npos);
}

TEST(Table, NoNameMovesTheCursor) {
  Table table({"A"});
  table.Add({"\033[2Jx\n"});
  EXPECT_EQ(table.Text(false), "A\n?[2Jx?\n");
}

json Worker(const char* state) {
  return {{"worker", "w"}, {"state", state}, {"epoch_applied", 3}, {"epoch_sent", 4}, {"heard_seconds_ago", 0.25}, {"frames", 9},
          {"frames_lost", 1}, {"restarts", 0}, {"http", "127.0.0.1:8002"}};
}

TEST(Render, StatusShowsEachWorkersState) {
  json status = {{"revision", 2}, {"tau", 0.022}, {"frozen", true}, {"models", json::array()}, {"workers", json::array()},
                 {"state_file", {{"damage", nullptr}, {"error", "disk full"}}}};
  EXPECT_NE(RenderStatus(status, false).find("no worker has said hello yet"), std::string::npos);
  EXPECT_FALSE(AllSynced(status)) << "nobody is not everybody";
  status["workers"] = {Worker("SYNCED"), Worker("SYNCED")};
  EXPECT_TRUE(AllSynced(status));
  status["workers"] = {Worker("SYNCED"), Worker("STALE"), Worker("NEVER")};
  EXPECT_FALSE(AllSynced(status));
  const std::string text = RenderStatus(status, false);
  for (const char* part : {"revision 2, tau 0.022, FROZEN", "state file: disk full", "SYNCED", "STALE", "NEVER acknowledged", "0.2s ago"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  EXPECT_EQ(text.find('\033'), std::string::npos);
}

TEST(Render, TiersMarkWhatIsUnderTau) {
  const json tiers = {{"tau", 0.022},
                      {"model", "0123456789abcdef"},
                      {"model_name", "M"},
                      {"epoch", 7},
                      {"firings", 3},
                      {"average_bits", {{"keys", 4.0}, {"values", 4.0}}},
                      {"layers",
                       {{{"layer", 0}, {"keys", "int4"}, {"values", "int4"}, {"flips", 2},
                         {"ema", {{"int2", 0.31}, {"int4", 0.012}, {"int8", 0.0001}}}},
                        {{"layer", 1}, {"keys", "fp16"}, {"values", "fp16"}, {"flips", 0}, {"ema", nullptr}}}}};
  EXPECT_EQ(RenderTiers(tiers, false),
            "M (0123456789ab): epoch 7, tau 0.022, 3 firings, mean bits 4.00 keys, 4.00 values\n"
            "LAYER  KEYS  VALUES  EMA INT2  EMA INT4   EMA INT8   FLIPS\n"
            "0      int4  int4    0.31000   0.01200 <  0.00010 <  2\n"
            "1      fp16  fp16    -         -          -          0\n"
            "(<: under tau)\n");
}

TEST(Render, RevisionsAreOneLine) {
  json revision = {{"revision", 4}, {"who", "me"}, {"reason", "more room\nreally"}, {"changed", {"tau"}},
                   {"before", {{"tau", 0.022}}}, {"after", {{"tau", 0.03}}}};
  EXPECT_EQ(RenderRevision(revision), "revision 4: tau 0.022 -> 0.03 (me: more room?really)");
  revision["dry_run"] = true;
  EXPECT_EQ(RenderRevision(revision), "would be revision 4: tau 0.022 -> 0.03 (me: more room?really)");
  revision["changed"] = json::array();
  EXPECT_EQ(RenderRevision(revision), "nothing to change (revision 4)");
}

TEST(Render, Events) {
  EXPECT_EQ(RenderEvent("worker", {{"worker", "w"}, {"state", "STALE"}, {"epoch_applied", 3}}), "worker w: STALE, epoch 3");
  EXPECT_EQ(RenderEvent("tiers", {{"epoch", 5}, {"flips", {{{"layer", 2}, {"from", "fp16"}, {"to", "int4"}}}}}),
            "epoch 5: layer 2 fp16->int4");
}

}  // namespace
}  // namespace stria
