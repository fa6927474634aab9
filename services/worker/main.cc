// The worker process: loads the model, dials the scheduler and the controller, and runs the step loop on this thread. HTTP has a
// thread that sleeps, libzmq its own.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/target.h"
#include "model/gguf/gguf_checkpoint.h"
#include "model/transformer/transformer.h"
#include "services/common/access.h"
#include "services/common/bus.h"
#include "services/common/config.h"
#include "services/common/curve_flags.h"
#include "services/common/log.h"
#include "services/common/process.h"
#include "services/worker/sequences_json.h"
#include "services/worker/worker_http.h"
#include "services/worker/worker_loop.h"
#include "worker/engine.h"

namespace stria {
namespace {

// No turn of a sound engine takes as long; then the process calls itself dead, so that it is restarted.
constexpr Duration kHungStep = std::chrono::minutes(2);

constexpr char kTokensVariable[] = "STRIA_WORKER_TOKENS";

struct Flags {
  std::string model, model_name, name;
  std::string scheduler = "tcp://127.0.0.1:5555";
  std::string telemetry = "tcp://127.0.0.1:5556";
  std::string tiers = "tcp://127.0.0.1:5557";
  std::string bind = "127.0.0.1", tokens_file;
  uint16_t http_port = 8002;
  std::string isa = "best", weights = "int8";
  int threads = 0;
  double grace_seconds = 30, drain_seconds = 30;
  std::string prefix_cache = "on";
  uint64_t prefix_cache_bytes = 0;
  EngineOptions engine{.shadows = {.share = 1.0 / 64}};
  CurveFlags curve;
};

void AddFlags(CLI::App& app, Flags& flags) {
  app.option_defaults()->always_capture_default();
  app.add_option("--model", flags.model, "GGUF file to serve")->required();
  app.add_option("--model-name", flags.model_name, "id that clients use; default: the file's name");
  app.add_option("--name", flags.name, "name of this worker, the same after a restart; default: HOST-PORT of its HTTP");
  app.add_option("--scheduler", flags.scheduler, "the scheduler's sequences socket");
  app.add_option("--controller-telemetry", flags.telemetry, "the controller's telemetry socket");
  app.add_option("--controller-tiers", flags.tiers, "the controller's tiers socket");
  app.add_option("--bind", flags.bind, "address of HTTP");
  app.add_option("--http-port", flags.http_port, "0: the kernel chooses");
  app.add_option("--tokens-file", flags.tokens_file,
                 absl::StrCat("who may read HTTP beyond probes and metrics: lines ROLE NAME TOKEN, as the controller's; or in the variable ", kTokensVariable));
  AddBytesOption(app, "--pool-bytes", &flags.engine.pool_bytes, "memory for pages, rings and prefill staging (512M, 4GiB)");
  app.add_option("--threads", flags.threads, "threads that compute; 0: as many CPUs as this process may use")->check(CLI::Range(0, 1024));
  app.add_option("--isa", flags.isa, "instruction set of the kernels: best, portable, avx2, avx512, avx512vnni");
  app.add_option("--weights", flags.weights, "arithmetic of the matrix products")->check(CLI::IsMember({"int8", "bf16"}));
  app.add_option("--max-sequences", flags.engine.max_sequences, "sequences that run at once")->check(CLI::Range(1, 4096));
  app.add_option("--max-context", flags.engine.max_context, "longest sequence in tokens; 0: the model's");
  app.add_option("--prefill-chunk", flags.engine.prefill_chunk, "prompt rows computed at a time")->check(CLI::Range(1, 65536));
  app.add_option("--prefill-steps", flags.engine.prefill_steps, "time that prompts get in a turn beside running streams, in their decode steps")->check(CLI::Range(0.0, 1e6));
  app.add_option("--sink-pages", flags.engine.sink_pages, "first pages of every sequence that stay FP16")->check(CLI::Range(0, 1024));
  app.add_option("--prefix-cache", flags.prefix_cache, "pages of equal prompts are shared")->check(CLI::IsMember({"on", "off"}));
  AddBytesOption(app, "--prefix-cache-bytes", &flags.prefix_cache_bytes, "of the pool that shared prompts may keep; 0: all that nobody needs");
  app.add_option("--canary-seed", flags.engine.canary_seed, "decides which decode steps fire, and which requests are shadowed");
  app.add_option("--shadow-share", flags.engine.shadows.share,
                 "of the requests of mode auto: these keep an FP16 cache beside their own, to measure what tiers cost; 0: none")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--shadow-sequences", flags.engine.shadows.sequences, "shadowed at once")->check(CLI::Range(1, 4096));
  AddBytesOption(app, "--shadow-bytes", &flags.engine.shadows.bytes, "of the pool that shadows may hold; 0: an eighth. They give way to whoever needs it");
  app.add_option("--grace-seconds", flags.grace_seconds, "of the scheduler's silence before its sequences are dropped")
      ->check(CLI::Range(3.0, 86400.0));  // it speaks once a second
  app.add_option("--drain-seconds", flags.drain_seconds, "on SIGTERM: what running sequences are given to end")
      ->check(CLI::Range(0.0, 86400.0));
  AddCurveClientFlags(app, &flags.curve);
}

absl::StatusOr<Target> TargetOf(const std::string& isa) {
  if (isa == "best") return BestTarget();
  const std::optional<Target> target = ParseTarget(isa);
  const auto available = AvailableTargets();
  if (target && std::find(available.begin(), available.end(), *target) != available.end()) return *target;
  std::string names = "best";
  for (Target known : available) names += absl::StrCat(", ", Name(known));
  return absl::InvalidArgumentError(absl::StrCat("--isa ", isa, target ? " is not in this machine" : " is unknown", "; it has: ", names));
}

Duration Seconds(double seconds) { return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds)); }

