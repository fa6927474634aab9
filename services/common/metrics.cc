#include "services/common/metrics.h"

#include <mutex>

#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "base/check.h"

namespace stria {

struct Metrics::Impl {
  prometheus::Registry registry;
  MetricLabels constant;
  std::mutex mutex;  // guards the family maps; series themselves are atomic
  std::map<std::string, prometheus::Family<prometheus::Counter>*> counters;
  std::map<std::string, prometheus::Family<prometheus::Gauge>*> gauges;
  std::map<std::string, prometheus::Family<prometheus::Histogram>*> histograms;
};

Metrics::Metrics(MetricLabels constant) : impl_(std::make_unique<Impl>()) { impl_->constant = std::move(constant); }

Metrics::~Metrics() = default;

prometheus::Counter& Metrics::Counter(const std::string& name, const std::string& help, const MetricLabels& labels) {
  constexpr std::string_view kSuffix = "_total";
  STRIA_CHECK(name.size() > kSuffix.size() && name.compare(name.size() - kSuffix.size(), kSuffix.size(), kSuffix) == 0);
  const std::scoped_lock lock(impl_->mutex);
  auto*& family = impl_->counters[name];
  if (family == nullptr) family = &prometheus::BuildCounter().Name(name).Help(help).Labels(impl_->constant).Register(impl_->registry);
  return family->Add(labels);
}

prometheus::Gauge& Metrics::Gauge(const std::string& name, const std::string& help, const MetricLabels& labels) {
  const std::scoped_lock lock(impl_->mutex);
  auto*& family = impl_->gauges[name];
  if (family == nullptr) family = &prometheus::BuildGauge().Name(name).Help(help).Labels(impl_->constant).Register(impl_->registry);
  return family->Add(labels);
}

prometheus::Histogram& Metrics::Histogram(const std::string& name, const std::string& help, const std::vector<double>& buckets,
                                          const MetricLabels& labels) {
  const std::scoped_lock lock(impl_->mutex);
  auto*& family = impl_->histograms[name];
  if (family == nullptr) {
    family = &prometheus::BuildHistogram().Name(name).Help(help).Labels(impl_->constant).Register(impl_->registry);
  }
  return family->Add(labels, buckets);
}

void Metrics::RemoveGauge(const std::string& name, prometheus::Gauge& gauge) {
  const std::scoped_lock lock(impl_->mutex);
  const auto found = impl_->gauges.find(name);
  if (found != impl_->gauges.end()) found->second->Remove(&gauge);
}

std::string Metrics::Serialize() const { return prometheus::TextSerializer().Serialize(impl_->registry.Collect()); }

std::vector<double> ExponentialBuckets(double first, double factor, int count) {
  std::vector<double> buckets;
  for (double bound = first; count > 0; --count, bound *= factor) buckets.push_back(bound);
  return buckets;
}

}  // namespace stria
