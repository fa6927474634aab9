#include "services/controller/status_json.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "services/controller/state_json.h"

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

json AverageBits(const TierVector& vector) {
  double keys = 0, values = 0;
  for (const LayerTier& tier : vector.layers) keys += Bits(tier.keys), values += Bits(tier.values);
  const double layers = std::max<double>(1, vector.layers.size());
  return {{"keys", keys / layers}, {"values", values / layers}};
}

// What shadowed requests measured lately; null before the first.
json MeasuredJson(const QualityState& quality) {
  if (!quality.recent.valid()) return nullptr;
  json by_length = json::array();
  for (const auto& [length, mean] : quality.by_length) {
    by_length.push_back({{"length", length}, {"kl", mean.mean()}, {"weight_tokens", mean.weight()}});
  }
  return {{"kl", quality.recent.mean()}, {"tokens", quality.tokens}, {"by_length", std::move(by_length)}};
}

json ModelJson(const ControlLoop& loop, const ModelState& model) {
  uint64_t flips = 0;
  for (const uint64_t count : model.flips) flips += count;
  const Settings in_force = InForce(model.quality.loop, loop.brain().settings());
  return {{"model", model.model},
          {"model_name", model.model_name},
          {"active", model.active},
          {"epoch", model.published.epoch},
          {"layer_count", model.layer_count()},
          {"ranks", model.ranks.size()},
          {"firings", model.firings},
          {"phase", Name(PhaseOf(model, loop.brain().settings()))},
          {"calibrated", loop.brain().CalibrationOf(model) != nullptr},
          {"last_firing_seconds_ago", NullOr(model.fired, Seconds(loop.Now() - model.last_firing))},
          {"flips", flips},
          {"tau", in_force.tau},
          {"kl_budget", in_force.kl_budget},
          {"measured", MeasuredJson(model.quality)},
          {"average_bits", AverageBits(model.published)}};
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
          {"epoch_sent", worker.sent},
          {"epoch_applied", worker.applied},
          {"heard_seconds_ago", Seconds(now - worker.last_heard)},
          {"restarts", worker.restarts},
          {"frames", worker.frames},
          {"frames_lost", worker.gaps},
          {"last_frame_seconds_ago", NullOr(worker.frames > 0, Seconds(now - worker.last_frame))}};
}

json LayerJson(const ModelState& model, uint32_t layer, const LayerTier& recommended) {
  const LayerTier& tier = model.published.layers[layer];
  return {{"layer", layer},
          {"keys", Name(tier.keys)},
          {"values", Name(tier.values)},
          {"recommended", {{"keys", Name(recommended.keys)}, {"values", Name(recommended.values)}}},
          {"guard_plain", Name(tier.guard_plain)},
          {"guard_latent", Name(tier.guard_latent)},
          {"ema", Averages(model, layer, CacheKind::kPlain)},
          {"ema_latent", Averages(model, layer, CacheKind::kLatent)},
          {"flips", model.flips[layer]}};
}

// nullptr: there is none at all, and none was asked for.
absl::StatusOr<const ModelState*> ChooseModel(const Controller& brain, std::string_view wanted) {
  std::vector<const ModelState*> served, known;
  std::vector<std::string> names;
  for (const auto& [fingerprint, model] : brain.models()) {
    if (!wanted.empty() && wanted != fingerprint && wanted != model.model_name) continue;
    known.push_back(&model);
    if (model.active) served.push_back(&model);
    names.push_back(absl::StrCat(model.model_name, " (", fingerprint, ")"));
  }
  const std::vector<const ModelState*>& choice = served.empty() ? known : served;
  if (choice.size() == 1) return choice[0];
  if (choice.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat("several models; choose one by its fingerprint: ", absl::StrJoin(names, ", ")));
  }
  if (!wanted.empty()) return absl::NotFoundError(absl::StrCat("no model is called '", std::string(wanted), "'"));
  return nullptr;
}

json WidthChange(Width from, Width to) { return {{"from", Name(from)}, {"to", Name(to)}}; }

}  // namespace

json StatusJson(const ControlLoop& loop) {
  const Controller& brain = loop.brain();
  json models = json::array(), workers = json::array();
  for (const auto& [fingerprint, model] : brain.models()) models.push_back(ModelJson(loop, model));
  for (const auto& [name, worker] : brain.registry().workers()) workers.push_back(WorkerJson(loop, name, worker));
  return {{"unix_seconds", loop.UnixSeconds()},
          {"revision", brain.revision()},
          {"tau", brain.settings().tau},
          {"frozen", brain.settings().frozen},
          {"models", std::move(models)},
          {"workers", std::move(workers)},
          {"state_file",
           {{"damage", loop.damage().empty() ? json(nullptr) : json(loop.damage())},
            {"error", loop.state_status().ok() ? json(nullptr) : json(std::string(loop.state_status().message()))}}}};
}

