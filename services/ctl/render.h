// The admin API's JSON as text for people. Pure.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace stria {

std::string RenderStatus(const nlohmann::json& status, bool colour);
std::string RenderTiers(const nlohmann::json& tiers, bool colour);
std::string RenderTarget(const nlohmann::json& target, bool colour);
std::string RenderSettings(const nlohmann::json& settings, bool colour);
std::string RenderHistory(const nlohmann::json& history, bool colour);
std::string RenderFlips(const nlohmann::json& flips, bool colour);
// What differs between two settings objects, setting by setting: [{"setting", "from", "to"}]; a part that one side lacks is null. Settings of
// several parts are looked into: "pins.7.keys".
nlohmann::json Differences(const nlohmann::json& before, const nlohmann::json& after);
// A line for each: "tau 0.022 -> 0.03".
std::string RenderDifferences(const nlohmann::json& differences, bool colour);
// What a change would do: the revision that it would be, and of each model the layers that would change at once.
std::string RenderPlan(const nlohmann::json& change, bool colour);
// One line: "revision 4: tau 0.022 -> 0.03 (me@host: more room)", "nothing to change (revision 3)".
std::string RenderRevision(const nlohmann::json& revision);
// One line for an event of /v1/watch.
std::string RenderEvent(const std::string& name, const nlohmann::json& data);

// Whether every worker applies the current tier vector, and there is one.
bool AllSynced(const nlohmann::json& status);

}  // namespace stria
