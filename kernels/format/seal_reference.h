// Sealing in plain loops: the oracle of every target's SealKeys and SealValues.
#pragma once

#include "kernels/format/page_format.h"

namespace stria {

void SealKeysReference(const AttentionShape& shape, Width width, KvBlock tokens, void* page);
void SealValuesReference(const AttentionShape& shape, Width width, KvBlock tokens, void* page);

}  // namespace stria
