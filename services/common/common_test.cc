// Metrics, config, log lines, process.
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "services/common/config.h"
#include "services/common/log.h"
#include "services/common/metrics.h"
#include "services/common/process.h"

namespace stria {
namespace {

TEST(Metrics, SerializesWithConstantLabels) {
  Metrics metrics(MetricLabels{{"model", "m"}});
  metrics.Counter("stria_test_things_total", "Things.", {{"kind", "a"}}).Increment(3);
  metrics.Counter("stria_test_things_total", "Things.", {{"kind", "a"}}).Increment();
  metrics.Gauge("stria_test_bytes", "Bytes.").Set(1.5);
  metrics.Histogram("stria_test_seconds", "Time.", {0.5, 1}).Observe(0.7);
  const std::string text = metrics.Serialize();
  EXPECT_NE(text.find("# TYPE stria_test_things_total counter"), std::string::npos) << text;
  EXPECT_NE(text.find("stria_test_things_total{model=\"m\",kind=\"a\"} 4"), std::string::npos) << text;
  EXPECT_NE(text.find("stria_test_bytes{model=\"m\"} 1.5"), std::string::npos) << text;
  EXPECT_NE(text.find("stria_test_seconds_bucket{model=\"m\",le=\"1\"} 1"), std::string::npos) << text;
  EXPECT_NE(text.find("stria_test_seconds_bucket{model=\"m\",le=\"0.5\"} 0"), std::string::npos) << text;
  auto& gone = metrics.Gauge("stria_test_worker", "One that leaves.", {{"worker", "w"}});
  metrics.RemoveGauge("stria_test_worker", gone);
  EXPECT_EQ(metrics.Serialize().find("worker=\"w\""), std::string::npos);
  EXPECT_EQ(ExponentialBuckets(1, 2, 4), (std::vector<double>{1, 2, 4, 8}));
}

TEST(MetricsDeathTest, CountersEndInTotal) {
  Metrics metrics;
  EXPECT_DEATH(metrics.Counter("stria_test_things", "Things."), "CHECK failed");
}

TEST(Metrics, AdvanceToNeverGoesBack) {
  Metrics metrics;
  auto& counter = metrics.Counter("stria_test_things_total", "Things.");
  AdvanceTo(counter, 5);
  AdvanceTo(counter, 3);
  EXPECT_EQ(counter.Value(), 5);
}

TEST(Config, ParsesBytes) {
  EXPECT_EQ(*ParseBytes("0"), 0u);
  EXPECT_EQ(*ParseBytes("1073741824"), uint64_t{1} << 30);
  EXPECT_EQ(*ParseBytes("1GiB"), uint64_t{1} << 30);
  EXPECT_EQ(*ParseBytes("2g"), uint64_t{2} << 30);
  EXPECT_EQ(*ParseBytes("512M"), uint64_t{512} << 20);
  EXPECT_EQ(*ParseBytes("64kB"), uint64_t{64} << 10);
  for (const char* bad : {"", "G", "-1", "1.5G", "1X", "1GG", "99999999999999999999", "99999999999T", " 1"}) {
    EXPECT_FALSE(ParseBytes(bad).ok()) << bad;
  }
}

std::optional<int> Parse(CLI::App& app, std::vector<std::string> arguments) {
  std::vector<char*> argv;
  arguments.insert(arguments.begin(), "program");
  for (std::string& argument : arguments) argv.push_back(argument.data());
  return ParseFlags(app, static_cast<int>(argv.size()), argv.data());
}

TEST(Config, EffectiveConfigShowsDefaultsAndHidesSecrets) {
  CLI::App app("", "program");
  app.option_defaults()->always_capture_default();
  int port = 8000;
  std::string host = "127.0.0.1", key;
  uint64_t bytes = 1024;
  bool insecure = false;
  app.add_option("--port", port);
  app.add_option("--host", host);
  app.add_option("--api-key", key);
  AddBytesOption(app, "--pool-bytes", &bytes, "");
  app.add_flag("--insecure", insecure);
  ASSERT_FALSE(Parse(app, {"--port", "81", "--api-key", "hidden", "--pool-bytes", "2K", "--insecure"}));
  EXPECT_EQ(bytes, 2048u);
  const auto json = nlohmann::json::parse(EffectiveConfigJson(app));
  EXPECT_EQ(json["port"], 81);
  EXPECT_EQ(json["host"], "127.0.0.1");
  EXPECT_EQ(json["api-key"], "***");
  EXPECT_EQ(json["insecure"], true);
  EXPECT_EQ(json["pool-bytes"], "2K");
}

TEST(Config, BadFlagsAreOneLineAndExitCode2) {
  for (const std::vector<std::string>& bad : std::vector<std::vector<std::string>>{
           {"--unknown"}, {"--port", "x"}, {"--pool-bytes", "lots"}, {"--weights", "int3"}}) {
    CLI::App app("", "program");
    int port = 0;
    uint64_t bytes = 0;
    std::string weights;
    app.add_option("--port", port);
    AddBytesOption(app, "--pool-bytes", &bytes, "");
    app.add_option("--weights", weights)->check(CLI::IsMember({"int8", "bf16"}));
    testing::internal::CaptureStderr();
    EXPECT_EQ(Parse(app, bad), 2) << bad[0];
    const std::string line = testing::internal::GetCapturedStderr();
    EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
    EXPECT_NE(line.find(bad.back().substr(0, 4)), std::string::npos) << line;
  }
}

TEST(Log, StaysOneLine) {
  EXPECT_EQ(FormatLogLine(LogLevel::kInfo, "worker", "model loaded", {{"layers", 30}, {"seconds", 1.5}, {"ok", true}}),
            "INFO worker \"model loaded\" layers=30 seconds=1.5 ok=true");
  EXPECT_EQ(FormatLogLine(LogLevel::kError, "s", "a\nb", {{"path", "x y\"z\x01"}, {"empty", ""}}),
            "ERROR s \"a\\x0ab\" path=\"x y\\\"z\\x01\" empty=\"\"");
}

TEST(Process, QuotasAndIncarnations) {
  EXPECT_EQ(CpusOfQuota("max 100000"), 0);
  EXPECT_EQ(CpusOfQuota(""), 0);
  EXPECT_EQ(CpusOfQuota("200000 100000"), 2);
  EXPECT_EQ(CpusOfQuota("150000 100000"), 1);
  EXPECT_EQ(CpusOfQuota("50000 100000"), 1);
  EXPECT_EQ(CpusOfQuota("-1 100000"), 0);
  EXPECT_GE(AvailableCpus(), 1);
  const uint64_t incarnation = NewIncarnation();
  EXPECT_LT(incarnation, uint64_t{1} << 53);
  EXPECT_GT(incarnation, uint64_t{1} << 52);  // of our time
}

}  // namespace
}  // namespace stria
