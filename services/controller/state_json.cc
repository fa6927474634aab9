#include "services/controller/state_json.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace stria {
namespace {

using nlohmann::json;

constexpr uint32_t kMaxLayers = 4096;

json ToJson(const SmoothedReadings& readings) {
  json list = json::array();
  for (const Ema& ema : readings) list.push_back({ema.value(), ema.count()});
  return list;
}

json ToJson(const TokenMean& mean) { return {mean.mean(), mean.weight()}; }

json ToJson(const QualityState& quality) {
  json by_length = json::array();
  for (const auto& [length, mean] : quality.by_length) by_length.push_back({length, ToJson(mean)});
  json loop;
  if (quality.loop.engaged) {
    loop = {{"log_value", quality.loop.log_value}, {"recorded", quality.loop.recorded}};
    if (quality.loop.error.has_value()) loop["error"] = *quality.loop.error;
  }
  return {{"tokens", quality.tokens}, {"recent", ToJson(quality.recent)}, {"by_length", std::move(by_length)}, {"loop", std::move(loop)}};
}

json ToJson(const LayerTier& tier) {
  return {Bits(tier.keys), Bits(tier.values), Bits(tier.guard_plain), Bits(tier.guard_latent)};
}

// The readers below throw what nlohmann throws, and std::out_of_range on bad values; ModelStateFromJson turns both into a Status.
void Require(bool condition, const char* what) {
  if (!condition) throw std::out_of_range(what);
}

Width ReadWidth(const json& value) {
  const int bits = value.get<int>();
  Require(IsWidth(bits), "a width that is none");
  return static_cast<Width>(bits);
}

LayerTier ReadTier(const json& value) {
  return {ReadWidth(value.at(0)), ReadWidth(value.at(1)), ReadWidth(value.at(2)), ReadWidth(value.at(3))};
}

SmoothedReadings ReadReadings(const json& list) {
  SmoothedReadings readings;
  for (size_t i = 0; i < readings.size(); ++i) {
    const double value = list.at(i).at(0).get<double>();
    Require(std::isfinite(value) && value >= 0, "an average that is negative or not finite");
    readings[i] = Ema(value, list.at(i).at(1).get<uint64_t>());
  }
  return readings;
}

double ReadFinite(const json& value) {
  const double number = value.get<double>();
  Require(std::isfinite(number), "a number that is not finite");
  return number;
}

TokenMean ReadTokenMean(const json& pair) {
  const double mean = ReadFinite(pair.at(0)), weight = ReadFinite(pair.at(1));
  Require(mean >= 0 && weight >= 0, "a mean or weight that is negative");
  return {mean, weight};
}

QualityState ReadQuality(const json& object) {
  QualityState quality;
  quality.tokens = object.at("tokens").get<uint64_t>();
  quality.recent = ReadTokenMean(object.at("recent"));
  for (const json& entry : object.at("by_length")) quality.by_length[entry.at(0).get<uint32_t>()] = ReadTokenMean(entry.at(1));
  const json& loop = object.at("loop");
  if (loop.is_null()) return quality;
  quality.loop.engaged = true;
  quality.loop.log_value = ReadFinite(loop.at("log_value"));
  quality.loop.recorded = ReadFinite(loop.at("recorded"));
  if (loop.contains("error")) quality.loop.error = ReadFinite(loop["error"]);
  return quality;
}

LayerState ReadLayer(const json& object) {
  LayerState layer;
  layer.plain = ReadReadings(object.at("plain"));
  layer.latent = ReadReadings(object.at("latent"));
  layer.tier = ReadTier(object.at("tier"));
  layer.decided = object.at("decided").get<bool>();
  layer.stable = object.at("stable").get<std::array<uint32_t, 3>>();
  layer.above = object.value("above", 0u);
  return layer;
}

TierVector ReadVector(const json& object) {
  TierVector vector;
  vector.epoch = object.at("epoch").get<uint64_t>();
  vector.model = object.at("model").get<std::string>();
  for (const json& layer : object.at("layers")) vector.layers.push_back(ReadTier(layer));
  vector.canary_rate = object.at("canary_rate").get<double>();
  vector.reference_length = object.at("reference_length").get<uint32_t>();
  vector.frozen = object.at("frozen").get<bool>();
  return vector;
}

ModelState ReadModel(const json& object) {
  ModelState state;
  state.model = object.at("model").get<std::string>();
  state.model_name = object.at("model_name").get<std::string>();
  for (const json& rank : object.at("ranks")) {
    auto& layers = state.ranks.emplace_back();
    for (const json& layer : rank) layers.push_back(ReadLayer(layer));
    Require(layers.size() == state.ranks[0].size(), "ranks of different depth");
  }
  state.published = ReadVector(object.at("published"));
  state.published_decided = object.at("published_decided").get<std::vector<uint8_t>>();
  state.flips = object.at("flips").get<std::vector<uint64_t>>();
  state.firings = object.at("firings").get<uint64_t>();
  state.warmup_from = object.value("warmup_from", uint64_t{0});
  if (object.contains("quality")) state.quality = ReadQuality(object["quality"]);
  Require(state.warmup_from <= state.firings, "a warm-up that began after the last firing");
  state.unit_epoch = object.at("unit_epoch").get<uint64_t>();
  const size_t layers = state.layer_count();
  Require(layers > 0 && state.published.layers.size() == layers && state.published_decided.size() == layers &&
              state.flips.size() == layers && state.published.model == state.model,
          "parts of one model that do not fit");
  return state;
}

// "int8" pins; ["int2", "int8"] bounds.
json ToJson(const WidthBounds& bounds) {
  if (bounds.pinned()) return Name(bounds.narrowest);
  return json::array({Name(bounds.narrowest), Name(bounds.widest)});
}

absl::StatusOr<WidthBounds> ReadBounds(const std::string& what, const json& value) {
  const auto width = [](const json& name) {
    const auto found = std::find_if(std::begin(kAllWidths), std::end(kAllWidths), [&](Width w) { return name == Name(w); });
    return found == std::end(kAllWidths) ? std::optional<Width>() : *found;
  };
  const bool pair = value.is_array() && value.size() == 2;
  const std::optional<Width> narrowest = width(pair ? value[0] : value), widest = width(pair ? value[1] : value);
  if (narrowest.has_value() && widest.has_value()) return WidthBounds{*narrowest, *widest};
  return absl::InvalidArgumentError(absl::StrCat(what, " = ", Dump(value).substr(0, 100),
                                                 ": must be int2, int4, int8 or fp16, or a pair of them: [narrowest, widest]"));
}

// Layers that are named replace their pin, or lose it by null.
absl::Status ReadPins(const json& object, std::map<uint32_t, LayerPin>& pins) {
  if (!object.is_object()) return absl::InvalidArgumentError("pins must be an object of layers");
  for (const auto& [name, value] : object.items()) {
    uint32_t layer = 0;
    if (!absl::SimpleAtoi(name, &layer) || layer >= kMaxLayers) {
      return absl::InvalidArgumentError(absl::StrCat("pins: '", name, "' is not a layer's number"));
    }
    if (value.is_null()) {
      pins.erase(layer);
      continue;
    }
    if (!value.is_object()) return absl::InvalidArgumentError(absl::StrCat("pins.", name, " must be an object or null"));
    LayerPin pin;
    for (const auto& [kind, bounds] : value.items()) {
      if (kind != "keys" && kind != "values") {
        return absl::InvalidArgumentError(absl::StrCat("pins.", name, ".", kind, ": must be keys or values"));
      }
      WidthBounds& target = kind == "keys" ? pin.keys : pin.values;
      STRIA_ASSIGN_OR_RETURN(target, ReadBounds(absl::StrCat("pins.", name, ".", kind), bounds));
    }
    pins[layer] = pin;
  }
  return absl::OkStatus();
}

}  // namespace

