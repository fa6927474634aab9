#include "services/controller/status_json.h"

#include <algorithm>

namespace stria {
namespace {

using nlohmann::json;

double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

json NullOr(bool present, double value) { return present ? json(value) : json(nullptr); }

json Averages(const ModelState& model, uint32_t layer, CacheKind kind) {
  const std::vector<double> mean = MeanReadings(model, layer, kind);
  if (mean.empty()) return nullptr;
  json object = json::object();
  for (size_t i = 0; i < mean.size(); ++i) object[Name(kReadingWidths[i])] = mean[i];
  return object;
}

json ModelJson(const ControlLoop& loop, const ModelState& model) {
  double keys = 0, values = 0;
  for (const LayerTier& tier : model.published.layers) keys += Bits(tier.keys), values += Bits(tier.values);
  uint64_t flips = 0;
  for (const uint64_t count : model.flips) flips += count;
  const double layers = std::max<double>(1, model.layer_count());
  return {{"model", model.model},
          {"model_name", model.model_name},
          {"active", model.active},
          {"epoch", model.published.epoch},
          {"layers", model.layer_count()},
          {"ranks", model.ranks.size()},
          {"firings", model.firings},
          {"last_firing_seconds_ago", NullOr(model.fired, Seconds(loop.Now() - model.last_firing))},
          {"flips", flips},
          {"average_bits", {{"keys", keys / layers}, {"values", values / layers}}}};
}

json WorkerJson(const ControlLoop& loop, const std::string& name, const WorkerRecord& worker) {
  const MonotonicTime now = loop.Now();
  return {{"worker", name},
          {"state", Name(loop.brain().Sync(worker, now))},
          {"model", worker.hello.model},
          {"model_name", worker.hello.model_name},
          {"incarnation", worker.hello.incarnation},
          {"http", worker.hello.http},
          {"rank", worker.hello.rank},
          {"ranks", worker.hello.ranks},
          {"epoch", loop.brain().models().at(worker.hello.model).published.epoch},
          {"sent", worker.sent},
          {"applied", worker.applied},
          {"heard_seconds_ago", Seconds(now - worker.last_heard)},
          {"restarts", worker.restarts},
          {"frames", worker.frames},
          {"frames_lost", worker.gaps},
          {"last_frame_seconds_ago", NullOr(worker.frames > 0, Seconds(now - worker.last_frame))}};
}

}  // namespace

json StatusJson(const ControlLoop& loop) {
  const Controller& brain = loop.brain();
  json models = json::array(), workers = json::array();
  for (const auto& [fingerprint, model] : brain.models()) models.push_back(ModelJson(loop, model));
  for (const auto& [name, worker] : brain.registry().workers()) workers.push_back(WorkerJson(loop, name, worker));
  return {{"revision", brain.revision()},
          {"tau", brain.settings().tau},
          {"frozen", brain.settings().frozen},
          {"models", std::move(models)},
          {"workers", std::move(workers)},
          {"state_file",
           {{"damage", loop.damage().empty() ? json(nullptr) : json(loop.damage())},
            {"error", loop.state_status().ok() ? json(nullptr) : json(std::string(loop.state_status().message()))}}}};
}

json TiersJson(const ControlLoop& loop, std::string_view wanted) {
  json models = json::array();
  for (const auto& [fingerprint, model] : loop.brain().models()) {
    if (!wanted.empty() && wanted != fingerprint && wanted != model.model_name) continue;
    json layers = json::array();
    for (uint32_t l = 0; l < model.layer_count(); ++l) {
      const LayerTier& tier = model.published.layers[l];
      layers.push_back({{"layer", l},
                        {"keys", Name(tier.keys)},
                        {"values", Name(tier.values)},
                        {"guard_plain", Name(tier.guard_plain)},
                        {"guard_latent", Name(tier.guard_latent)},
                        {"ema", Averages(model, l, CacheKind::kPlain)},
                        {"ema_latent", Averages(model, l, CacheKind::kLatent)},
                        {"flips", model.flips[l]}});
    }
    json object = ModelJson(loop, model);
    object["layers"] = std::move(layers);
    models.push_back(std::move(object));
  }
  return {{"revision", loop.brain().revision()},
          {"tau", loop.brain().settings().tau},
          {"hysteresis", loop.brain().settings().hysteresis},
          {"frozen", loop.brain().settings().frozen},
          {"models", std::move(models)}};
}

}  // namespace stria
