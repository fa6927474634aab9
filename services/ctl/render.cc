#include "services/ctl/render.h"

#include <ctime>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/ctl/table.h"

namespace stria {
namespace {

using nlohmann::json;

std::string Text(const json& value) {
  if (value.is_string()) return Printable(value.get<std::string>());
  if (value.is_number_float()) return absl::StrFormat("%g", value.get<double>());
  return value.is_null() ? "-" : value.dump();
}

// Of a setting: none is "-", widths in a pair are joined.
std::string Value(const json& value) {
  if (!value.is_array()) return Text(value);
  return absl::StrJoin(value, "..", [](std::string* out, const json& part) { *out += Text(part); });
}

std::string Field(const json& object, const char* name) { return object.contains(name) ? Text(object[name]) : "-"; }

std::string Ago(const json& object, const char* name) {
  if (!object.contains(name) || !object[name].is_number()) return "never";
  return absl::StrFormat("%.1fs ago", object[name].get<double>());
}

std::string TimeText(const json& object) {
  const std::time_t seconds = static_cast<std::time_t>(object.value("unix_seconds", 0.0));
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

Colour StateColour(const std::string& state) {
  return state == "SYNCED" ? Colour::kGreen : state == "STALE" ? Colour::kYellow : Colour::kRed;
}

std::string ShortName(const json& model) { return Field(model, "model_name") + " (" + Field(model, "model").substr(0, 12) + ")"; }

std::string Bits(const json& model, const char* part) {
  return absl::StrFormat("%.2f", model.value("average_bits", json::object()).value(part, 0.0));
}

std::string Line(const json& difference) {
  return absl::StrCat(Field(difference, "setting"), " ", Value(difference["from"]), " -> ", Value(difference["to"]));
}

std::string Changes(const json& revision) {
  const json differences = Differences(revision.value("before", json::object()), revision.value("after", json::object()));
  return absl::StrJoin(differences, ", ", [](std::string* out, const json& difference) { *out += Line(difference); });
}

void Collect(const json& before, const json& after, const std::string& prefix, json& differences) {
  std::set<std::string> names;
  for (const json* side : {&before, &after}) {
    if (!side->is_object()) continue;
    for (const auto& [name, value] : side->items()) names.insert(name);
  }
  for (const std::string& name : names) {
    const json from = before.is_object() ? before.value(name, json()) : json(), to = after.is_object() ? after.value(name, json()) : json();
    if (from == to) continue;
    if (from.is_object() || to.is_object()) {
      Collect(from, to, prefix + name + ".", differences);
    } else {
      differences.push_back({{"setting", prefix + name}, {"from", from}, {"to", to}});
    }
  }
}

// What shadowed requests measured of a model, as a cell: "-" before the first token.
std::string MeasuredKl(const json& model) {
  const json measured = model.value("measured", json());
  return measured.is_object() ? Field(measured, "kl") : "-";
}

std::string Arrow(const json& change) {
  const std::string from = Field(change, "from"), to = Field(change, "to");
  return from == to ? from : from + " -> " + to;
}

// An average beside τ: "<" marks what is under it.
Cell Average(const json& layer, const char* width, double tau) {
  const json& ema = layer["ema"];
  if (!ema.is_object()) return Cell("-");
  const double value = ema.value(width, 0.0);
  return {absl::StrFormat("%.5f%s", value, value < tau ? " <" : ""), value < tau ? Colour::kGreen : Colour::kNone};
}

}  // namespace

bool AllSynced(const json& status) {
  const json workers = status.value("workers", json::array());
  for (const json& worker : workers) {
    if (worker.value("state", "") != "SYNCED") return false;
  }
  return !workers.empty();
}

std::string RenderStatus(const json& status, bool colour) {
  std::string text = absl::StrCat("revision ", Field(status, "revision"), ", tau ", Field(status, "tau"),
                                  status.value("frozen", false) ? ", FROZEN" : "", "\n");
  const json file = status.value("state_file", json::object());
  for (const char* trouble : {"damage", "error"}) {
    if (Field(file, trouble) != "-") absl::StrAppend(&text, "state file: ", Field(file, trouble), "\n");
  }
  Table models({"MODEL", "EPOCH", "LAYERS", "KEY BITS", "VALUE BITS", "FIRINGS", "LAST FIRING", "FLIPS", "TAU", "MEASURED KL"});
  const json model_list = status.value("models", json::array());
  for (const json& model : model_list) {
    models.Add({ShortName(model), Field(model, "epoch"), Field(model, "layer_count"), Bits(model, "keys"), Bits(model, "values"),
                Field(model, "firings"), Ago(model, "last_firing_seconds_ago"), Field(model, "flips"), Field(model, "tau"),
                MeasuredKl(model)});
  }
  if (!model_list.empty()) absl::StrAppend(&text, "\n", models.Text(colour));
  const json workers = status.value("workers", json::array());
  if (workers.empty()) return text + "\nno worker has said hello yet\n";
  Table table({"WORKER", "STATE", "APPLIED", "SENT", "HEARD", "FRAMES", "LOST", "RESTARTS", "HTTP"});
  for (const json& worker : workers) {
    const std::string state = Field(worker, "state");
    table.Add({Field(worker, "worker"), {state == "NEVER" ? "NEVER acknowledged" : state, StateColour(state)},
               Field(worker, "epoch_applied"), Field(worker, "epoch_sent"), Ago(worker, "heard_seconds_ago"), Field(worker, "frames"),
               Field(worker, "frames_lost"), Field(worker, "restarts"), Field(worker, "http")});
  }
  return absl::StrCat(text, "\n", table.Text(colour));
}

std::string RenderTiers(const json& tiers, bool colour) {
  if (Field(tiers, "model") == "-") return "no worker has said hello yet\n";
  const double tau = tiers.value("tau", 0.0);
  Table table({"LAYER", "KEYS", "VALUES", "EMA INT2", "EMA INT4", "EMA INT8", "FLIPS"});
  for (const json& layer : tiers.value("layers", json::array())) {
    table.Add({Field(layer, "layer"), Field(layer, "keys"), Field(layer, "values"), Average(layer, "int2", tau),
               Average(layer, "int4", tau), Average(layer, "int8", tau), Field(layer, "flips")});
  }
  return absl::StrCat(ShortName(tiers), ": epoch ", Field(tiers, "epoch"), ", tau ", Field(tiers, "tau"), ", ",
                      Field(tiers, "firings"), " firings, mean bits ", Bits(tiers, "keys"), " keys, ", Bits(tiers, "values"),
                      " values", tiers.value("frozen", false) ? ", FROZEN" : "", "\n", table.Text(colour), "(<: under tau)\n");
}

std::string RenderTarget(const json& target, bool colour) {
  const std::string moves = Field(target, "moves");
  std::string text = Field(target, "target_kl") == "-"
                         ? absl::StrCat("no target; ", moves, " stays at ", Field(target, "pinned"), "\n")
                         : absl::StrCat("target: next-token KL of ", Field(target, "target_kl"), " nats at most; ", moves, " is moved from ", Field(target, "pinned"),
                                        " within ", Field(target, "lowest"), " to ", Field(target, "highest"), "\n");
  Table models({"MODEL", "MEASURED KL", "TOKENS", "IN FORCE", "KEY BITS", "VALUE BITS", ""});
  Table lengths({"MODEL", "LENGTH FROM", "MEASURED KL"});
  bool measured_any = false;
  for (const json& model : target.value("models", json::array())) {
    const json measured = model.value("measured", json());
    const std::string bound = Field(model, "at_bound");
    models.Add({ShortName(model), MeasuredKl(model), measured.is_object() ? Field(measured, "tokens") : "0", Field(model, "value"),
                Bits(model, "keys"), Bits(model, "values"),
                bound == "-" ? "" : bound == "low" ? "as low as it may go" : "as high as it may go"});
    if (!measured.is_object()) continue;
    for (const json& length : measured.value("by_length", json::array())) {
      measured_any = true;
      lengths.Add({ShortName(model), Field(length, "length"), Field(length, "kl")});
    }
  }
  absl::StrAppend(&text, "\n", models.Text(colour));
  if (measured_any) absl::StrAppend(&text, "\n", lengths.Text(colour));
  const json steps = target.value("steps", json::array());
  if (steps.empty()) return text;
  Table history({"TIME", "MODEL", "VALUE", "MEASURED KL", "TOKENS"});
  for (const json& step : steps) {
    history.Add({TimeText(step), Field(step, "model").substr(0, 12), Field(step, "value"), Field(step, "kl"), Field(step, "tokens")});
  }
  return absl::StrCat(text, "\n", history.Text(colour));
}

std::string RenderSettings(const json& answer, bool colour) {
  Table table({"SETTING", "VALUE"});
  const json settings = answer.value("settings", json::object());
  for (const auto& [name, value] : settings.items()) {
    if (!value.is_object()) table.Add({name, Value(value)});
  }
  for (const json& part : Differences(json::object(), {{"pins", settings.value("pins", json::object())}})) {
    table.Add({Field(part, "setting"), Value(part["to"])});
  }
  return absl::StrCat("revision ", Field(answer, "revision"), "\n", table.Text(colour));
}

std::string RenderHistory(const json& history, bool colour) {
  const json revisions = history.value("revisions", json::array());
  if (revisions.empty()) return "no changes\n";
  Table table({"REVISION", "TIME", "WHO", "CHANGE", "REASON"});
  for (const json& revision : revisions) {
    table.Add({Field(revision, "revision"), TimeText(revision), Field(revision, "who"), Changes(revision), Field(revision, "reason")});
  }
  return table.Text(colour);
}

std::string RenderFlips(const json& answer, bool colour) {
  const json flips = answer.value("flips", json::array());
  if (flips.empty()) return "no flips\n";
  Table table({"TIME", "EPOCH", "MODEL", "LAYER", "FROM", "TO"});
  for (const json& flip : flips) {
    table.Add({TimeText(flip), Field(flip, "epoch"), Field(flip, "model").substr(0, 12), Field(flip, "layer"),
               Field(flip, "from"), Field(flip, "to") + (flip.value("first", false) ? " (first reading)" : "")});
  }
  return table.Text(colour);
}

json Differences(const json& before, const json& after) {
  json differences = json::array();
  Collect(before, after, "", differences);
  return differences;
}

std::string RenderDifferences(const json& differences, bool) {
  std::string text;
  for (const json& difference : differences) text += Line(difference) + "\n";
  return text;
}

std::string RenderPlan(const json& change, bool colour) {
  std::string text = RenderRevision(change) + "\n";
  for (const json& model : change.value("plan", json::object()).value("models", json::array())) {
    const json layers = model.value("layers", json::array());
    const json bits = model.value("average_bits", json::object());
    const auto mean = [&](const char* when, const char* part) { return bits.value(when, json::object()).value(part, 0.0); };
    absl::StrAppendFormat(&text, "%s: %d of its layers would change at once; mean bits %.2f -> %.2f keys, %.2f -> %.2f values\n", ShortName(model),
                          layers.size(), mean("before", "keys"), mean("after", "keys"), mean("before", "values"), mean("after", "values"));
    if (layers.empty()) continue;
    Table table({"LAYER", "KEYS", "VALUES"});
    for (const json& layer : layers) {
      table.Add({Field(layer, "layer"), Arrow(layer.value("keys", json::object())), Arrow(layer.value("values", json::object()))});
    }
    text += table.Text(colour);
  }
  return text;
}

std::string RenderRevision(const json& revision) {
  const std::string changes = Changes(revision);
  if (changes.empty()) return absl::StrCat("nothing to change (revision ", Field(revision, "revision"), ")");
  const std::string who = Field(revision, "who"), reason = Field(revision, "reason");
  const std::string by = who.empty() ? "" : absl::StrCat(" (", who, reason.empty() ? "" : ": ", reason, ")");
  return absl::StrCat(revision.value("dry_run", false) ? "would be revision " : "revision ", Field(revision, "revision"), ": ", changes, by);
}

std::string RenderEvent(const std::string& name, const json& data) {
  if (name == "revision") return RenderRevision(data);
  if (name == "worker") {
    return absl::StrCat("worker ", Field(data, "worker"), ": ", Field(data, "state"), ", epoch ", Field(data, "epoch_applied"));
  }
  if (name == "tiers") {
    std::string text = absl::StrCat("epoch ", Field(data, "epoch"), ":");
    const json flips = data.value("flips", json::array());
    for (const json& flip : flips) {
      absl::StrAppend(&text, " layer ", Field(flip, "layer"), " ", Field(flip, "from"), "->", Field(flip, "to"));
    }
    return flips.empty() ? text + " no layer changed" : text;
  }
  if (name == "target") {
    return absl::StrCat("target moved ", Field(data, "model").substr(0, 12), " to ", Field(data, "value"), ": measured KL ", Field(data, "kl"), " after ",
                        Field(data, "tokens"), " tokens");
  }
  if (name == "firing") {
    return absl::StrCat("firing ", Field(data, "number"), " of ", Field(data, "worker"), ": ", Field(data, "sequences"),
                        " sequences, ", Field(data, "tokens"), " tokens");
  }
  return absl::StrCat(Printable(name), " ", Text(data));
}

}  // namespace stria