json ToJson(const Settings& settings) {
  json object = json::object();
  for (const SettingField& field : SettingFields()) {
    const double value = field.get(settings);
    const std::string name(field.name);
    switch (field.type) {
      case SettingField::Type::kNumber: object[name] = value; break;
      case SettingField::Type::kInteger: object[name] = static_cast<int64_t>(value); break;
      case SettingField::Type::kBool: object[name] = value != 0; break;
      case SettingField::Type::kChoice: object[name] = field.choices[static_cast<size_t>(value)]; break;
    }
  }
  object["pins"] = json::object();
  for (const auto& [layer, pin] : settings.pins) {
    object["pins"][absl::StrCat(layer)] = {{"keys", ToJson(pin.keys)}, {"values", ToJson(pin.values)}};
  }
  return object;
}

absl::StatusOr<Settings> SettingsFromJson(const json& object, const Settings& base) {
  Settings settings = base;
  if (!object.is_object()) return absl::InvalidArgumentError("settings must be a JSON object");
  for (const auto& [name, value] : object.items()) {
    if (name == "pins") {
      STRIA_RETURN_IF_ERROR(ReadPins(value, settings.pins));
      continue;
    }
    if (value.is_string()) {
      STRIA_RETURN_IF_ERROR(SetSetting(settings, name, value.get_ref<const std::string&>()));
      continue;
    }
    const SettingField* field = FindSetting(name);
    if (field != nullptr && field->type == SettingField::Type::kChoice) {  // by name only, not by place in the list
      STRIA_RETURN_IF_ERROR(SetSetting(settings, name, Dump(value).substr(0, 100)));
      continue;
    }
    const bool wants_bool = field != nullptr && field->type == SettingField::Type::kBool;
    if (field != nullptr && !(wants_bool ? value.is_boolean() : value.is_number())) {
      return absl::InvalidArgumentError(absl::StrCat(name, " = ", value.is_structured() ? value.type_name() : Dump(value), ": must be ", wants_bool ? "true or false" : "a number"));
    }
    STRIA_RETURN_IF_ERROR(SetSetting(settings, name, value.is_boolean() ? value.get<bool>() : value.is_number() ? value.get<double>() : 0));
  }
  STRIA_RETURN_IF_ERROR(CheckSettings(settings));
  return settings;
}

