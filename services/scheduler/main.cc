// The scheduler process: OpenAI's HTTP API in front, workers behind, the brain between. One thread.
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "model/gguf/gguf_file.h"
#include "model/gguf/tokenizer_spec_gguf.h"
#include "model/tokenizer/chat_template.h"
#include "model/tokenizer/tokenizer.h"
#include "services/common/access.h"
#include "services/common/bus.h"
#include "services/common/config.h"
#include "services/common/curve_flags.h"
#include "services/common/http_server.h"
#include "services/common/log.h"
#include "services/common/metrics.h"
#include "services/common/process.h"
#include "services/common/service_routes.h"
#include "services/scheduler/api.h"
#include "services/scheduler/api_keys.h"
#include "services/scheduler/dispatcher.h"
#include "services/scheduler/pack_reader.h"
#include "services/scheduler/scheduler_metrics.h"

namespace stria {
namespace {

constexpr char kApiKeysVariable[] = "STRIA_API_KEYS";

struct Flags {
  std::string model, model_name;
  std::string bind = "127.0.0.1", workers_bind = "127.0.0.1";
  uint16_t http_port = 8000, workers_port = 5555;
  bool insecure = false;
  std::string api_keys_file, pack;
  double kaizen_limit = 0;
  uint32_t queue_limit = 1024, queue_limit_per_key = 0, assumed_new_tokens = 1024;
  double queue_timeout = 60, deadline = 0, worker_timeout = 20, drain_seconds = 30;
  uint64_t max_body_bytes = uint64_t{4} << 20;
  CurveFlags curve;
};

void AddFlags(CLI::App& app, Flags* flags) {
  app.add_option("--model", flags->model, "GGUF file: its tokenizer and chat template")->required();
  app.add_option("--model-name", flags->model_name, "the id that clients use; default: what the workers call it");
  app.add_option("--pack", flags->pack, "folder of a Kaizen pack for the workers' model; with one there is a mode kaizen");
  app.add_option("--kaizen-limit", flags->kaizen_limit, "representation ratio to which mode kaizen goes by itself when memory is short; 0: what the pack calls lossless")->capture_default_str()->check(CLI::Range(0.0, 1e6));
  app.add_option("--bind", flags->bind, "address of the HTTP API")->capture_default_str();
  app.add_option("--http-port", flags->http_port, "0: the kernel chooses")->capture_default_str();
  app.add_option("--workers-bind", flags->workers_bind, "address of the workers' socket")->capture_default_str();
  app.add_option("--workers-port", flags->workers_port, "0: the kernel chooses")->capture_default_str();
  app.add_flag("--insecure", flags->insecure, "allow plain sockets for workers, and an API without keys, off loopback");
  app.add_option("--queue-limit", flags->queue_limit, "sequences that may wait; then 429")->capture_default_str()->check(CLI::Range(1, 1000000));
  app.add_option("--queue-limit-per-key", flags->queue_limit_per_key, "of one API key; 0: half of the queue, all of it without keys")->capture_default_str()->check(CLI::Range(0, 1000000));
  app.add_option("--queue-timeout", flags->queue_timeout, "seconds that a sequence waits, where the request names none; then 503")->capture_default_str()->check(CLI::Range(0.1, 86400.0));
  app.add_option("--deadline", flags->deadline, "seconds from a request's arrival to its end, where it names none; then 504; 0: none")->capture_default_str()->check(CLI::Range(0.0, 86400.0));
  app.add_option("--api-keys-file", flags->api_keys_file, absl::StrCat("clients must send one of its keys, a line each: NAME KEY [SHARE]; or in the variable ", kApiKeysVariable));
  app.add_option("--worker-timeout", flags->worker_timeout, "seconds of silence; then a worker is lost (one whose connection is gone: after 2)")->capture_default_str()->check(CLI::Range(0.5, 3600.0));
  app.add_option("--assumed-length", flags->assumed_new_tokens, "tokens planned for where a request gives no limit")->capture_default_str()->check(CLI::Range(1, 1000000));
  app.add_option("--drain-seconds", flags->drain_seconds, "after SIGTERM, for streams to end")->capture_default_str()->check(CLI::Range(0.0, 86400.0));
  AddBytesOption(app, "--max-body-bytes", &flags->max_body_bytes, "of one request");
  AddCurveServerFlags(app, &flags->curve);
}

Duration FromSeconds(double seconds) { return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds)); }

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& path) {
  STRIA_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(path));
  STRIA_ASSIGN_OR_RETURN(TokenizerSpec spec, MakeTokenizerSpec(file));
  return Tokenizer::Create(std::move(spec));
}

// After SIGTERM: leaves as soon as nothing is being answered, or at the deadline.
class Drain {
 public:
  Drain(boost::asio::io_context& io, Api& api, HttpServer& server, const Logger& log, double seconds)
      : io_(io), api_(api), server_(server), log_(log), seconds_(seconds), timer_(io) {}

  void Begin() {
    api_.Drain();
    deadline_ = std::chrono::steady_clock::now() + FromSeconds(seconds_);
    log_.Info("draining", {{"active", api_.active()}, {"seconds", seconds_}});
    Look();
  }

