// The three workloads that calibrations and recordings are made of: GSM8K, tau-bench dialogues, made-up retrieval prompts; and their flags.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"

namespace stria {

struct WorkloadOptions {
  std::string model, gsm8k = "eval/data/gsm8k_excerpt.jsonl", tau = "eval/data/tau_airline_excerpt.jsonl";
  size_t texts = 1, tokens = 384;  // of each workload; of each text
  uint64_t seed = 2;               // of the retrieval texts
  int threads = 2;
};

// --model, --gsm8k, --tau, --texts, --tokens, --seed, --threads; the defaults are what `options` holds.
void AddWorkloadFlags(CLI::App& app, WorkloadOptions* options);

// options.texts texts of each workload in this order, each long enough for options.tokens tokens.
absl::StatusOr<std::vector<std::string>> ReadWorkloads(const WorkloadOptions& options);

}  // namespace stria
