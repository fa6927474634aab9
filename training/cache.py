"""What a layer's cache stores and how queries read it: the actions of a plan (docs/formats.md, docs/plans.md).

Shapes: B contexts, H query heads, G KV heads, T tokens, D channels of a head. Every action has
  attend(reader, q, k, v, anchor) -> (out [B, H, T, D], Stored)
with q, k, v before the rotary embedding and anchor what the nearest earlier layer with a cache stored, and
  output_bias: a constant [hidden] that the layer adds to its attention's output, or None.
"""

import dataclasses

import torch

from training.convert.latent import VectorMaps

PAGE = 64


class Rotary:
    """Rotates pairs (channel i, channel i + n) by position · frequency i, for any list of frequencies."""

    def __init__(self, frequencies, scale, length):
        self.frequencies, self.scale = frequencies, scale
        self.positions = torch.arange(length, dtype=torch.float64)

    def table(self, frequencies):
        angles = self.positions[:, None] * frequencies[None, :]
        return (angles.cos() * self.scale).float(), (angles.sin() * self.scale).float()

    def rotate(self, x, frequencies=None, inverse=False):
        """x [..., T, 2n]. The inverse undoes the scale too."""
        cos, sin = self.table(self.frequencies if frequencies is None else frequencies)
        if inverse:
            cos, sin = cos / self.scale**2, -sin / self.scale**2
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


@dataclasses.dataclass
class Stored:
    """Keys [B, G, T, D] (rotated) and values [B, G, T, D'] of one layer: as they came, and as their pages read.

    `sealed` is None where pages are FP16. A latent layer's keys are its vectors with one KV head (latent, then
    rotary part); its values are their first channels.
    """

    keys: torch.Tensor
    values: torch.Tensor
    sealed_keys: torch.Tensor | None = None
    sealed_values: torch.Tensor | None = None
    latent: "Latent | None" = None


class Reader:
    """Which token sees which form of which other token, for one length of context.

    A query sees quantised pages that were sealed before its own page began, except the first `sink_pages`; the
    first `prompt` queries see none (a prompt attends before its pages are sealed).
    """

    def __init__(self, rotary, scale, length, prompt=0, sink_pages=1):
        self.rotary, self.scale = rotary, scale
        token = torch.arange(length)
        query, key = token[:, None], token[None, :]
        self.future = key > query
        page = key // PAGE
        self.sees_sealed = (page < query // PAGE) & (page >= sink_pages) & (query >= prompt)

    def probabilities(self, q, keys, sealed_keys=None):
        """[B, G, H/G, T, T] of q [B, H, T, D], rotated as the keys are."""
        q = q.unflatten(1, (keys.shape[1], -1))
        scores = q @ keys[:, :, None].mT
        if sealed_keys is not None:
            scores = torch.where(self.sees_sealed, q @ sealed_keys[:, :, None].mT, scores)
        return (scores * self.scale).masked_fill(self.future, -torch.inf).softmax(-1)

    def read(self, q, stored):
        """[B, H, T, D'] of q [B, H, T, D]."""
        p = self.probabilities(q, stored.keys, stored.sealed_keys)
        if stored.sealed_values is None:
            out = p @ stored.values[:, :, None]
        else:
            out = (p * ~self.sees_sealed) @ stored.values[:, :, None]
            out = out + (p * self.sees_sealed) @ stored.sealed_values[:, :, None]
        return out.flatten(1, 2)


def quantise(x, bits, dim):
    """x [..., PAGE, D] as its page reads: a scale and a middle over dimension `dim` (-2: a channel's tokens, -1: a
    token's channels), the rule of kernels/format/quantizer.h. The gradient passes straight through."""
    with torch.no_grad():
        half = x.half().float()
        low, high = half.amin(dim, keepdim=True), half.amax(dim, keepdim=True)
        levels = 2**bits - 1
        scale = ((high - low) * torch.tensor(1 / levels, dtype=torch.float32)).half().float()
        middle = ((low + high) * 0.5).half().float()
        inverse = torch.where(scale > 0, 1 / scale, 0.0)
        code = ((half - middle) * inverse + levels / 2).clamp(0, levels).round()
        read = middle + scale * (code - levels / 2)
    return x + (read - x).detach()


def seal(x, bits, dim):
    """Every full page of x [B, G, T, D] quantised; the tail as it is. None for 16 bits."""
    if bits == 16:
        return None
    full = x.shape[-2] // PAGE * PAGE
    pages = quantise(x[..., :full, :].unflatten(-2, (-1, PAGE)), bits, dim).flatten(-3, -2)
    return torch.cat([pages, x[..., full:, :]], dim=-2)


@dataclasses.dataclass(frozen=True)
class Plain:
    """Keys and values at widths of 16, 8, 4 or 2 bits. With 16 nothing is rounded, not even to halves."""

    key_bits: int = 16
    value_bits: int = 16
    output_bias = None

    def attend(self, reader, q, k, v, anchor):
        del anchor
        k = reader.rotary.rotate(k)
        # Where only one side is quantised the other reads as it is.
        stored = Stored(k, v, seal(k, self.key_bits, -2), seal(v, self.value_bits, -1))
        return reader.read(reader.rotary.rotate(q), stored), stored

    def bits_per_token(self, config):
        """Scales, first page and tail left out, as in the papers."""
        return config.kv_width * (self.key_bits + self.value_bits)


@dataclasses.dataclass(frozen=True)
class Latent:
    """One vector of `rank` latent and d_R rotary values a token (training/convert/latent.py makes the conversion)."""

    conversion: object
    rank: int
    bits: int = 16

    @property
    def output_bias(self):
        return self.conversion.output_bias

    def attend(self, reader, q, k, v, anchor):
        del anchor
        c = self.conversion
        latent, rotary = c.project(k, v, self.rank)
        keys = torch.cat([latent, reader.rotary.rotate(rotary, c.frequencies)], dim=-1)[:, None]
        sealed = seal(keys, self.bits, -2)
        values, sealed_values = keys[..., : self.rank], None if sealed is None else sealed[..., : self.rank]
        stored = Stored(keys, values, sealed, sealed_values, latent=self)
        return c.attend(reader, q, stored, self.rank, c.frequencies), stored

    def bits_per_token(self, config):
        del config
        return (self.rank + 2 * len(self.conversion.frequencies)) * self.bits


@dataclasses.dataclass(frozen=True)
class Inherit:
    """Reads the anchor's cache: as it is (the paper's inheritance), or through linear maps (training/depth/)."""

    maps: object = None

    @property
    def output_bias(self):
        return self.maps.output_bias if self.maps else None

    def attend(self, reader, q, k, v, anchor):
        del k, v
        if anchor is None:
            raise ValueError("the first layer cannot inherit: no layer is before it")
        if (anchor.latent is not None) != isinstance(self.maps, VectorMaps):
            raise ValueError("a latent anchor is inherited through maps of its vectors, a plain one is not")
        if anchor.latent is not None:
            frequencies = anchor.latent.conversion.frequencies
            return self.maps.attend(reader, q, anchor, anchor.latent.rank, frequencies), anchor
        read = self.maps.apply(reader.rotary, anchor) if self.maps else anchor
        return reader.read(reader.rotary.rotate(q), read), anchor

    def bits_per_token(self, config):
        del config
        return 0


def plan_ratio(config, plan):
    """How many times smaller than FP16 the plan is, by the papers' count (docs/plans.md)."""
    return config.layers * 2 * config.kv_width * 16 / sum(action.bits_per_token(config) for action in plan)
