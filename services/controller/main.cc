// The controller process: workers' telemetry and hellos in, tier vectors out, an HTTP API for operators. One thread.
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "services/common/access.h"
#include "services/common/bus.h"
#include "services/common/bus_listener.h"
#include "services/common/config.h"
#include "services/common/curve_flags.h"
#include "services/common/http_server.h"
#include "services/common/log.h"
#include "services/common/metrics.h"
#include "services/common/process.h"
#include "services/common/service_routes.h"
#include "services/controller/admin_api.h"
#include "services/controller/cache_queries.h"
#include "services/controller/calibration_json.h"
#include "services/controller/control_loop.h"
#include "services/controller/controller_metrics.h"
#include "services/controller/event_hub.h"
#include "services/controller/state_store.h"

namespace stria {
namespace {

constexpr auto kTick = std::chrono::milliseconds(100);

struct Flags {
  std::string bind = "127.0.0.1", workers_bind = "127.0.0.1";
  uint16_t http_port = 8001, telemetry_port = 5556, tiers_port = 5557;
  bool insecure = false;
  std::string state = "controller.db";
  std::vector<std::string> calibrations;
  bool put_damaged_state_aside = false;
  std::string tokens_file;
  CurveFlags curve;
};

constexpr char kTokensVariable[] = "STRIA_CONTROLLER_TOKENS";

void AddFlags(CLI::App& app, Flags* flags) {
  app.add_option("--bind", flags->bind, "address of the HTTP API")->capture_default_str();
  app.add_option("--http-port", flags->http_port, "0: the kernel chooses")->capture_default_str();
  app.add_option("--workers-bind", flags->workers_bind, "address of the workers' sockets")->capture_default_str();
  app.add_option("--telemetry-port", flags->telemetry_port, "0: the kernel chooses")->capture_default_str();
  app.add_option("--tiers-port", flags->tiers_port, "0: the kernel chooses")->capture_default_str();
  app.add_flag("--insecure", flags->insecure, "allow plain sockets, and an admin API without tokens, off loopback");
  app.add_option("--state", flags->state, "SQLite file: settings, revisions, epochs, averages")->capture_default_str();
  app.add_option("--calibration", flags->calibrations, "file of `./stria calibrate`, once for each model that has one");
  app.add_flag("--put-damaged-state-aside", flags->put_damaged_state_aside,
               "when the state file is damaged, keep it as PATH.damaged-TIME and begin with default settings instead of refusing to start");
  app.add_option("--tokens-file", flags->tokens_file,
                 absl::StrCat("who may use the admin API: lines ROLE NAME TOKEN, the role viewer or operator; or the same in the environment as ",
                              kTokensVariable));
  AddCurveServerFlags(app, &flags->curve);
}

// The line that an operator reads when the state file is damaged says what to do.
absl::StatusOr<OpenedStore> OpenState(const Flags& flags) {
  absl::StatusOr<OpenedStore> opened =
      OpenStateStore(flags.state, SystemClock().UnixSeconds(), {.put_damaged_aside = flags.put_damaged_state_aside});
  if (!absl::IsDataLoss(opened.status())) return opened;
  return absl::DataLossError(absl::StrCat(std::string(opened.status().message()),
                                          "; it is left as it is. --put-damaged-state-aside renames it and begins with default settings"));
}

absl::StatusOr<std::unique_ptr<BusSocket>> BindForWorkers(BusContext& bus, BusSocket::Type type, const Flags& flags,
                                                          const CurveSetup& curve, uint16_t port) {
  BusOptions options;
  options.security = curve.Server(flags.insecure);
  return BusSocket::Bind(bus, type, absl::StrCat("tcp://", flags.workers_bind, ":", port), options);
}

// Calls the loop a few times a second, and soon after frames came in: once for all frames of a burst.
class Pulse {
 public:
  Pulse(boost::asio::io_context& io, ControlLoop& loop) : io_(io), loop_(loop), timer_(io) {}

  void Start() { Beat(); }

  void Soon() {
    if (std::exchange(pending_, true)) return;
    boost::asio::post(io_, [this] {
      pending_ = false;
      loop_.Flush();
    });
  }

 private:
  void Beat() {
    loop_.Tick();
    timer_.expires_after(kTick);
    timer_.async_wait([this](const boost::system::error_code& error) {
      if (!error) Beat();
    });
  }

