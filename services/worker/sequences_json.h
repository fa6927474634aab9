// What /debug/sequences shows of the engine.
#pragma once

#include <string>

#include "worker/engine.h"

namespace stria {

// {"epoch": 3, "sequences": [{"id", "attempt", "tokens", "prefilling", "layers": [{"keys": [{"bits": 16, "hash": "9ae1…"}],
// "values": […], "tail": 12}]}]}. Pages in order of their positions; a sealed page's width and hash never change.
std::string SequencesJson(const Engine& engine);

}  // namespace stria
