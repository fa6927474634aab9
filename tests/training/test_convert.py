"""The conversion to latent attention: exact where it must be, and what it loses on random models of each shape."""

import dataclasses

import pytest
import torch

from random_models import contexts, model
from training import quality
from training.cache import Latent, Plain, seal
from training.convert.latent import convert
from training.convert.statistics import collect

FAMILIES = ("llama", "qwen2", "qwen3")


def score(m, conversions, rank, bits=16, tokens=None):
    tokens = contexts(2, 96, seed=5) if tokens is None else tokens
    exact = quality.exact_log_p(m, tokens, 0)
    return quality.score(m, tokens, exact, [Latent(c, rank, bits) for c in conversions], 0).kl


@pytest.mark.parametrize("arch", FAMILIES)
def test_with_all_rotary_pairs_and_all_channels_nothing_is_lost(arch):
    """d_R = n_kv·D leaves every rotation as it is; biases and norms included."""
    m = model(arch)
    conversions = convert(m, collect(m, contexts(2, 96)), m.config.kv_width)
    assert conversions[0].rank == m.config.kv_width  # the values
    assert score(m, conversions, conversions[0].rank) < 1e-6


@pytest.mark.parametrize("arch", FAMILIES)
def test_channels_are_nested_and_ordered(arch):
    m = model(arch)
    conversions = convert(m, collect(m, contexts(4, 96)), 16)
    losses = [score(m, conversions, rank) for rank in (48, 24, 12, 4)]
    assert losses == sorted(losses)
    importance = conversions[1].importance
    assert (importance[:-1] >= importance[1:] - 1e-6 * importance[0]).all()
    cut = [c.cut(24) for c in conversions]
    assert score(m, cut, 24) == pytest.approx(losses[1], rel=1e-3)


# What freezing half of the rotary pairs and an eighth of them may cost, all latent channels kept. (Measured: .27, .11,
# .13; .0004, .0001, .0002.)
FROZEN = {"llama": (0.4, 6e-4), "qwen2": (0.2, 3e-4), "qwen3": (0.2, 4e-4)}


@pytest.mark.parametrize("arch", FAMILIES)
def test_more_rotary_pairs_lose_less(arch):
    m = model(arch)
    statistics = collect(m, contexts(4, 96))
    losses = []
    for rotary in (4, 16, 28):
        conversions = convert(m, statistics, rotary)
        losses.append(score(m, conversions, conversions[0].rank))
    assert losses == sorted(losses, reverse=True)
    assert losses[1] < FROZEN[arch][0] and losses[2] < FROZEN[arch][1]


def test_attention_weighting_beats_activations_alone():
    """One layer at three quarters of its channels, on contexts that calibration did not see."""
    m, calibration, tokens = model("llama"), contexts(8, 96), contexts(4, 96, seed=5)
    exact = quality.exact_log_p(m, tokens, 0)

    def loss(weighted):
        statistics = collect(m, calibration, attention_weighted=weighted)
        layer = Latent(convert(m, statistics, 32, attention_weighted=weighted)[2], 24)
        return quality.score(m, tokens, exact, [Plain(), Plain(), layer], 0).kl

    assert loss(True) < loss(False)


def test_a_layer_is_what_its_definition_says():
    """One query's output from the stored vectors by hand, in double: rotation, softmax over q·c, average, up."""
    m, tokens = model("qwen2"), contexts(1, 20)
    conversions = convert(m, collect(m, contexts(2, 96)), 8)
    rank, seen = 20, {}
    plan = [Latent(c, rank) for c in conversions]
    m.run_layers(m.embed(tokens), plan, observe=lambda layer, *rest: seen.update({layer: rest}))
    _, q, k, v, _, out = seen[1]
    c = conversions[1]
    t, pairs = 19, len(c.frequencies)
    y = torch.cat([k[0].transpose(0, 1).flatten(1), v[0].transpose(0, 1).flatten(1)], 1).double()
    vectors = y @ c.down.double().T + c.down_bias.double()

    def turned(x, position):
        z = torch.complex(x[..., :pairs], x[..., pairs:]) * torch.exp(1j * position * c.frequencies)
        return torch.cat([z.real, z.imag], -1)

    for head in range(m.config.heads):
        query = c.query[head].double() @ q[0, head, t].double()
        scores = []
        for s in range(t + 1):
            latent = query[:rank] @ vectors[s, :rank]
            rotary = turned(query[c.rank :], t) @ turned(vectors[s, c.rank :], s)
            scores.append((latent + rotary) / m.config.head_dim**0.5)
        p = torch.stack(scores).softmax(0)
        up = c.value_up[head // 2].double()[:, :rank]
        assert torch.allclose(up @ (p @ vectors[:, :rank]), out[0, head, t].double(), atol=1e-4)


def test_latent_pages_have_a_scale_per_channel():
    """A channel fifty times as large as the others costs them nothing."""
    x = torch.randn(1, 1, 64, 8, generator=torch.Generator().manual_seed(2))
    large = x.clone()
    large[..., 3] *= 50
    small = [i for i in range(8) if i != 3]
    assert torch.equal(seal(x, 4, -2)[..., small], seal(large, 4, -2)[..., small])


def test_wider_latents_lose_less():
    m = model("llama")
    conversions = convert(m, collect(m, contexts(4, 96)), 32)
    tokens = contexts(1, 256, seed=6)
    losses = [score(m, conversions, 32, bits, tokens) for bits in (16, 8, 4, 2)]
    assert losses == sorted(losses) and losses[1] > losses[0]


def test_refusals():
    m = model("llama")
    statistics = collect(m, contexts(1, 64))
    for rotary in (7, 34, -2):
        with pytest.raises(ValueError, match="d_R must be even"):
            convert(m, statistics, rotary)
    with pytest.raises(ValueError, match="deepseek2"):
        type(m)(dataclasses.replace(m.config, arch="deepseek2"), m.weights)
    assert Plain().output_bias is None
