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
  revision["after"] = revision["before"];
  EXPECT_EQ(RenderRevision(revision), "nothing to change (revision 4)");
}

TEST(Render, DifferencesLookIntoPins) {
  const json before = {{"tau", 0.022}, {"frozen", false}, {"pins", {{"7", {{"keys", {"int2", "int8"}}, {"values", "int4"}}}}}};
  json after = before;
  after["tau"] = 0.03;
  after["pins"] = {{"7", {{"keys", "int8"}, {"values", "int4"}}}, {"9", {{"keys", "fp16"}}}};
  const json differences = Differences(before, after);
  EXPECT_EQ(RenderDifferences(differences, false), "pins.7.keys int2..int8 -> int8\npins.9.keys - -> fp16\ntau 0.022 -> 0.03\n");
  EXPECT_EQ(differences[1], json({{"setting", "pins.9.keys"}, {"from", nullptr}, {"to", "fp16"}}));
  EXPECT_EQ(Differences(before, before), json::array());
}

TEST(Render, APlanShowsTheLayersThatWouldChange) {
  const json change = {{"revision", 5}, {"dry_run", true}, {"who", "me"}, {"reason", ""}, {"before", {{"tau", 0.022}}}, {"after", {{"tau", 0.03}}},
                       {"plan", {{"models", {{{"model", "0123456789abcdef"}, {"model_name", "M"},
                                             {"average_bits", {{"before", {{"keys", 8.0}, {"values", 8.0}}}, {"after", {{"keys", 6.0}, {"values", 8.0}}}}},
                                             {"layers", {{{"layer", 3}, {"keys", {{"from", "int8"}, {"to", "int4"}}}, {"values", {{"from", "int8"}, {"to", "int8"}}}}}}}}}}}};
  EXPECT_EQ(RenderPlan(change, false),
            "would be revision 5: tau 0.022 -> 0.03 (me)\n"
            "M (0123456789ab): 1 of its layers would change at once; mean bits 8.00 -> 6.00 keys, 8.00 -> 8.00 values\n"
            "LAYER  KEYS          VALUES\n"
            "3      int8 -> int4  int8\n");
}

TEST(Render, Events) {
  EXPECT_EQ(RenderEvent("worker", {{"worker", "w"}, {"state", "STALE"}, {"epoch_applied", 3}}), "worker w: STALE, epoch 3");
  EXPECT_EQ(RenderEvent("tiers", {{"epoch", 5}, {"flips", {{{"layer", 2}, {"from", "fp16"}, {"to", "int4"}}}}}),
            "epoch 5: layer 2 fp16->int4");
}

}  // namespace
}  // namespace stria
