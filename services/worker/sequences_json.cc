#include "services/worker/sequences_json.h"

#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace stria {
namespace {

using Json = nlohmann::ordered_json;

Json PagesJson(const std::vector<PageInfo>& pages) {
  Json json = Json::array();
  // Hashes as text: JSON numbers lose their low bits.
  for (const PageInfo& page : pages) {
    json.push_back({{"bits", Bits(page.width)}, {"hash", std::string(absl::StrCat(absl::Hex(page.hash, absl::kZeroPad16)))}});
  }
  return json;
}

}  // namespace

std::string SequencesJson(const Engine& engine) {
  Json json;
  json["epoch"] = engine.tiers().epoch;
  json["sequences"] = Json::array();
  for (const SequenceInfo& info : engine.Describe()) {
    Json sequence;
    sequence["id"] = info.name.id;
    sequence["attempt"] = info.name.attempt;
    sequence["tokens"] = info.tokens;
    sequence["positions"] = info.positions;
    sequence["prefilling"] = info.prefilling;
    sequence["layers"] = Json::array();
    for (const LayerInfo& layer : info.layers) {
      sequence["layers"].push_back(
          {{"keys", PagesJson(layer.key_pages)}, {"values", PagesJson(layer.value_pages)}, {"tail", layer.tail}});
    }
    json["sequences"].push_back(std::move(sequence));
  }
  return json.dump();
}

}  // namespace stria