absl::StatusOr<json> TiersJson(const ControlLoop& loop, std::string_view wanted) {
  STRIA_ASSIGN_OR_RETURN(const ModelState* model, ChooseModel(loop.brain(), wanted));
  json object = {{"revision", loop.brain().revision()},
                 {"tau", loop.brain().settings().tau},
                 {"hysteresis", loop.brain().settings().hysteresis},
                 {"frozen", loop.brain().settings().frozen},
                 {"recommend_only", loop.brain().settings().recommend_only}};
  json layers = json::array();
  if (model == nullptr) {
    object["model"] = nullptr;
    object["epoch"] = 0;
  } else {
    object.update(ModelJson(loop, *model));
    const std::vector<LayerTier> recommended = RecommendedTiers(*model, loop.brain().settings());
    for (uint32_t l = 0; l < model->layer_count(); ++l) layers.push_back(LayerJson(*model, l, recommended[l]));
  }
  object["layers"] = std::move(layers);
  return object;
}

json SmoothedJson(const ModelState& model) {
  json layers = json::array();
  for (uint32_t l = 0; l < model.layer_count(); ++l) {
    layers.push_back({{"layer", l}, {"ema", Averages(model, l, CacheKind::kPlain)}, {"ema_latent", Averages(model, l, CacheKind::kLatent)}});
  }
  return layers;
}

json SnapshotJson(const ControlLoop& loop) {
  json tiers = json::array();
  for (const auto& [fingerprint, model] : loop.brain().models()) tiers.push_back(*TiersJson(loop, fingerprint));
  return {{"unix_seconds", loop.UnixSeconds()},
          {"settings", ToJson(loop.brain().settings())},
          {"status", StatusJson(loop)},
          {"tiers", std::move(tiers)}};
}

absl::StatusOr<json> TargetJson(ControlLoop& loop, size_t limit) {
  const Settings& settings = loop.brain().settings();
  const bool budget = settings.policy == PolicyKind::kBudget;
  json models = json::array();
  for (const auto& [fingerprint, model] : loop.brain().models()) {
    const QualityLoop& outer = model.quality.loop;
    const int bound = AtBound(outer, settings);
    models.push_back({{"model", model.model},
                      {"model_name", model.model_name},
                      {"active", model.active},
                      {"measured", MeasuredJson(model.quality)},
                      {"value", PinnedValue(InForce(outer, settings))},
                      {"moving", settings.target_kl > 0 && outer.engaged},
                      {"at_bound", bound == 0 ? json(nullptr) : json(bound < 0 ? "low" : "high")},
                      {"average_bits", AverageBits(model.published)}});
  }
  STRIA_ASSIGN_OR_RETURN(const std::vector<LoopStep> past, loop.store().LoopSteps(limit));
  json steps = json::array();
  for (const LoopStep& step : past) steps.push_back(ToJson(step));
  return json{{"revision", loop.brain().revision()},
              {"target_kl", NullOr(settings.target_kl > 0, settings.target_kl)},
              {"moves", budget ? "kl_budget" : "tau"},
              {"pinned", PinnedValue(settings)},
              {"lowest", PinnedValue(settings) / settings.target_range},
              {"highest", PinnedValue(settings) * settings.target_range},
              {"models", std::move(models)},
              {"steps", std::move(steps)}};
}

json PlanJson(const ControlLoop& loop, const Settings& after) {
  json models = json::array();
  for (const TierVector& wanted : loop.brain().Preview(after, loop.Now())) {
    const ModelState& model = loop.brain().models().at(wanted.model);
    json layers = json::array();
    for (uint32_t l = 0; l < model.layer_count(); ++l) {
      const LayerTier &now = model.published.layers[l], &then = wanted.layers[l];
      if (now.keys == then.keys && now.values == then.values) continue;
      layers.push_back({{"layer", l}, {"keys", WidthChange(now.keys, then.keys)}, {"values", WidthChange(now.values, then.values)}});
    }
    models.push_back({{"model", model.model},
                      {"model_name", model.model_name},
                      {"average_bits", {{"before", AverageBits(model.published)}, {"after", AverageBits(wanted)}}},
                      {"layers", std::move(layers)}});
  }
  return {{"models", std::move(models)}};
}

}  // namespace stria
