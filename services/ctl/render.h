// The admin API's JSON as text for people. Pure.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace stria {

std::string RenderStatus(const nlohmann::json& status, bool colour);
std::string RenderTiers(const nlohmann::json& tiers, bool colour);
std::string RenderSettings(const nlohmann::json& settings, bool colour);
std::string RenderHistory(const nlohmann::json& history, bool colour);
std::string RenderFlips(const nlohmann::json& flips, bool colour);
// One line: "revision 4: tau 0.022 -> 0.03 (me@host: more room)", "nothing to change (revision 3)".
std::string RenderRevision(const nlohmann::json& revision);
// One line for an event of /v1/watch.
std::string RenderEvent(const std::string& name, const nlohmann::json& data);

// Whether every worker applies the current tier vector, and there is one.
bool AllSynced(const nlohmann::json& status);

}  // namespace stria