 private:
  void Look() {
    const bool late = std::chrono::steady_clock::now() >= deadline_;
    if (api_.active() == 0 || late) {
      log_.Info("stopped", {{"cut_off", api_.active()}});
      server_.StopAccepting();
      io_.stop();
      return;
    }
    timer_.expires_after(std::chrono::milliseconds(50));
    timer_.async_wait([this](const boost::system::error_code& error) {
      if (!error) Look();
    });
  }

  boost::asio::io_context& io_;
  Api& api_;
  HttpServer& server_;
  const Logger& log_;
  double seconds_;
  boost::asio::steady_timer timer_;
  MonotonicTime deadline_;
};

absl::Status Serve(const Flags& flags, const CLI::App& app, const Logger& log) {
  STRIA_ASSIGN_OR_RETURN(const ApiKeys keys, ApiKeys::Load(flags.api_keys_file, kApiKeysVariable));
  STRIA_RETURN_IF_ERROR(CheckHttpBind(flags.bind, !keys.empty(), flags.insecure, "--api-keys-file"));
  STRIA_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, LoadTokenizer(flags.model));
  std::optional<ChatTemplate> chat_template;
  if (!tokenizer->chat_template().empty()) {
    STRIA_ASSIGN_OR_RETURN(chat_template, ChatTemplate::Create(*tokenizer));
  }

  std::optional<KvComposer> composer;
  if (!flags.pack.empty()) {
    STRIA_ASSIGN_OR_RETURN(PackOffer offer, ReadPack(flags.pack));
    const double limit = flags.kaizen_limit > 0 ? flags.kaizen_limit : offer.lossless_ratio;
    composer.emplace(std::move(offer), limit);
  }
  STRIA_ASSIGN_OR_RETURN(const CurveSetup curve, LoadCurveServer(flags.curve));
  RaiseFileLimit();
  BusContext bus(curve.peers);
  boost::asio::io_context io(1);
  BusOptions bus_options;
  bus_options.security = curve.Server(flags.insecure);
  STRIA_ASSIGN_OR_RETURN(std::unique_ptr<BusSocket> socket,
                         BusSocket::Bind(bus, BusSocket::Type::kRouter,
                                         absl::StrCat("tcp://", flags.workers_bind, ":", flags.workers_port), bus_options));
  const std::string workers_endpoint = socket->endpoint();
  HttpServerOptions http_options;
  http_options.address = flags.bind;
  http_options.port = flags.http_port;
  http_options.max_body_bytes = flags.max_body_bytes;
  STRIA_ASSIGN_OR_RETURN(const std::unique_ptr<HttpServer> server, HttpServer::Create(io, http_options));

  SchedulerOptions options;
  options.incarnation = NewIncarnation();
  options.vocab = static_cast<uint32_t>(tokenizer->vocab_size());
  if (composer) options.model = composer->offer().model;
  options.queue_limit = flags.queue_limit;
  options.tenant_queue_limit = flags.queue_limit_per_key > 0 ? flags.queue_limit_per_key : keys.empty() ? flags.queue_limit : (flags.queue_limit + 1) / 2;
  options.shares = keys.shares();
  options.queue_timeout = FromSeconds(flags.queue_timeout);
  options.deadline = FromSeconds(flags.deadline);
  options.worker_timeout = FromSeconds(flags.worker_timeout);
  options.assumed_new_tokens = flags.assumed_new_tokens;
  Dispatcher dispatcher(io, std::move(socket), options, SystemClock(), log);

  Metrics registry;
  SchedulerMetrics metrics(registry);
  Api api({dispatcher, *tokenizer, metrics, keys, composer ? &*composer : nullptr}, chat_template ? &*chat_template : nullptr, flags.model_name);
  api.AddRoutes(*server);
  ServiceRoutes routes;
  routes.metrics = &registry;
  routes.config_json = EffectiveConfigJson(app);
  prometheus::Counter& refused = registry.Counter("stria_scheduler_peers_refused_total", kPeersRefusedHelp);
  routes.before_metrics = [&] {
    metrics.Update(dispatcher.brain().stats());
    AdvanceTo(refused, static_cast<double>(bus.refused_peers()));
  };
  routes.health = [&] { return api.Serving(); };
  routes.ready = [&] { return api.Ready(); };
  AddServiceRoutes(*server, routes);

  Drain drain(io, api, *server, log, flags.drain_seconds);
  const StopSignals signals(io, [&] { drain.Begin(); });
  log.Info("effective config", {{"json", routes.config_json}});
  log.Info("serving", {{"http", absl::StrCat(flags.bind, ":", server->port())},
                       {"workers", workers_endpoint},
                       {"incarnation", options.incarnation}});
  io.run();
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  CLI::App app("Stria's scheduler: an OpenAI API over a fleet of workers");
  Flags flags;
  AddFlags(app, &flags);
  if (const std::optional<int> code = ParseFlags(app, argc, argv)) return *code;
  const Logger log("scheduler");
  if (const absl::Status status = Serve(flags, app, log); !status.ok()) {
    log.Error(std::string(status.message().data(), status.message().size()));
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace stria

int main(int argc, char** argv) { return stria::Main(argc, argv); }