// The sockets to the two services; made before the model is loaded, so that a wrong address is told at once.
struct Sockets {
  std::unique_ptr<BusSocket> sequences, tiers, telemetry;

  static absl::StatusOr<Sockets> Open(BusContext& context, const Flags& flags, const WorkerIdentity& identity) {
    STRIA_ASSIGN_OR_RETURN(const CurveSetup curve, LoadCurveClient(flags.curve));
    BusOptions scheduler, controller;
    STRIA_ASSIGN_OR_RETURN(scheduler.security, curve.Client("scheduler", flags.curve.insecure));
    STRIA_ASSIGN_OR_RETURN(controller.security, curve.Client("controller", flags.curve.insecure));
    scheduler.routing_id = controller.routing_id = PeerId(identity.name, identity.incarnation);
    Sockets sockets;
    STRIA_ASSIGN_OR_RETURN(sockets.sequences, BusSocket::Connect(context, BusSocket::Type::kDealer, flags.scheduler, scheduler));
    STRIA_ASSIGN_OR_RETURN(sockets.tiers, BusSocket::Connect(context, BusSocket::Type::kDealer, flags.tiers, controller));
    STRIA_ASSIGN_OR_RETURN(sockets.telemetry, BusSocket::Connect(context, BusSocket::Type::kPub, flags.telemetry, controller));
    return sockets;
  }
};

WorkerHello MakeHello(const WorkerIdentity& identity, const EngineOptions& options, const ModelConfig& model, const Engine& engine) {
  WorkerHello hello;
  hello.worker = identity.name;
  hello.incarnation = identity.incarnation;
  hello.model = identity.model;
  hello.model_name = identity.model_name;
  hello.http = identity.http;
  hello.vocab = static_cast<uint32_t>(model.vocab);
  hello.max_context = options.max_context > 0 ? options.max_context : static_cast<uint32_t>(model.context_length);
  hello.max_sequences = options.max_sequences;
  hello.sink_pages = options.sink_pages;
  hello.pool_bytes = engine.stats().pool_bytes;
  hello.staging_bytes_per_token = engine.staging_bytes_per_token();
  hello.staging_bytes_max = hello.pool_bytes;  // staging and pages share the pool
  hello.layers = engine.layer_bytes();
  return hello;
}

