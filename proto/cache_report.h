// What a worker's cache holds, asked for and told over the tiers socket: for people who watch, nothing decides by it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/width.h"
#include "proto/sequences.h"

namespace stria {

// Controller → worker. Answered between two steps.
struct CacheQuery {
  uint64_t number = 0;    // the answer carries it
  uint64_t sequence = 0;  // whose pages are told one by one; 0: nobody's
};

// What one sequence holds; shared pages count in full.
struct SequenceHeld {
  SequenceName name;
  uint32_t tokens = 0;     // in the cache
  uint32_t positions = 0;  // of the context, evicted tokens included
  uint32_t tail = 0;       // tokens behind the last sealed page
  uint32_t ring_keys = 0;  // valid keys in each ring, 64 at most
  bool prefilling = false;
  std::array<uint64_t, 4> page_bytes{};  // of sealed pages, by WidthIndex
  uint64_t ring_bytes = 0;               // rings and tails
  uint64_t bytes = 0;                    // all: pages, those taken for what comes next too, and rings
  uint64_t fp16_bytes = 0;               // the whole context in FP16, every layer with a cache of its own
};

// Widths of one layer's sealed pages in order of their positions; empty where the layer inherits.
struct LayerPages {
  std::vector<Width> keys, values;
  friend bool operator==(const LayerPages&, const LayerPages&) = default;
};

// Worker → controller.
struct CacheReport {
  std::string worker;
  uint64_t incarnation = 0;
  uint64_t number = 0;  // the query's
  uint64_t epoch = 0;   // in force
  uint64_t pool_bytes = 0, used_bytes = 0;
  std::vector<SequenceHeld> sequences;
  uint64_t pages_of = 0;  // the sequence whose pages follow; 0: nobody's was asked for, or it is gone
  std::vector<LayerPages> layers;
};

}  // namespace stria