json UndoChange(json current, const json& before, const json& after) {
  for (const auto& [name, value] : after.items()) {
    if (!before.contains(name)) current.erase(name);
  }
  for (const auto& [name, value] : before.items()) {
    const json now = after.value(name, json());
    if (now == value) continue;
    const bool inside = value.is_object() && now.is_object() && current.contains(name) && current[name].is_object();
    current[name] = inside ? UndoChange(current[name], value, now) : value;
  }
  return current;
}

json ToJson(const Revision& revision) {
  return {{"revision", revision.number},
          {"unix_seconds", revision.unix_seconds},
          {"who", revision.who},
          {"reason", revision.why},
          {"changed", ChangedSettings(revision.before, revision.after)},
          {"before", ToJson(revision.before)},
          {"after", ToJson(revision.after)}};
}

json ToJson(const Flip& flip) {
  return {{"epoch", flip.epoch}, {"unix_seconds", flip.unix_seconds}, {"model", flip.model}, {"layer", flip.layer},
          {"from", Name(flip.from)}, {"to", Name(flip.to)}, {"first", flip.first}};
}

json ToJson(const LoopStep& step) {
  return {{"unix_seconds", step.unix_seconds}, {"model", step.model}, {"value", step.value}, {"kl", step.kl}, {"tokens", step.tokens}};
}

json ToJson(const TierVector& vector) {
  json layers = json::array();
  for (const LayerTier& tier : vector.layers) layers.push_back(ToJson(tier));
  return {{"epoch", vector.epoch},   {"model", vector.model},
          {"layers", layers},        {"canary_rate", vector.canary_rate},
          {"frozen", vector.frozen}, {"reference_length", vector.reference_length}};
}

json ToJson(const CanaryFrame& frame) {
  json readings = json::array();
  for (const LayerReading& reading : frame.readings) {
    json& entry = readings.emplace_back(json{{"layer", reading.layer}, {"kind", reading.kind == CacheKind::kPlain ? "plain" : "latent"}});
    for (size_t i = 0; i < reading.kl.size(); ++i) entry[Name(kReadingWidths[i])] = reading.kl[i];
  }
  return {{"worker", frame.worker},
          {"model", frame.model},
          {"rank", frame.rank},
          {"number", frame.number},
          {"step", frame.step},
          {"epoch", frame.epoch},
          {"sequences", frame.sequences},
          {"tokens", frame.tokens},
          {"cost_seconds", frame.cost_seconds},
          {"readings", std::move(readings)}};
}

json ToJson(const ModelState& state) {
  json ranks = json::array();
  for (const auto& layers : state.ranks) {
    json list = json::array();
    for (const LayerState& layer : layers) {
      list.push_back({{"plain", ToJson(layer.plain)},
                      {"latent", ToJson(layer.latent)},
                      {"tier", ToJson(layer.tier)},
                      {"decided", layer.decided},
                      {"stable", layer.stable},
                      {"above", layer.above}});
    }
    ranks.push_back(std::move(list));
  }
  return {{"model", state.model},
          {"model_name", state.model_name},
          {"ranks", std::move(ranks)},
          {"published", ToJson(state.published)},
          {"published_decided", state.published_decided},
          {"flips", state.flips},
          {"firings", state.firings},
          {"warmup_from", state.warmup_from},
          {"quality", ToJson(state.quality)},
          {"unit_epoch", state.unit_epoch}};
}

absl::StatusOr<ModelState> ModelStateFromJson(const json& object) {
  try {
    return ReadModel(object);
  } catch (const std::exception& error) {
    return absl::DataLossError(absl::StrCat("model state: ", error.what()));
  }
}

std::string Dump(const json& value, int indent) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace);
}

}  // namespace stria
