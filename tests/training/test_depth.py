"""Linear maps between layers: exact where a layer is a linear image of its anchor, else better than none."""

import pytest
import torch

from random_models import contexts, model
from training import quality
from training.cache import Inherit, Plain
from training.convert.latent import complex_matrix
from training.depth.maps import collect


def copy_attention(m, layer, source, key_map, value_map):
    """Makes `layer` project the same input as `source`, through maps of its keys and values."""
    g, d = m.config.kv_heads, m.config.head_dim
    prefix, other = f"blk.{layer}.", f"blk.{source}."
    m.weights[prefix + "attn_norm.weight"] = m.weights[other + "attn_norm.weight"]
    m.weights[prefix + "attn_k.weight"] = key_map @ m.weights[other + "attn_k.weight"]
    values = m.weights[other + "attn_v.weight"].view(g, d, -1)
    m.weights[prefix + "attn_v.weight"] = (value_map @ values).flatten(0, 1)
    for name in ("attn_output.weight", "ffn_down.weight"):
        m.weights[other + name] = m.weights[other + name] * 0  # the stream does not change between the two


def linear_pair():
    m = model("llama")
    g, d = m.config.kv_heads, m.config.head_dim
    generator = torch.Generator().manual_seed(1)
    mix = torch.randn(d // 2, g, g, dtype=torch.complex64, generator=generator)
    key_map = torch.zeros(g, d, g, d)
    for i in range(d // 2):
        real = complex_matrix(mix[i])  # [2g, 2g]
        for a in range(2):
            for b in range(2):
                key_map[:, i + a * d // 2, :, i + b * d // 2] = real[a * g : (a + 1) * g, b * g : (b + 1) * g]
    value_map = torch.randn(g, d, d, generator=generator)
    copy_attention(m, 1, 0, key_map.view(g * d, g * d), value_map)
    return m, mix, value_map


@pytest.mark.parametrize("form", ["absorbed", "full"])
def test_a_linear_image_is_found(form):
    m, mix, value_map = linear_pair()
    tokens = contexts(2, 96)
    linear = getattr(collect(m, tokens, [(0, 1)])[0, 1], form)(ridge=1e-7)
    if form == "absorbed":
        assert torch.allclose(linear.keys, mix, atol=1e-2)
        assert torch.allclose(linear.values, value_map, atol=1e-2)
    exact = quality.exact_log_p(m, tokens, 0)

    def kl(inherit):
        return quality.score(m, tokens, exact, [Plain(), inherit, Plain()], 0).kl

    assert kl(Inherit(linear)) < 1e-4
    assert kl(Inherit()) > 100 * kl(Inherit(linear))


def test_a_layer_that_is_nearly_a_linear_image_gains_from_maps():
    """On contexts that calibration did not see; the full map may use what the absorbed one may not."""
    m, _, _ = linear_pair()
    generator = torch.Generator().manual_seed(4)
    for name in ("attn_k.weight", "attn_v.weight"):
        weight = m.weights["blk.1." + name]
        weight += 0.1 * weight.std() * torch.randn(weight.shape, generator=generator)
    pair = collect(m, contexts(8, 96), [(0, 1)])[0, 1]
    tokens = contexts(2, 96, seed=5)
    exact = quality.exact_log_p(m, tokens, 0)
    raw, absorbed, full = (
        quality.score(m, tokens, exact, [Plain(), Inherit(maps), Plain()], 0).kl
        for maps in (None, pair.absorbed(), pair.full())
    )
    assert full < absorbed < raw / 10


def test_maps_read_the_anchors_sealed_pages():
    """With 8-bit pages the answer moves a little, with 2-bit pages a lot."""
    m = model("llama")
    pair = collect(m, contexts(4, 96), [(0, 1)])[0, 1]
    tokens = contexts(1, 256, seed=5)
    for maps in (pair.full(), pair.absorbed()):
        exact = m.logits(tokens, [Plain(), Inherit(maps), Plain()])
        eight, two = (
            (m.logits(tokens, [Plain(b, b), Inherit(maps), Plain()]) - exact).abs().mean() for b in (8, 2)
        )
        assert 0 < eight < two / 10
