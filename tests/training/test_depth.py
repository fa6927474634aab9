"""Linear maps between layers: exact where a layer is a linear image of its anchor, else better than none."""

import pytest
import torch

from random_models import contexts, model
from training import quality
from training.cache import Inherit, Latent, Plain
from training.convert import statistics
from training.convert.latent import complex_matrix, convert
from training.depth import latent_maps
from training.depth.maps import collect


def copy_attention(m, layer, source, key_map, value_map):
    """Makes `layer` project the same input as `source`, through maps of its keys and values."""
    g, d = m.config.kv_heads, m.config.head_dim
    prefix, other = f"blk.{layer}.", f"blk.{source}."
    m.weights[prefix + "attn_norm.weight"] = m.weights[other + "attn_norm.weight"]
    m.weights[prefix + "attn_k.weight"] = key_map @ m.weights[other + "attn_k.weight"]
    values = m.weights[other + "attn_v.weight"].view(g, d, -1)
    m.weights[prefix + "attn_v.weight"] = (value_map @ values).flatten(0, 1)
    # The stream hardly changes between the two.
    m.weights[other + "attn_output.weight"] = m.weights[other + "attn_output.weight"] * 1e-6
    m.weights[other + "ffn_down.weight"] = m.weights[other + "ffn_down.weight"] * 0


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


def latent_followers(m, rotary):
    """A conversion of each layer, and how layer 1 reads layer 0's vectors."""
    tokens = contexts(4, 96)
    of_layers = statistics.collect(m, tokens)
    conversions = convert(m, of_layers, rotary)
    pair = collect(m, tokens, [(0, 1)])[0, 1]
    return conversions, latent_maps.fit(m, 1, pair, conversions[0], of_layers[1], ridge=1e-7)


def test_a_linear_image_is_found_in_the_anchors_vectors():
    """With all rotary pairs nothing is lost. With fewer, the pairs that turn are the anchor's choice, and this layer loses
    2.4 times what it loses with its own."""
    m, _, _ = linear_pair()
    tokens = contexts(2, 96, seed=5)
    exact = quality.exact_log_p(m, tokens, 0)

    def kl(plan):
        return quality.score(m, tokens, exact, plan, 0).kl

    conversions, follower = latent_followers(m, m.config.kv_width)
    anchor = Latent(conversions[0], conversions[0].rank)
    assert kl([anchor, Inherit(follower), Plain()]) < 1e-4
    conversions, follower = latent_followers(m, 24)
    anchor, own = (Latent(c, c.rank) for c in conversions[:2])
    assert kl([anchor, Inherit(follower), Plain()]) < 4 * kl([anchor, own, Plain()])


def test_prefixes_of_a_latent_anchor_serve_its_follower():
    m, _, _ = linear_pair()
    tokens = contexts(2, 96, seed=5)
    exact = quality.exact_log_p(m, tokens, 0)
    conversions, follower = latent_followers(m, m.config.kv_width)
    losses = [
        quality.score(m, tokens, exact, [Latent(conversions[0], rank), Inherit(follower), Plain()], 0).kl
        for rank in (32, 28, 16)
    ]
    assert losses == sorted(losses)


def test_an_anchor_of_the_other_kind_is_refused():
    m, _, _ = linear_pair()
    conversions, follower = latent_followers(m, 16)
    pair = collect(m, contexts(1, 64), [(0, 1)])[0, 1]
    latent = Latent(conversions[0], 8)
    for plan in ([latent, Inherit(pair.full())], [latent, Inherit()], [Plain(), Inherit(follower)]):
        with pytest.raises(ValueError, match="latent anchor"):
            m.logits(contexts(1, 64), [*plan, Plain()])