  boost::asio::io_context& io_;
  ControlLoop& loop_;
  boost::asio::steady_timer timer_;
  bool pending_ = false;
};

absl::Status Serve(const Flags& flags, const CLI::App& app, const Logger& log) {
  STRIA_ASSIGN_OR_RETURN(const TokenTable tokens, TokenTable::Load(flags.tokens_file, kTokensVariable));
  STRIA_RETURN_IF_ERROR(CheckHttpBind(flags.bind, !tokens.empty(), flags.insecure, "--tokens-file"));
  std::vector<Calibration> calibrations;
  for (const std::string& path : flags.calibrations) {
    STRIA_ASSIGN_OR_RETURN(calibrations.emplace_back(), ReadCalibration(path));
  }
  STRIA_ASSIGN_OR_RETURN(const CurveSetup curve, LoadCurveServer(flags.curve));
  STRIA_ASSIGN_OR_RETURN(OpenedStore opened, OpenState(flags));

  BusContext bus(curve.peers);
  boost::asio::io_context io(1);
  STRIA_ASSIGN_OR_RETURN(std::unique_ptr<BusSocket> telemetry_socket,
                         BindForWorkers(bus, BusSocket::Type::kSub, flags, curve, flags.telemetry_port));
  STRIA_ASSIGN_OR_RETURN(std::unique_ptr<BusSocket> tiers_socket,
                         BindForWorkers(bus, BusSocket::Type::kRouter, flags, curve, flags.tiers_port));
  HttpServerOptions http_options;
  http_options.address = flags.bind;
  http_options.port = flags.http_port;
  http_options.max_body_bytes = size_t{64} << 10;
  STRIA_ASSIGN_OR_RETURN(const std::unique_ptr<HttpServer> server, HttpServer::Create(io, http_options));
  const Listening listening{absl::StrCat(flags.bind, ":", server->port()),
                            absl::StrCat(flags.workers_bind, ":", telemetry_socket->port()),
                            absl::StrCat(flags.workers_bind, ":", tiers_socket->port())};

  EventHub events(io);
  std::unique_ptr<BusListener> tiers;
  ControlLoop loop(std::move(opened), events, SystemClock(), [&](std::string_view peer, std::string_view frame) {
    return tiers->SendTo(peer, frame) == SendResult::kSent;
  }, std::move(calibrations));
  CacheQueries caches(io, loop);
  Pulse pulse(io, loop);
  tiers = std::make_unique<BusListener>(io, std::move(tiers_socket), [&](PeerFrame message) {
    loop.OnTiers(message.peer, message.frame);
    pulse.Soon();
  });
  BusListener telemetry(io, std::move(telemetry_socket), [&](PeerFrame message) {
    loop.OnTelemetry(message.frame);
    pulse.Soon();
  });

  Metrics registry;
  ServiceRoutes routes;
  routes.metrics = &registry;
  routes.config_json = EffectiveConfigJson(app);
  prometheus::Counter& refused = registry.Counter("stria_controller_peers_refused_total", kPeersRefusedHelp);
  routes.before_metrics = [&, update = MakeControllerMetrics(registry, loop)] {
    update();
    AdvanceTo(refused, static_cast<double>(bus.refused_peers()));
  };
  routes.ready = [&] { return loop.state_status(); };
  AddServiceRoutes(*server, routes);
  AddAdminRoutes(*server, loop, events, caches, tokens, listening);

  const StopSignals signals(io, [&] {
    loop.Save();
    server->StopAccepting();
    io.stop();
  });
  pulse.Start();
  log.Info("effective config", {{"json", routes.config_json}});
  log.Info("serving", {{"http", listening.http},
                       {"telemetry", listening.telemetry},
                       {"tiers", listening.tiers},
                       {"revision", loop.brain().revision()},
                       {"epoch", loop.brain().max_epoch()}});
  io.run();
  log.Info("stopped");
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  CLI::App app("Stria's controller: decides from canary readings how wide each layer's next pages are");
  Flags flags;
  AddFlags(app, &flags);
  if (const std::optional<int> code = ParseFlags(app, argc, argv)) return *code;
  const Logger log("controller");
  RaiseFileLimit();
  if (const absl::Status status = Serve(flags, app, log); !status.ok()) {
    log.Error(std::string(status.message()));
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace stria

int main(int argc, char** argv) { return stria::Main(argc, argv); }
