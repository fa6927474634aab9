"""Linear maps from an anchor's keys and values to those of a layer that inherits, by ridge regression.

Two forms:
  full      k, v of the layer from k, v of the anchor, all heads, keys before rotation. Costs (2·G·D)² numbers and a
            product per token where keys are read: for prefill, or for rebuilding.
  absorbed  keys: a complex G × G matrix per rotary frequency, which commutes with the rotation and so goes into the
            query; values: a D × D matrix per KV head, which goes into the output projection. Free at read.
Biases: a constant in keys of the full form is rotated with them; the absorbed form has one for values only, which is a
constant of the layer's output.
"""

import dataclasses

import torch

from training.cache import Stored
from training.depth.latent_maps import solve


def to_complex(x):
    """[..., D] in rotate-half order as D/2 complex numbers, one per rotary frequency."""
    a, b = x.chunk(2, dim=-1)
    return torch.complex(a, b)


def joint(k, v):
    """[..., T, 2·G·D] of k, v [..., G, T, D]."""
    return torch.cat([k.transpose(-3, -2).flatten(-2), v.transpose(-3, -2).flatten(-2)], dim=-1)


@dataclasses.dataclass
class FullMap:
    matrix: torch.Tensor  # [E, E]
    bias: torch.Tensor  # [E]
    output_bias = None

    def apply(self, rotary, stored):
        groups, dim = stored.keys.shape[1], stored.keys.shape[3]

        def one(keys, values):
            y = joint(rotary.rotate(keys, inverse=True), values) @ self.matrix.T + self.bias
            keys, values = y.unflatten(-1, (2, groups, dim)).permute(2, 0, 3, 1, 4)
            return rotary.rotate(keys), values

        exact = one(stored.keys, stored.values)
        if stored.sealed_keys is None and stored.sealed_values is None:
            return Stored(*exact)
        sealed = one(
            stored.keys if stored.sealed_keys is None else stored.sealed_keys,
            stored.values if stored.sealed_values is None else stored.sealed_values,
        )
        return Stored(*exact, *sealed)

    def tensors(self):
        return {"matrix": self.matrix, "bias": self.bias}


@dataclasses.dataclass
class AbsorbedMap:
    keys: torch.Tensor  # [D/2, G, G] complex: follower's head from anchor's heads
    values: torch.Tensor  # [G, D, D]
    value_bias: torch.Tensor  # [G, D]
    output_bias = None

    def apply(self, rotary, stored):
        del rotary  # the key map commutes with it

        def map_keys(keys):
            if keys is None:
                return None
            z = torch.einsum("igh,bhti->bgti", self.keys, to_complex(keys))
            return torch.cat([z.real, z.imag], dim=-1)

        def map_values(values):
            return None if values is None else values @ self.values.mT + self.value_bias[:, None]

        return Stored(
            map_keys(stored.keys),
            map_values(stored.values),
            map_keys(stored.sealed_keys),
            map_values(stored.sealed_values),
        )

    def tensors(self):
        return {"keys": torch.view_as_real(self.keys), "values": self.values, "value_bias": self.value_bias}


class PairStatistics:
    """Weighted moments between an anchor's y = (k, v, 1) and a layer's, a token weighing as the squared attention that
    it receives in the layer."""

    def __init__(self, config):
        e = 2 * config.kv_width + 1
        self.config = config
        self.gram, self.cross = (torch.zeros(e, e, dtype=torch.float64) for _ in range(2))

    def add(self, anchor_y, y, weights):
        """anchor_y, y [T, E]; weights [T]."""
        one = torch.ones(len(y), 1)
        a, b = torch.cat([anchor_y, one], 1), torch.cat([y, one], 1)
        self.gram += (a * weights[:, None]).T @ a
        self.cross += (a * weights[:, None]).T @ b

    def full(self, ridge=1e-4):
        solution = solve(self.gram, self.cross, ridge)[:, :-1].T.float()
        return FullMap(solution[:, :-1].contiguous(), solution[:, -1].contiguous())

    def absorbed(self, ridge=1e-4):
        c, width = self.config, self.config.kv_width
        half = c.head_dim // 2

        def complex_moments(moments):  # [half, G, G]: Σ w conj(a) b
            m = moments[:width, :width].view(c.kv_heads, 2, half, c.kv_heads, 2, half)
            m = m[:, :, torch.arange(half), :, :, torch.arange(half)]
            return torch.complex(m[:, :, 0, :, 0] + m[:, :, 1, :, 1], m[:, :, 0, :, 1] - m[:, :, 1, :, 0])

        gram, cross = complex_moments(self.gram), complex_moments(self.cross)
        # Σ_a conj(a) a' K[b, a'] = Σ_a conj(a) b for each b.
        keys = torch.stack([solve(g, x, ridge).T for g, x in zip(gram, cross)]).to(torch.complex64)
        values, biases = [], []
        for head in range(c.kv_heads):
            rows = torch.arange(width + head * c.head_dim, width + (head + 1) * c.head_dim)
            rows = torch.cat([rows, torch.tensor([2 * width])])
            solution = solve(self.gram[rows][:, rows], self.cross[rows][:, rows[:-1]], ridge)
            values.append(solution[:-1].T)
            biases.append(solution[-1])
        return AbsorbedMap(keys, torch.stack(values).float(), torch.stack(biases).float())


@torch.no_grad()
def collect(model, tokens, pairs):
    """{(anchor, layer): PairStatistics} over contexts [B, T] with the exact cache, for the pairs (anchor, layer)."""
    reader = model.reader(tokens.shape[1])
    statistics = {pair: PairStatistics(model.config) for pair in pairs}
    anchors_of = {}
    for anchor, layer in pairs:
        anchors_of.setdefault(layer, []).append(anchor)
    for context in tokens:
        seen = {}

        def observe(layer, x, q, k, v, stored, out):
            seen[layer] = y = joint(k, v)[0]
            if layer not in anchors_of:
                return
            p = reader.probabilities(reader.rotary.rotate(q), stored.keys)
            weights = p.square().sum((0, 1, 2, 3))
            for anchor in anchors_of[layer]:
                statistics[anchor, layer].add(seen[anchor], y, weights)

        model.run_layers(model.embed(context[None]), observe=observe)
    return statistics
