#include "services/controller/controller_metrics.h"

namespace stria {
namespace {

class Refresher {
 public:
  Refresher(Metrics& metrics, const ControlLoop& loop) : metrics_(metrics), loop_(loop) {}

  void operator()() const {
    const Controller& brain = loop_.brain();
    const ControllerCounters& counters = brain.counters();
    RefreshTelemetry(counters);
    Total("flips", "Changes of a layer's width after its first", counters.flips);
    Total("hellos", "Hellos of workers", counters.hellos);
    Total("hellos_refused", "Hellos refused: impossible values, or another shape of a live model", counters.hellos_refused);
    Total("acks", "Acknowledgements of tier vectors", counters.acks);
    Total("acks_ignored", "Acknowledgements of unknown or former workers", counters.acks_ignored);
    Total("vectors_sent", "Tier vectors sent, repeats included", counters.vectors_sent);
    Total("vectors_undelivered", "Tier vectors that the socket refused: the worker is gone or does not read",
          loop_.counters().undelivered);
    Total("malformed_tiers_frames", "Frames of the tiers socket that did not decode", loop_.counters().malformed_tiers);
    Total("state_errors", "Failed writes to the state file", loop_.counters().state_errors);
    const Settings& settings = brain.settings();
    Set("tau", "Threshold tau0 in nats", settings.tau);
    Set("target_kl_nats", "Next-token KL that is held by moving tau or the KL budget; 0: none", settings.target_kl);
    Set("canary_rate", "Share of decode steps that fire", settings.canary_rate);
    Set("frozen", "1 while the tier vector is held", settings.frozen);
    Set("revision", "Newest change of the settings", static_cast<double>(brain.revision()));
    RefreshWorkers(brain);
    for (const auto& [fingerprint, model] : brain.models()) RefreshModel(model);
  }

 private:
  static std::string Full(const char* name) { return std::string("stria_controller_") + name; }
  void Total(const char* name, const char* help, double value, const MetricLabels& labels = {}) const {
    AdvanceTo(metrics_.Counter(Full(name) + "_total", help, labels), value);
  }
  void Set(const char* name, const char* help, double value, const MetricLabels& labels = {}) const {
    metrics_.Gauge(Full(name), help, labels).Set(value);
  }

  void RefreshTelemetry(const ControllerCounters& counters) const {
    Total("frames_accepted", "Telemetry frames used", counters.frames[0]);
    for (int i = 1; i < kFrameVerdicts; ++i) {
      Total("frames_refused", "Telemetry frames not used, by reason", counters.frames[i],
            {{"reason", std::string(Name(static_cast<FrameVerdict>(i)))}});
    }
    Total("frames_refused", "Telemetry frames not used, by reason", loop_.counters().malformed_telemetry,
          {{"reason", "malformed"}});
    Total("frames_lost", "Telemetry frames that never came, by their numbers", loop_.brain().registry().total_gaps());
    Total("readings_accepted", "Canary readings folded into averages", counters.readings[0]);
    for (int i = 1; i < kReadingVerdicts; ++i) {
      Total("readings_refused", "Canary readings not used, by reason", counters.readings[i],
            {{"reason", std::string(Name(static_cast<ReadingVerdict>(i)))}});
    }
    Total("firing_seconds", "Time that workers spent on the canary, as they measured it", loop_.counters().firing_seconds);
  }

  void RefreshWorkers(const Controller& brain) const {
    double count[3] = {};
    for (const auto& [name, worker] : brain.registry().workers()) {
      ++count[static_cast<int>(brain.Sync(worker, loop_.Now()))];
    }
    const char* help = "Workers by whether they apply the current tier vector";
    Set("workers", help, count[static_cast<int>(SyncState::kNever)], {{"state", "never"}});
    Set("workers", help, count[static_cast<int>(SyncState::kStale)], {{"state", "stale"}});
    Set("workers", help, count[static_cast<int>(SyncState::kSynced)], {{"state", "synced"}});
  }

  void RefreshQuality(const QualityState& quality, const MetricLabels& labels) const {
    const Settings in_force = InForce(quality.loop, loop_.brain().settings());
    Set("tau_in_force", "Threshold tau0 in nats as the quality target has moved it", in_force.tau, labels);
    Set("kl_budget_in_force", "KL budget in nats as the quality target has moved it", in_force.kl_budget, labels);
    Total("quality_tokens", "Positions whose next-token KL was measured on shadowed requests", static_cast<double>(quality.tokens), labels);
    if (!quality.recent.valid()) return;
    Set("quality_kl_nats", "Next-token KL against an FP16 cache, recent mean over shadowed requests", quality.recent.mean(), labels);
    for (const auto& [length, mean] : quality.by_length) {
      MetricLabels all = labels;
      all["length"] = std::to_string(length);
      Set("quality_length_kl_nats", "The same by length of context: from this many tokens to twice as many", mean.mean(), all);
    }
  }

  void RefreshModel(const ModelState& model) const {
    const MetricLabels labels = {{"model", model.model_name}, {"fingerprint", model.model}};
    RefreshQuality(model.quality, labels);
    Set("epoch", "Epoch of the tier vector in force", static_cast<double>(model.published.epoch), labels);
    Total("firings", "Canary firings that moved an average, since the model was first seen", model.firings, labels);
    for (uint32_t l = 0; l < model.layer_count(); ++l) {
      MetricLabels layer = labels;
      layer["layer"] = std::to_string(l);
      Total("layer_flips", "Changes of this layer's width after its first", model.flips[l], layer);
      const auto set = [&](const char* name, const char* help, double value, const char* label, const char* which) {
        MetricLabels all = layer;
        all[label] = which;
        Set(name, help, value, all);
      };
      const LayerTier& tier = model.published.layers[l];
      set("tier_bits", "Width of pages sealed from now on", Bits(tier.keys), "part", "keys");
      set("tier_bits", "Width of pages sealed from now on", Bits(tier.values), "part", "values");
      const std::vector<double> readings = MeanReadings(model, l, CacheKind::kPlain);
      for (size_t i = 0; i < readings.size(); ++i) {
        set("ema", "Smoothed canary reading in nats, at the reference length", readings[i], "width", Name(kReadingWidths[i]));
      }
    }
  }

  Metrics& metrics_;
  const ControlLoop& loop_;
};

}  // namespace

std::function<void()> MakeControllerMetrics(Metrics& metrics, const ControlLoop& loop) {
  Refresher refresh(metrics, loop);
  refresh();
  return refresh;
}

}  // namespace stria
