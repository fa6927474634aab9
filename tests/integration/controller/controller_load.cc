// How much one controller carries: starts one, confined to one CPU, under a fleet of simulated workers, some of which stand still, and
// changes tau again and again. Prints what was lost, how long changes took to arrive, CPU time and memory.
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "services/common/config.h"
#include "services/common/http_client.h"
#include "services/common/process.h"
#include "tests/integration/controller/fleet.h"

namespace stria {
namespace {

struct Flags {
  std::string controller = "bazel-bin/services/controller/controller";
  std::string fake_worker = "bazel-bin/tests/integration/controller/fake_worker";
  FleetOptions fleet;
  int stalled = 20, seconds = 20, changes = 10, cpu = 0;
};

MonotonicTime Now() { return std::chrono::steady_clock::now(); }

// Sum of the samples of a metric.
double Metric(const std::string& port, const std::string& name) {
  HttpClient client("127.0.0.1", static_cast<uint16_t>(std::stoi(port)), 30);
  const auto reply = client.Get("/metrics");
  if (!reply.ok()) return -1;
  double sum = 0;
  for (const absl::string_view line : absl::StrSplit(reply->body, '\n')) {
    const std::string text(line);
    double value = 0;
    if (!text.starts_with(name) || (text[name.size()] != ' ' && text[name.size()] != '{')) continue;
    if (absl::SimpleAtod(text.substr(text.rfind(' ') + 1), &value)) sum += value;
  }
  return sum;
}

// In a thread of its own, since the fleet's must go on.
void Put(const std::string& port, double tau) {
  HttpClient client("127.0.0.1", static_cast<uint16_t>(std::stoi(port)), 30);
  const auto reply = client.Request("PUT", "/v1/settings", absl::StrCat("{\"tau\": ", tau, "}"));
  if (!reply.ok() || reply->status != 200) std::fprintf(stderr, "a change was refused\n");
}

double ResidentMegabytes(pid_t pid) {
  std::ifstream status(absl::StrCat("/proc/", pid, "/status"));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::stod(line.substr(6)) / 1024;
  }
  return 0;
}

double CpuSeconds(pid_t pid) {
  std::ifstream stat(absl::StrCat("/proc/", pid, "/stat"));
  std::string text;
  std::getline(stat, text);
  const std::vector<std::string> fields = absl::StrSplit(text.substr(text.rfind(')') + 2), ' ');
  return (std::stod(fields[11]) + std::stod(fields[12])) / sysconf(_SC_CLK_TCK);
}

double Quantile(std::vector<double> values, double q) {
  if (values.empty()) return -1;
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, static_cast<size_t>(q * values.size()))];
}

