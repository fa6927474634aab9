"""Chooses the layers that inherit: which ones cost least alone, then greedily together.

  python -m training.depth.search --model M.gguf --pack DIR --text gsm8k_train.jsonl --skip 16 --layers 8
"""

import argparse

import torch

from training import pack as packs
from training import quality, texts
from training.cache import Inherit, Plain
from training.model import Model


@torch.no_grad()
def single_costs(model, tokens, log_p, maps):
    """{layer: KL where only it inherits, from the layer before}, for the pairs that `maps` has (None: raw, all).

    tokens [1, T]. Layers before the changed one run once.
    """
    streams, stores = [], []
    model.run_layers(
        model.embed(tokens),
        observe=lambda layer, x, q, k, v, stored, out: (streams.append(x), stores.append(stored)),
    )
    costs = {}
    for layer in range(1, model.config.layers):
        if maps is not None and (layer - 1, layer) not in maps:
            continue
        plan = [Plain()] * model.config.layers
        plan[layer] = Inherit(maps[layer - 1, layer] if maps is not None else None)
        x = model.run_layers(streams[layer], plan, first=layer, stored=stores[layer - 1])
        first = tokens.shape[1] - log_p.shape[1]
        costs[layer] = quality.kl(log_p[0], model.head(x[:, first:]).log_softmax(-1)[0]).mean().item()
    return costs


def inherit_plan(layers, followers, maps):
    """The plan whose layers `followers` inherit from their anchors; None where `maps` lacks a pair."""
    plan, anchor = [], None
    for layer in range(layers):
        if layer not in followers:
            anchor = layer
            plan.append(Plain())
        elif maps is None:
            plan.append(Inherit())
        elif (anchor, layer) in maps:
            plan.append(Inherit(maps[anchor, layer]))
        else:
            return None
    return plan


@torch.no_grad()
def greedy(model, tokens, log_p, maps, costs, count, candidates=3):
    """`count` layers: each time the best of the `candidates` that cost least alone, measured in company."""
    chosen, order = [], sorted(costs, key=costs.get)
    first = tokens.shape[1] - log_p.shape[1]
    while len(chosen) < count:
        trials = []
        for layer in order:
            plan = inherit_plan(model.config.layers, {*chosen, layer}, maps) if layer not in chosen else None
            if plan is not None:
                trials.append((quality.score(model, tokens, log_p, plan, first).kl, layer))
            if len(trials) == candidates:
                break
        kl, layer = min(trials)
        chosen.append(layer)
        print(f"  {sorted(chosen)}  KL {kl:.4f}", flush=True)
    return sorted(chosen)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--pack", help="whose maps; without: raw inheritance")
    parser.add_argument("--text", required=True)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--skip", type=int, default=0, help="contexts to leave out first")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--candidates", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model = Model.from_gguf(args.model)
    maps = packs.read(args.pack, model).maps if args.pack else None
    tokens = texts.contexts(args.model, args.text, 1, args.tokens, args.skip)
    log_p = quality.exact_log_p(model, tokens, 0)
    costs = single_costs(model, tokens, log_p, maps)
    print("  alone: " + "  ".join(f"{layer}: {kl:.4f}" for layer, kl in costs.items()), flush=True)
    greedy(model, tokens, log_p, maps, costs, args.layers, args.candidates)


if __name__ == "__main__":
    main()
