"""Packs come back as they were written, and are refused where they do not fit."""

import json

import pytest
import torch

from random_models import contexts, model
from training import measure, pack
from training.convert.latent import convert
from training.convert.statistics import collect
from training.depth import maps


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    m = model("qwen2")
    m.fingerprint = "a" * 64
    folder = tmp_path_factory.mktemp("pack")
    tokens = contexts(4, 96)
    conversions = [c.cut(32) for c in convert(m, collect(m, tokens), 16)]
    pairs = {p: s.absorbed() for p, s in maps.collect(m, tokens, [(0, 1), (0, 2), (1, 2)]).items()}
    description = pack.write(folder, m, {"seed": 1}, conversions, pairs, sizes=[8, 32])
    return m, folder, description, conversions, pairs


def test_round_trip(made):
    m, folder, description, conversions, pairs = made
    assert description["latent"] == {
        "rank": 32, "rotary": 16, "scales": "channel", "sink_bits": 16, "sizes": [8, 32], "bits": [2, 4, 8, 16],
    }
    assert description["inherit"] == {"maps": "absorbed", "pairs": [[0, 1], [0, 2], [1, 2]]}
    loaded, tokens = pack.read(folder, m), contexts(1, 96, seed=8)
    plan = measure.parse_plan("latent:32:8,2=fp16", 3, loaded)
    mine = [pack.Latent(conversions[0], 32, 8), pack.Latent(conversions[1], 32, 8), plan[2]]
    assert torch.allclose(m.logits(tokens, plan), m.logits(tokens, mine), atol=0.05)
    plan = measure.parse_plan("fp16,1-2=inherit", 3, loaded)
    mine = [plan[0], pack.Inherit(pairs[0, 1]), pack.Inherit(pairs[0, 2])]
    assert torch.allclose(m.logits(tokens, plan), m.logits(tokens, mine), atol=0.05)


def test_refusals(made, tmp_path):
    m, folder, description, *_ = made
    other = model("qwen2")
    other.fingerprint = "b" * 64
    with pytest.raises(ValueError, match="fingerprint a"):
        pack.read(folder, other)
    data = (folder / "pack.safetensors").read_bytes()
    (tmp_path / "pack.safetensors").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    (tmp_path / "pack.json").write_text(json.dumps(description))
    with pytest.raises(ValueError, match="checksum"):
        pack.read(tmp_path, m)
    (tmp_path / "pack.json").write_text(json.dumps(description | {"version": 2}))
    with pytest.raises(ValueError, match="version 2"):
        pack.read(tmp_path, m)
    loaded = pack.read(folder, m)
    with pytest.raises(ValueError, match="33 channels"):
        loaded.latent(0, 33, 4)
    with pytest.raises(ValueError, match="from layer 0 to layer 3"):
        loaded.inherit(0, 3)


REFUSED = [("int3", "no action"), ("int4,7=int8", "layer 7"), ("latent:8:4", "without a pack")]


@pytest.mark.parametrize("plan, message", REFUSED)
def test_plans_that_are_refused(plan, message):
    with pytest.raises(ValueError, match=message):
        measure.parse_plan(plan, 3)
