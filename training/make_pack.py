"""Makes an unhealed pack of a model: conversion to latent attention and linear maps for inheritance.

  python -m training.make_pack --model M.gguf --calibration gsm8k_train.jsonl --out DIR
"""

import argparse
import resource
import time

import torch

from training import pack, texts
from training.convert import latent, statistics
from training.depth import maps
from training.model import Model


def pairs_within(layers, reach):
    """All (anchor, layer) up to `reach` layers apart: what plans may need where up to `reach` neighbours inherit."""
    return [(layer - n, layer) for layer in range(layers) for n in range(1, reach + 1) if layer >= n]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--calibration", required=True)
    parser.add_argument("--contexts", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--rotary", type=int, default=64, help="d_R; 0: no latents")
    parser.add_argument("--rank", type=int, help="latent channels kept (default: all)")
    parser.add_argument("--weighting", choices=("attention", "activation"), default="attention")
    parser.add_argument("--reach", type=int, default=3, help="maps to layers so far from their anchor; 0: none")
    parser.add_argument("--maps", choices=tuple(pack.MAP_FORMS), default="absorbed")
    parser.add_argument("--out", required=True)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    start = time.monotonic()

    def say(text):
        print(f"{time.monotonic() - start:5.0f} s  {text}", flush=True)

    model = Model.from_gguf(args.model)
    tokens = texts.contexts(args.model, args.calibration, args.contexts, args.tokens)
    say(f"{model.config.arch}, {model.config.layers} layers; {tokens.numel()} tokens to calibrate on")
    conversions = sizes = linear = None
    if args.rotary:
        weighted = args.weighting == "attention"
        conversions = latent.convert(model, statistics.collect(model, tokens, weighted), args.rotary, weighted)
        rank = args.rank or conversions[0].rank
        conversions = [c.cut(rank) for c in conversions]
        sizes = [rank // 8, rank // 4, rank // 2, rank]
        say(f"latents of {rank} + {args.rotary} channels")
    if args.reach:
        pairs = maps.collect(model, tokens, pairs_within(model.config.layers, args.reach))
        linear = {pair: getattr(s, args.maps)() for pair, s in pairs.items()}
        say(f"{len(linear)} {args.maps} maps")
    record = {
        "calibration": {"contexts": args.contexts, "tokens": args.tokens, "weighting": args.weighting},
        "healed_tokens": 0,
        "seconds": round(time.monotonic() - start),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
    }
    description = pack.write(args.out, model, record, conversions, linear, sizes or ())
    say(f"{args.out}: {description['tensors']['bytes'] / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
