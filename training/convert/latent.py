"""Conversion of a layer's attention to multi-head latent attention with decoupled rotary keys.

A token's keys (before rotation) and values y = (k, v) become one vector: `rank` latent channels, ordered by importance,
so that any first d of them serve, and d_R rotary channels, which are rotated by position and never cut.

Rotary part. A pair of key channels of one frequency is a complex number per KV head; combinations of the heads within
one frequency commute with the rotation. Each frequency's principal combinations are candidates, and the d_R/2 that lose
most when they stop turning are kept, over all frequencies. What is not kept is read as if it were rotated by the mean
of exp(-i θ distance) under the squared attention: that factor, shrinkage included, goes into the query.

Latent part. The rest of the keys and all values, in the metric of what an error does to the layer's output
(training/convert/statistics.py), by principal components. Around the mean: a constant in every key changes no softmax,
and a constant in every value is a constant of the output. Biases need no other care for the same reason, and QK norms
none because the vector is made from the normed keys.
"""

import dataclasses

import torch
import torch.nn.functional as F


@dataclasses.dataclass
class VectorMaps:
    """How a layer reads vectors of R latent and d_R rotary channels: its own, or its anchor's."""

    query: torch.Tensor  # [H, R + d_R, D]: of a head's query before rotation; rotary channels in rotate-half order
    value_up: torch.Tensor  # [G, D, R]: a head's output of its average of latents
    value_bias: torch.Tensor  # [hidden]: added to the layer's attention output

    @property
    def rank(self):
        return self.value_up.shape[-1]

    @property
    def output_bias(self):
        return self.value_bias

    def _kept(self, rank):
        return torch.cat([torch.arange(rank), torch.arange(self.rank, self.query.shape[1])])

    def cut(self, rank):
        """The same with the first `rank` latent channels only."""
        return dataclasses.replace(
            self, query=self.query[:, self._kept(rank)], value_up=self.value_up[..., :rank]
        )

    def attend(self, reader, q, vectors, rank, frequencies):
        """[B, H, T, D] of queries [B, H, T, D] over stored vectors of `rank` latent channels (cache.Stored)."""
        latent, rotary = q @ self.query[:, :rank].mT, q @ self.query[:, self.rank :].mT
        averages = reader.read(torch.cat([latent, reader.rotary.rotate(rotary, frequencies)], -1), vectors)
        grouped = averages.unflatten(1, (len(self.value_up), -1))
        return (grouped @ self.value_up[:, None, :, :rank].mT).flatten(1, 2)


@dataclasses.dataclass
class Conversion(VectorMaps):
    """One layer's vectors and how it reads them. E = 2·G·D; float32 but for the frequencies."""

    down: torch.Tensor  # [R + d_R, E]: of (k, v), latent channels first
    down_bias: torch.Tensor  # [R + d_R]
    frequencies: torch.Tensor  # [d_R / 2] float64
    importance: torch.Tensor  # [R]: loss, in the metric, of leaving the channel out

    def cut(self, rank):
        kept = self._kept(rank)
        return dataclasses.replace(
            super().cut(rank),
            down=self.down[kept],
            down_bias=self.down_bias[kept],
            importance=self.importance[:rank],
        )

    def project(self, k, v, rank):
        """(latent [B, T, rank], rotary [B, T, d_R] not yet rotated) of k, v [B, G, T, D]."""
        y = torch.cat([k.transpose(1, 2).flatten(2), v.transpose(1, 2).flatten(2)], dim=-1)
        latent = F.linear(y, self.down[:rank], self.down_bias[:rank])
        return latent, F.linear(y, self.down[self.rank :], self.down_bias[self.rank :])


def complex_matrix(z):
    """The real [..., 2m, 2n] that acts on rotate-half vectors as the complex [..., m, n] does on complex ones."""
    return torch.cat([torch.cat([z.real, -z.imag], -1), torch.cat([z.imag, z.real], -1)], -2)


def symmetric_root(matrix, floor=1e-9):
    """(root, inverse of the root), eigenvalues raised to `floor` times the largest."""
    values, vectors = torch.linalg.eigh(matrix)
    values = values.clamp_min(floor * values[-1].clamp_min(1e-30)).sqrt()
    return vectors * values @ vectors.mT, vectors / values @ vectors.mT


@dataclasses.dataclass
class RotaryChoice:
    keep: torch.Tensor  # [d_R/2, G, D/2] complex: kept number = Σ over heads and pairs
    rebuild: torch.Tensor  # [G, D/2, d_R/2] complex: what the kept ones say of the keys
    frequencies: torch.Tensor


def choose_rotary(config, frequencies, statistics, pairs):
    """The `pairs` combinations of heads that lose most when their rotation is frozen at its mean."""
    groups, half = config.kv_heads, config.head_dim // 2
    moments = statistics.moments[: config.kv_width, : config.kv_width] / statistics.weight
    moments = moments.view(groups, 2, half, groups, 2, half)
    # E[k_g conj(k_h)] of each frequency, from the real moments of (a, b), k = a + i b.
    same = torch.arange(half)
    m = moments[:, :, same, :, :, same]  # [half, G, 2, G, 2]
    covariance = torch.complex(
        m[:, :, 0, :, 0] + m[:, :, 1, :, 1], m[:, :, 1, :, 0] - m[:, :, 0, :, 1]
    )
    energy = torch.diagonal(statistics.queries, dim1=1, dim2=2)  # [H, D]
    energy = energy[:, :half] + energy[:, half:]
    variance = (1 - statistics.rotations.abs().square()).clamp_min(1e-6)
    metric = (energy * variance).view(groups, -1, half).sum(1).T.clamp_min(1e-30)  # [half, G]
    root = metric.sqrt().to(covariance.dtype)
    values, vectors = torch.linalg.eigh(root[:, :, None] * covariance * root[:, None, :])  # ascending
    order = values.flatten().argsort(descending=True)[:pairs].sort().values  # by frequency
    frequency, component = order // groups, order % groups
    keep = torch.zeros(pairs, groups, half, dtype=covariance.dtype)
    rebuild = torch.zeros(groups, half, pairs, dtype=covariance.dtype)
    index = torch.arange(pairs)
    u = vectors[frequency, :, component]  # [pairs, G]
    keep[index, :, frequency] = u.conj() * root[frequency]
    rebuild[:, frequency, index] = (u / root[frequency]).T
    return RotaryChoice(keep, rebuild, frequencies[frequency])


