"""Measures plans on texts: next-token KL to the exact cache, top-1 agreement, ratio.

  python -m training.measure --model M.gguf --text TEXT.jsonl [--pack DIR] PLAN…

A PLAN is one action for all layers, or several with layer ranges, comma-separated:
  int4   plain:8:4   latent:192:4   latent:192:16,0-3=int8   fp16,5=inherit,9=inherit:raw
"""

import argparse
import time

import torch

from training import pack as packs
from training import quality, texts
from training.cache import Inherit, Plain, plan_ratio
from training.model import Model

WIDTHS = {"fp16": 16, "int8": 8, "int4": 4, "int2": 2}


def parse_plan(text, layers, pack=None):
    """The actions of a PLAN. Raises ValueError that names what is wrong."""
    words = [None] * layers
    for part in text.split(","):
        where, _, word = part.rpartition("=")
        first, _, last = (where or f"0-{layers - 1}").partition("-")
        for layer in range(int(first), int(last or first) + 1):
            if layer >= layers:
                raise ValueError(f"'{part}' names layer {layer}, the model has {layers}")
            words[layer] = word
    actions, anchor = [], None
    for layer, word in enumerate(words):
        kind, *numbers = (word or "").split(":")
        if kind in WIDTHS and not numbers:
            actions.append(Plain(WIDTHS[kind], WIDTHS[kind]))
        elif kind == "plain" and len(numbers) == 2:
            actions.append(Plain(*map(int, numbers)))
        elif kind == "latent" and len(numbers) == 2 and pack:
            actions.append(pack.latent(layer, *map(int, numbers)))
        elif kind == "inherit" and (numbers == ["raw"] or pack):
            actions.append(Inherit() if numbers else pack.inherit(anchor, layer))
        else:
            raise ValueError(f"'{word}' is no action" + ("" if pack else " without a pack"))
        if kind != "inherit":
            anchor = layer
    return actions


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--pack")
    parser.add_argument("--text", required=True, action="append")
    parser.add_argument("--texts", type=int, default=4, help="contexts of each text")
    parser.add_argument("--tokens", type=int, default=1024, help="length of a context")
    parser.add_argument("--first", type=int, default=0, help="positions before this are not scored")
    parser.add_argument("--skip", type=int, default=0, help="contexts to leave out first")
    parser.add_argument("--sink-pages", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("plans", nargs="+")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model = Model.from_gguf(args.model)
    pack = packs.read(args.pack, model) if args.pack else None
    plans = {text: parse_plan(text, model.config.layers, pack) for text in args.plans}
    for path in args.text:
        tokens = texts.contexts(args.model, path, args.texts, args.tokens, args.skip)
        exact = torch.cat([quality.exact_log_p(model, context[None], args.first) for context in tokens])
        print(f"{path}: {exact.shape[0] * exact.shape[1]} positions scored")
        for name, plan in plans.items():
            start = time.monotonic()
            score = quality.score(model, tokens, exact, plan, args.first, sink_pages=args.sink_pages)
            ratio = plan_ratio(model.config, plan)
            print(f"  {name:<28} {ratio:5.2f}×  {score}  ({time.monotonic() - start:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