int Measure(const Flags& flags) {
  const std::string folder = absl::StrCat(std::filesystem::temp_directory_path().string(), "/controller-load-", getpid());
  std::filesystem::create_directories(folder);
  // The child inherits the one CPU; this process then takes the others.
  cpu_set_t all, one;
  sched_getaffinity(0, sizeof all, &all);
  CPU_ZERO(&one);
  CPU_SET(flags.cpu, &one);
  sched_setaffinity(0, sizeof one, &one);
  const auto controller = RunningController::Start(flags.controller, {"--state", folder + "/state.db"}, {}, folder + "/controller");
  if (CPU_COUNT(&all) > 1) CPU_CLR(flags.cpu, &all);
  sched_setaffinity(0, sizeof all, &all);
  if (controller == nullptr) {
    std::fprintf(stderr, "%s did not come up\n", flags.controller.c_str());
    return 1;
  }
  const pid_t pid = controller->process().pid();
  const std::string& http = controller->ports().http;
  Fleet fleet(controller->ports(), flags.fleet);
  std::vector<std::unique_ptr<ChildProcess>> stalled;
  for (int i = 0; i < flags.stalled; ++i) {
    stalled.push_back(std::make_unique<ChildProcess>(std::vector<std::string>{flags.fake_worker, controller->ports().tiers, absl::StrCat("s", i), "1",
                                                                              "0", std::to_string(flags.fleet.layers)},
                                                     absl::StrCat(folder, "/s", i)));
  }
  const auto for_seconds = [&](double seconds) {
    const MonotonicTime end = Now() + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
    fleet.Run([&] { return Now() >= end; });
  };
  fleet.Run([&] { return fleet.Applied(1) == flags.fleet.workers; });
  fleet.SetFiring(true);
  for_seconds(3);  // subscriptions are under way
  for (const auto& worker : stalled) worker->Signal(SIGSTOP);

  const double lost = Metric(http, "stria_controller_frames_lost_total"), accepted = Metric(http, "stria_controller_frames_accepted_total");
  const uint64_t fired = fleet.fired();
  const double memory = ResidentMegabytes(pid), cpu = CpuSeconds(pid);
  const MonotonicTime start = Now();
  for_seconds(flags.seconds);
  const double steady_cpu = (CpuSeconds(pid) - cpu) / std::chrono::duration<double>(Now() - start).count();

  std::vector<double> delays;
  uint64_t missing = 0;
  for (int change = 0; change < flags.changes; ++change) {
    const uint64_t epoch = static_cast<uint64_t>(Metric(http, "stria_controller_epoch"));
    const MonotonicTime asked = Now();
    std::thread put(Put, http, change % 2 == 0 ? 0.004 : 0.022);
    for_seconds(2);
    put.join();
    const std::vector<double> some = fleet.Delays(epoch, asked);
    delays.insert(delays.end(), some.begin(), some.end());
    missing += flags.fleet.workers - some.size();
  }
  fleet.SetFiring(false);
  for_seconds(1);
  const double got = Metric(http, "stria_controller_frames_accepted_total") - accepted;
  const uint64_t sent = fleet.fired() - fired;
  const double gaps = Metric(http, "stria_controller_frames_lost_total") - lost;
  std::printf("workers %d, layers %u, one firing each %.2f s; %d more stand still; the controller has CPU %d\n", flags.fleet.workers,
              flags.fleet.layers, std::chrono::duration<double>(flags.fleet.firing_every).count(), flags.stalled, flags.cpu);
  std::printf("telemetry: %llu frames sent, %.0f accepted, %.0f lost by their numbers\n", static_cast<unsigned long long>(sent), got, gaps);
  std::printf("changes: %d to all %d workers, request to applied: median %.0f ms, p99 %.0f ms, longest %.0f ms; %llu did not arrive\n",
              flags.changes, flags.fleet.workers, 1e3 * Quantile(delays, 0.5), 1e3 * Quantile(delays, 0.99), 1e3 * Quantile(delays, 1),
              static_cast<unsigned long long>(missing));
  std::printf("controller at steady state: %.0f %% of its CPU; memory %.0f MB, then %.0f MB\n", 100 * steady_cpu, memory, ResidentMegabytes(pid));
  std::filesystem::remove_all(folder);
  return gaps == 0 && missing == 0 ? 0 : 1;
}

int Main(int argc, char** argv) {
  CLI::App app("Loads one controller with a simulated fleet and says what it carried", "controller_load");
  Flags flags;
  double firing_seconds = 1;
  app.add_option("--controller", flags.controller, "binary")->capture_default_str();
  app.add_option("--fake-worker", flags.fake_worker, "binary, for the workers that stand still")->capture_default_str();
  app.add_option("--workers", flags.fleet.workers)->check(CLI::Range(1, 5000))->capture_default_str();
  app.add_option("--layers", flags.fleet.layers)->check(CLI::Range(1, 4096))->capture_default_str();
  app.add_option("--firing-seconds", firing_seconds, "between a worker's firings")->check(CLI::Range(0.01, 60.0))->capture_default_str();
  app.add_option("--stalled", flags.stalled, "workers more, stopped before measuring")->check(CLI::Range(0, 200))->capture_default_str();
  app.add_option("--seconds", flags.seconds, "at steady state")->check(CLI::Range(1, 3600))->capture_default_str();
  app.add_option("--changes", flags.changes, "of tau, two seconds each")->check(CLI::Range(0, 1000))->capture_default_str();
  app.add_option("--cpu", flags.cpu, "the controller's")->capture_default_str();
  if (const std::optional<int> code = ParseFlags(app, argc, argv)) return *code;
  RaiseFileLimit();
  flags.fleet.firing_every = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(firing_seconds));
  return Measure(flags);
}

}  // namespace
}  // namespace stria

int main(int argc, char** argv) { return stria::Main(argc, argv); }
