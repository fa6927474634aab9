"""What calibration contexts tell about each layer's attention, for the conversion to latent attention.

Second-order view of an error δk_s, δv_s in one token's key and value (head h reads KV head g, queries q_t before the
rotary embedding, o_t the head's output, W_h its slice of the output projection):

  change of the layer's output ≈ Σ_h p_hts · [ W_h δv_s + (q_tᵀ R(t - s) δk_s) / √D · W_h (v_s - o_t) ]

so a token weighs as the square of the attention that it receives, values by the projections, keys by the queries'
energy times how far the token's value is from what the head put out.
"""

import dataclasses

import torch


@dataclasses.dataclass
class LayerStatistics:
    """Sums over the calibration contexts, float64. G KV heads, H heads, D channels of a head, E = 2·G·D."""

    moments: torch.Tensor  # [E + 1, E + 1]: Σ_s w_s y yᵀ with y = (keys before rotation, values, 1)
    queries: torch.Tensor  # [H, D, D]: Σ κ q qᵀ
    rotations: torch.Tensor  # [H, D/2] complex: mean of exp(-i θ (t - s)) under κ
    values: torch.Tensor  # [G·D, G·D]: Σ of (Σ_h p_h W_h)ᵀ(Σ_h p_h W_h)
    weight: torch.Tensor  # Σ w


class Collector:
    """Feed `observe` to Model.run_layers over the exact cache, context by context; then read `layers`.

    attention_weighted=False gives every token the same weight and the identity as metric: the activations' covariance
    alone, as CARE has it.
    """

    def __init__(self, model, length, attention_weighted=True):
        c = model.config
        self.model, self.attention_weighted = model, attention_weighted
        self.reader = model.reader(length)
        e, pairs = 2 * c.kv_width + 1, c.head_dim // 2

        def zeros(*shape, dtype=torch.float64):
            return torch.zeros(*shape, dtype=dtype)

        self.layers = [
            LayerStatistics(
                zeros(e, e),
                zeros(c.heads, c.head_dim, c.head_dim),
                zeros(c.heads, pairs, dtype=torch.complex128),
                zeros(c.kv_width, c.kv_width),
                zeros(()),
            )
            for _ in range(c.layers)
        ]
        self._rotation_weight = [zeros(c.heads) for _ in range(c.layers)]
        position = torch.arange(length, dtype=torch.float64)
        self._waves = torch.exp(-1j * position[:, None] * model.frequencies).to(torch.complex64)  # [T, D/2]

    def observe(self, layer, x, q, k, v, stored, out):
        del x
        for batch in range(q.shape[0]):
            one = slice(batch, batch + 1)
            self._add(layer, q[one], k[one], v[one], stored.keys[one], out[one])

    def _add(self, layer, q, k, v, rotated_keys, out):
        c, total = self.model.config, self.layers[layer]
        group = c.heads // c.kv_heads
        p = self.reader.probabilities(self.reader.rotary.rotate(q), rotated_keys)[0].flatten(0, 1)  # [H, T, T]
        w_o = self.model.layer(layer, "attn_output.weight").unflatten(1, (c.heads, c.head_dim)).transpose(0, 1)
        squared = p.square()
        # ‖W_h (v_s - o_t)‖² without forming the differences.
        values = v[0].repeat_interleave(group, 0)  # [H, T, D]
        metric = w_o.mT @ w_o
        projected = values @ metric
        far = (projected * values).sum(-1)[:, None, :] - 2 * out[0] @ projected.mT
        far = far + ((out[0] @ metric) * out[0]).sum(-1)[:, :, None]
        kappa = squared * far.clamp_min(0) / c.head_dim

        weights = squared.sum((0, 1)) if self.attention_weighted else torch.ones(p.shape[-1])
        y = torch.cat([k[0].transpose(0, 1).flatten(1), v[0].transpose(0, 1).flatten(1)], dim=1)
        y = torch.cat([y, torch.ones(len(y), 1)], dim=1)
        total.moments += (y * weights[:, None]).T @ y
        total.weight += weights.sum()
        total.queries += (q[0] * kappa.sum(-1)[..., None]).mT @ q[0]
        # Σ κ exp(-i θ (t - s)), one frequency a column.
        waves = self._waves[: len(y)]
        total.rotations += (waves * (kappa.to(waves.dtype) @ waves.conj())).sum(1)
        self._rotation_weight[layer] += kappa.sum((1, 2))
        overlap = torch.einsum("hts,its->hi", p, p)
        blocks = torch.einsum("hi,hox,ioy->hxiy", overlap, w_o, w_o)
        blocks = blocks.view(c.kv_heads, group, c.head_dim, c.kv_heads, group, c.head_dim).sum((1, 4))
        total.values += blocks.reshape(c.kv_width, c.kv_width)

    def finish(self):
        """The statistics with rotations as means."""
        for total, weight in zip(self.layers, self._rotation_weight):
            total.rotations /= weight[:, None].clamp_min(1e-30)
        return self.layers


@torch.no_grad()
def collect(model, tokens, attention_weighted=True):
    """LayerStatistics of every layer over contexts [B, T]."""
    collector = Collector(model, tokens.shape[1], attention_weighted)
    for context in tokens:
        model.run_layers(model.embed(context[None]), observe=collector.observe)
    return collector.finish()