def pairwise(keep, groups, half):
    """[d_R, G·D] real, of keys in rotate-half order per head, of keep [d_R/2, G, D/2]."""
    real = complex_matrix(keep.flatten(1))  # columns: all heads' first halves, then all second halves
    return real.view(-1, 2, groups, half).transpose(1, 2).flatten(1)


def mean_rotation(model, statistics):
    """[H, D, D] float64: score ≈ (turn q)ᵀ k for keys that stand still. YaRN's factor is on both sides of a rotation."""
    return complex_matrix(torch.diag_embed(statistics.rotations.conj())) * model.rope_scale**2


def real_rebuild(rebuild):
    """[G·D, d_R] real of `rebuild` [G, D/2, d_R/2] complex, rows in rotate-half order per head."""
    groups, half, _ = rebuild.shape
    real = complex_matrix(rebuild.flatten(0, 1))  # rows: all first halves, then all second halves
    return real.view(2, groups, half, -1).transpose(0, 1).reshape(2 * groups * half, -1)


def vector_maps(model, layer, turn, up, rebuild, value_mean):
    """VectorMaps of a layer whose (k, v) ≈ up · latent, with k + rebuild · rotary and v + value_mean.

    turn: mean_rotation. up [E, R]. rebuild [G, D/2, d_R/2] complex. value_mean [G·D]. All float64.
    """
    c, width = model.config, model.config.kv_width
    group_of = torch.arange(c.heads) // (c.heads // c.kv_heads)
    key_up = up[:width].view(c.kv_heads, c.head_dim, -1)[group_of]  # [H, D, R]
    # Re(conj(q) rebuild kept) = Re(conj(conj(rebuild) q) kept)
    rotary_query = complex_matrix(rebuild.conj()[group_of].permute(0, 2, 1))
    w_o = model.layer(layer, "attn_output.weight").double()
    return VectorMaps(
        query=torch.cat([key_up.mT @ turn, rotary_query], dim=1).float(),
        value_up=up[width:].view(c.kv_heads, c.head_dim, -1).float(),
        value_bias=(w_o @ value_mean.view(c.kv_heads, c.head_dim)[group_of].flatten()).float(),
    )


def convert_layer(model, layer, statistics, rotary, attention_weighted=True):
    """The Conversion of one layer with d_R = `rotary` (even, at most n_kv·D).

    attention_weighted=False: every error counts alike (the statistics should then be unweighted too).
    """
    c = model.config
    groups, half, width = c.kv_heads, c.head_dim // 2, c.kv_width
    if rotary % 2 or not 0 <= rotary <= width:
        raise ValueError(f"d_R must be even and from 0 to {width}, not {rotary}")
    choice = choose_rotary(c, model.frequencies, statistics, rotary // 2)
    keep = pairwise(choice.keep, groups, half)  # [d_R, G·D]
    rebuild = real_rebuild(choice.rebuild)
    rest = torch.eye(2 * width, dtype=torch.float64)
    rest[:width, :width] -= rebuild @ keep

    turn = mean_rotation(model, statistics)
    turned = (turn @ statistics.queries @ turn.mT).view(groups, -1, c.head_dim, c.head_dim).sum(1)
    metric = torch.eye(2 * width, dtype=torch.float64)
    if attention_weighted:
        metric[:width, :width] = torch.block_diag(*turned)
        metric[width:, width:] = statistics.values
    root, inverse = symmetric_root(metric)

    mean = statistics.moments[:-1, -1] / statistics.weight
    covariance = statistics.moments[:-1, :-1] / statistics.weight - mean[:, None] * mean[None, :]
    covariance = rest @ covariance @ rest.mT
    importance, axes = torch.linalg.eigh(root @ covariance @ root)
    rank = 2 * width - rotary
    importance, axes = importance.flip(0)[:rank], axes.flip(1)[:, :rank]
    # Channels of unit variance: halves hold them whatever the metric's size.
    spread = importance.clamp_min(1e-6 * importance[0]).sqrt()
    latent_down = (axes / spread).mT @ root @ rest  # [R, E]
    up = inverse @ (axes * spread)  # [E, R]
    down = torch.cat([latent_down, torch.cat([keep, torch.zeros(rotary, width)], 1)])
    bias = torch.cat([-latent_down @ mean, torch.zeros(rotary, dtype=torch.float64)])

    maps = vector_maps(model, layer, turn, up, choice.rebuild, mean[width:])
    return Conversion(
        **vars(maps),
        down=down.float(),
        down_bias=bias.float(),
        frequencies=choice.frequencies,
        importance=importance.float(),
    )


def convert(model, statistics, rotary, attention_weighted=True):
    """A Conversion per layer, from training.convert.statistics.collect."""
    return [convert_layer(model, layer, s, rotary, attention_weighted) for layer, s in enumerate(statistics)]
