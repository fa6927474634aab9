"""Small random models in the shape of each family, and contexts for them."""

import torch

from training.model import Config, Model


def model(arch, seed=3, layers=3):
    return Model.random(
        Config(arch, layers, hidden=96, heads=4, kv_heads=2, head_dim=16, ffn=128, vocab=300, rope_base=1e4), seed
    )


def contexts(count, length, vocab=300, seed=11):
    return torch.randint(vocab, (count, length), generator=torch.Generator().manual_seed(seed))
