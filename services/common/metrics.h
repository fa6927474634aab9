// Prometheus metrics of one process. Values are atomic: any thread may change them. Metrics are made at start; label values
// never come from users.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>

namespace stria {

using MetricLabels = std::map<std::string, std::string>;

class Metrics {
 public:
  // `constant` labels are on every series.
  Metrics() : Metrics(MetricLabels()) {}
  explicit Metrics(MetricLabels constant);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // The same name and labels give the same series. A counter's name ends in _total (checked). References live as long as this.
  prometheus::Counter& Counter(const std::string& name, const std::string& help, const MetricLabels& labels = {});
  prometheus::Gauge& Gauge(const std::string& name, const std::string& help, const MetricLabels& labels = {});
  prometheus::Histogram& Histogram(const std::string& name, const std::string& help, const std::vector<double>& buckets,
                                   const MetricLabels& labels = {});
  // A series that is no more (a worker that left).
  void RemoveGauge(const std::string& name, prometheus::Gauge& gauge);

  // Prometheus text format, kMetricsContentType.
  std::string Serialize() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

inline constexpr char kMetricsContentType[] = "text/plain; version=0.0.4; charset=utf-8";

// Brings a counter up to a total that is kept elsewhere; one that is lower changes nothing.
inline void AdvanceTo(prometheus::Counter& counter, double total) {
  if (const double by = total - counter.Value(); by > 0) counter.Increment(by);
}

// first, first·factor, … : `count` upper bounds.
std::vector<double> ExponentialBuckets(double first, double factor, int count);

}  // namespace stria
