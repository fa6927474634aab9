"""The forward against golden logits of the numpy reference (checked against llama.cpp when they were made)."""

import json
import os
import pathlib
import sys

import numpy as np
import pytest
import torch

from random_models import contexts, model
from training import cache
from training.model import Model

TESTDATA = pathlib.Path(__file__).parents[2] / "model" / "testdata"
sys.path.insert(0, str(TESTDATA))
import logits_file  # noqa: E402


@pytest.mark.parametrize("name", ["llama_tied", "llama3", "llama_linear", "qwen2", "qwen2_yarn", "qwen3"])
def test_logits_are_the_golden_ones(name):
    _, golden = logits_file.read(TESTDATA / f"random_{name}.logits.bin")
    model = Model.from_gguf(TESTDATA / f"random_{name}.gguf")
    for tokens, rows in golden:
        logits = model.logits(torch.tensor(np.array(tokens, np.int64))[None])[0].numpy()
        # The file's halves are exact to about 1e-3 of a log-probability.
        assert np.mean([logits_file.kl(row, x) for row, x in zip(rows, logits)]) < 1e-6


def test_codes_follow_the_rule_of_the_formats():
    x = torch.zeros(1, 1, 64, 2)
    x[..., 0] = torch.linspace(-1, 2, 64)
    x[..., 1] = 5  # a channel of one number is exact
    read = cache.seal(x, 2, -2)
    assert set(read[0, 0, :, 0].tolist()) == {-1.0, 0.0, 1.0, 2.0}  # middle .5, scale 1, codes -1.5 to 1.5
    assert (read[..., 1] == 5).all()
    assert (x[..., 0] - read[..., 0]).abs().max() <= 0.5 + 1e-3


def test_the_tail_is_exact_and_only_full_pages_are_sealed():
    x = torch.randn(1, 2, 150, 8, generator=torch.Generator().manual_seed(1))
    read = cache.seal(x, 4, -1)
    assert (read[..., 128:, :] == x[..., 128:, :]).all()
    assert (read[..., :128, :] != x[..., :128, :]).float().mean() > 0.5


def test_a_query_sees_its_own_page_the_first_page_and_the_prompt_exact():
    """Logits may change only where a quantised page is in sight: from the third page on, after the prompt."""
    m, tokens = model("llama"), contexts(1, 200)
    exact = m.logits(tokens)
    plan = [cache.Plain(2, 2)] * m.config.layers

    def changed(**reader):
        return ((m.logits(tokens, plan, **reader) - exact).abs().amax(-1)[0] > 1e-4).nonzero()[:, 0]

    assert changed().min() == 128
    assert changed(sink_pages=0).min() == 64
    assert changed(prompt=150).min() == 150
    assert changed(prompt=200).numel() == 0


def test_the_gradient_passes_through_quantisation():
    x = torch.randn(1, 1, 64, 4, generator=torch.Generator().manual_seed(1), requires_grad=True)
    cache.seal(x, 2, -2).square().sum().backward()
    assert x.grad.abs().min() > 0


def test_inheriting_is_reading_the_anchor():
    m, tokens = model("qwen3"), contexts(1, 70)
    plan = [cache.Plain(), cache.Inherit(), cache.Plain()]
    seen = {}

    def observe(layer, x, q, k, v, stored, out):
        seen[layer] = q, stored, out

    m.run_layers(m.embed(tokens), plan, observe=observe)
    assert seen[1][1] is seen[0][1]
    reader = m.reader(70)
    assert torch.equal(seen[1][2], reader.read(reader.rotary.rotate(seen[1][0]), seen[0][1]))
    with pytest.raises(ValueError, match="first layer"):
        m.logits(tokens, [cache.Inherit(), cache.Plain(), cache.Plain()])


def test_the_ratio_of_a_plan_is_the_papers_count():
    m = model("llama")
    plan = [cache.Plain(4, 2), cache.Inherit(), cache.Plain(8, 8)]
    assert cache.plan_ratio(m.config, plan) == pytest.approx(3 * 2 * 32 * 16 / (32 * 6 + 32 * 16))


@pytest.mark.skipif("STRIA_MODEL" not in os.environ, reason="STRIA_MODEL names no SmolLM2 GGUF")
def test_smollm2_gives_its_golden_logits():
    _, golden = logits_file.read(TESTDATA / "smollm2_logits.bin")
    model = Model.from_gguf(os.environ["STRIA_MODEL"])
    tokens, rows = golden[0]
    with torch.no_grad():
        logits = model.logits(torch.tensor(np.array(tokens[:256], np.int64))[None])[0].numpy()
    assert np.mean([logits_file.kl(row, x) for row, x in zip(rows, logits)]) < 1e-5
    # The worker wrote its own fingerprint of the file into the calibration.
    calibration = json.loads((TESTDATA.parents[1] / "eval" / "data" / "smollm2_calibration.json").read_text())
    assert model.fingerprint == calibration["fingerprint"]