absl::Status Serve(Flags flags, const std::string& config_json, const Logger& log) {
  STRIA_ASSIGN_OR_RETURN(flags.engine.target, TargetOf(flags.isa));
  flags.engine.threads = flags.threads > 0 ? flags.threads : AvailableCpus();

  Metrics metrics;
  LoopTasks tasks;
  std::atomic<WorkerLoop*> running = nullptr;
  std::atomic<WorkerHttp*> phases = nullptr;
  WorkerHttp::Options http_options;
  STRIA_ASSIGN_OR_RETURN(http_options.tokens, TokenTable::Load(flags.tokens_file, kTokensVariable));
  STRIA_RETURN_IF_ERROR(CheckHttpBind(flags.bind, !http_options.tokens.empty(), flags.curve.insecure, "--tokens-file"));
  http_options.server.address = flags.bind;
  http_options.server.port = flags.http_port;
  http_options.config_json = config_json;
  http_options.on_stop = [&] {
    WorkerLoop* loop = running;
    if (loop == nullptr) std::_Exit(0);  // still loading: nobody depends on it
    phases.load()->set_phase(WorkerPhase::kDraining);
    tasks.Post([loop] { loop->Drain(); });
  };
  STRIA_ASSIGN_OR_RETURN(const std::unique_ptr<WorkerHttp> http, WorkerHttp::Start(std::move(http_options), metrics, tasks));
  phases = http.get();

  WorkerIdentity identity;
  identity.incarnation = NewIncarnation();
  identity.name = flags.name.empty() ? absl::StrCat(HostName(), "-", http->port()) : flags.name;
  identity.model_name = flags.model_name.empty() ? std::filesystem::path(flags.model).stem().string() : flags.model_name;
  identity.http = absl::StrCat(flags.bind, ":", http->port());
  BusContext context;
  STRIA_ASSIGN_OR_RETURN(Sockets sockets, Sockets::Open(context, flags, identity));

  const Clock& clock = SystemClock();
  const MonotonicTime begin = clock.Now();
  STRIA_ASSIGN_OR_RETURN(const std::unique_ptr<GgufCheckpoint> checkpoint, GgufCheckpoint::Open(flags.model));
  identity.model = checkpoint->fingerprint();
  flags.engine.model_fingerprint = identity.model;
  if (flags.prefix_cache == "on") {
    flags.engine.prefix_cache_bytes = flags.prefix_cache_bytes > 0 ? flags.prefix_cache_bytes : flags.engine.pool_bytes;
  }
  TransformerOptions transformer_options;
  transformer_options.weights = flags.weights == "bf16" ? TransformerOptions::Weights::kBf16 : TransformerOptions::Weights::kInt8;
  transformer_options.threads = flags.engine.threads;
  transformer_options.max_decode_rows = static_cast<int>(MostDecodeRows(flags.engine));
  transformer_options.max_prompt_rows = static_cast<int>(flags.engine.prefill_chunk);
  STRIA_ASSIGN_OR_RETURN(const std::unique_ptr<Transformer> transformer, Transformer::Create(*checkpoint, transformer_options));
  STRIA_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create(*transformer, flags.engine, clock));
  const ModelConfig& model = transformer->config();
  log.Info("model loaded", {{"model", identity.model_name},
                            {"fingerprint", identity.model.substr(0, 16)},
                            {"architecture", model.architecture},
                            {"layers", model.layers},
                            {"weight_bytes", transformer->weight_bytes()},
                            {"threads", flags.engine.threads},
                            {"isa", Name(flags.engine.target)},
                            {"seconds", std::chrono::duration<double>(clock.Now() - begin).count()}});
  metrics.Gauge("stria_worker_weight_bytes", "Packed weights held.").Set(static_cast<double>(transformer->weight_bytes()));

  SequenceLinkOptions link_options;
  link_options.grace = Seconds(flags.grace_seconds);
  SequenceLink sequences(MakeHello(identity, flags.engine, model, *engine), link_options, *sockets.sequences, *engine, clock);
  TierLink tiers(identity, static_cast<uint32_t>(model.layers), *sockets.tiers, *engine, clock);
  TelemetryLink telemetry(identity, *sockets.telemetry);
  WorkerMetrics worker_metrics(metrics, identity, *engine, sequences, tiers, telemetry, clock);
  const auto wait = [&](Duration most) { WaitReadable({sockets.sequences.get(), sockets.tiers.get()}, tasks.fd(), most); };
  WorkerLoop loop({*engine, sequences, tiers, telemetry, tasks, worker_metrics, clock, log, wait});

  http->set_health([&loop] { return loop.Health(kHungStep); });
  http->set_describe([&engine] { return SequencesJson(*engine); });
  running = &loop;
  http->set_phase(WorkerPhase::kServing);
  log.Info("serving", {{"name", identity.name},
                       {"incarnation", identity.incarnation},
                       {"http", identity.http},
                       {"scheduler", flags.scheduler},
                       {"tiers", flags.tiers},
                       {"pool_bytes", flags.engine.pool_bytes}});
  loop.Run(Seconds(flags.drain_seconds));
  log.Info("stopped");
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  // libgomp's threads spin at barriers. Bounded, they give the core back where services or a cgroup limit need it; the default
  // (milliseconds) makes every step wait for a thread that lost its core.
  EnsureEnvironment({{"GOMP_SPINCOUNT", "20000"}}, argv);
  CLI::App app("Stria's worker: executes a model over a paged cache that mixes widths", "worker");
  Flags flags;
  AddFlags(app, flags);
  if (const std::optional<int> code = ParseFlags(app, argc, argv)) return *code;
  const Logger log("worker");
  const std::string config = EffectiveConfigJson(app);
  log.Info("config", {{"flags", config}});
  const absl::Status status = Serve(std::move(flags), config, log);
  if (status.ok()) return 0;
  std::fprintf(stderr, "worker: %s\n", std::string(status.message()).c_str());
  const bool is_input = absl::IsInvalidArgument(status) || absl::IsNotFound(status) || absl::IsPermissionDenied(status);
  return is_input ? 2 : 1;
}

}  // namespace
}  // namespace stria

int main(int argc, char** argv) { return stria::Main(argc, argv); }
