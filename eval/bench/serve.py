"""A server's day in small, `./stria bench serve`: Stria through HTTP beside llama.cpp's server with the same file, threads and bytes for
the cache, one after the other at each load.

Goodput: requests per second that met the latency bound, under Poisson arrivals of mixed lengths, at the load where it is highest.
Contexts: prompts of 2,048 tokens held at once. Interference: what running streams feel of a long prompt, and a short prompt behind it.
"""
import argparse
import asyncio
import datetime
import json
import pathlib
import urllib.request

import machine
from install_peers import ROOT, install_llama_cpp, say
from load import Bound, held_at_once, long_prompt_beside, play, poisson, summary
from servers import LLAMA_BITS, LlamaServer, Stria

SLOTS = 16
CONTEXT_BYTES = 96 << 20  # small, so that filling it with prompts takes a minute and not ten
CONTEXT = 2048
LONG_PROMPT = 7000
STOP_BELOW = 0.5  # share of requests within the bound: a higher load would only show more of the same


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./stria bench serve", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", type=lambda text: [float(r) for r in text.split(",")], default=[0.25, 0.5, 1.0, 2.0],
                        help="requests per second, rising (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=60, help="of arrivals at each rate (default %(default)s)")
    parser.add_argument("--cache-mib", type=int, default=256, help="for the load (default %(default)s)")
    parser.add_argument("--only", default="goodput,contexts,interference", help="some of these (default: all)")
    parser.add_argument("--ours", default="int4", help="kv modes (default %(default)s)")
    parser.add_argument("--theirs", default=",".join(LLAMA_BITS), help="cache types of llama.cpp (default %(default)s; '' for none)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--model", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--llama-version", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--state", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    args = parser.parse_args()
    for flag, known in (("only", ("goodput", "contexts", "interference")), ("ours", ("auto", "fp16", "int8", "int4", "int2")), ("theirs", LLAMA_BITS)):
        names = [name for name in getattr(args, flag).split(",") if name]
        if unknown := [name for name in names if name not in known]:
            parser.error(f"--{flag} does not know {', '.join(unknown)}; it knows {', '.join(known)}")
        setattr(args, flag, names)
    return args


def fp16_token_bytes(server: Stria) -> float:
    """From a request's own account: its context at FP16 over its tokens."""
    body = json.dumps({"prompt": list(range(1000, 1128)), "max_tokens": 1, **server.extra}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}/v1/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        usage = json.load(reply)["usage"]
    return usage["kv_ratio"] * usage["kv_bytes"] / usage["kv_tokens"]


class Field:
    """The contestants; each is started for one measurement and stopped after it, so that none takes cores from another."""

    def __init__(self, args: argparse.Namespace, llama_bin: pathlib.Path | None):
        self.args, self.llama_bin, self.threads = args, llama_bin, machine.threads()
        probe = Stria("fp16", 256 << 20, self.threads, SLOTS)
        self.token_bytes = fp16_token_bytes(probe)
        probe.stop()

    def each(self, cache_bytes: int, slots: int = SLOTS):
        for setting in self.args.ours:
            yield f"Stria {setting}", lambda setting=setting: Stria(setting, cache_bytes, self.threads, slots)
        for setting in self.args.theirs:
            yield f"llama.cpp {setting}", lambda setting=setting: LlamaServer(self.llama_bin, self.args.model, setting, cache_bytes,
                                                                              self.token_bytes, self.threads, slots)


def on(start, measure):
    server = start()
    try:
        return asyncio.run(measure(server))
    finally:
        server.stop()


def goodput(field: Field, args: argparse.Namespace, bound: Bound) -> dict[str, list[dict]]:
    out: dict[str, list[dict]] = {}
    for rate in args.rates:
        load = poisson(rate, args.seconds, args.seed)
        for name, start in field.each(args.cache_mib << 20):
            rows = out.setdefault(name, [])
            if rows and rows[-1]["attained"] is not None and rows[-1]["attained"] < STOP_BELOW:
                continue
            say(f"{rate:g} requests/s, {len(load)} in {args.seconds:g} s: {name}")
            answers = on(start, lambda server: play(server.port, load, server.extra, patience=30))
            rows.append({"rate": rate, **summary(answers, args.seconds, bound)})
    return out


def contexts(field: Field) -> dict[str, int]:
    """Slots for more than any could hold."""
    out = {}
    for name, start in field.each(CONTEXT_BYTES, slots=64):
        say(f"contexts of {CONTEXT} in {CONTEXT_BYTES >> 20} MiB: {name}")
        offered = int(CONTEXT_BYTES / (field.token_bytes / 4 * CONTEXT)) + 2
        out[name] = on(start, lambda server: held_at_once(server.port, offered, CONTEXT, server.extra, calm=25))
    return out


def interference(field: Field) -> dict[str, dict]:
    out = {}
    for name, start in field.each(1 << 30):
        say(f"a prompt of {LONG_PROMPT} beside running streams: {name}")
        out[name] = on(start, lambda server: long_prompt_beside(server.port, 4, LONG_PROMPT, server.extra))
    return out


def best(rows: list[dict]) -> float:
    return max(row["goodput"] for row in rows)


def ratio_to_peers(ours: dict[str, float], label: str) -> float | None:
    theirs = [value for name, value in ours.items() if not name.startswith("Stria")]
    return ours[label] / max(theirs) if theirs and max(theirs) > 0 else None


def markdown(result: dict) -> str:
    lines = [f"{result['machine']['cpu']}, {result['machine']['cores']} cores, {result['machine']['date']}"]
    number = lambda value, form: "–" if value is None else format(value, form)
    if "goodput" in result:
        bound = result["bound"]
        lines += ["", f"Within the bound: first token in {bound['first']:g} s, mean gap {bound['gap'] * 1e3:g} ms; {result['cache_mib']} MiB of cache.", "",
                  "| server | requests/s offered | good/s | within the bound | first token p50 | p99 |", "|---|---|---|---|---|---|"]
        for name, rows in result["goodput"].items():
            lines += [f"| {name} | {r['rate']:g} | {r['goodput']:.3f} | {number(r['attained'], '.0%')} | {number(r['ttft_p50'], '.2f')} s | {number(r['ttft_p99'], '.2f')} s |"
                      for r in rows]
    if "contexts" in result:
        lines += ["", f"| server | contexts of {CONTEXT} held in {CONTEXT_BYTES >> 20} MiB |", "|---|---|"]
        lines += [f"| {name} | {count} |" for name, count in result["contexts"].items()]
    if "interference" in result:
        lines += ["", f"| server | median step | longest gap beside a {LONG_PROMPT}-token prompt, steps | 30-token prompt behind it starts, steps |", "|---|---|---|---|"]
        lines += [f"| {name} | {r['step_ms']:.1f} ms | {number(r['gap'], '.1f')} | {number(r['start'], '.1f')} |" for name, r in result["interference"].items()]
    if result["ratios"]:
        lines += ["", "Ratios to the best peer: " + ", ".join(f"{k} {v:.2f}" for k, v in result["ratios"].items() if v is not None)]
    return "\n".join(lines) + "\n"


def main() -> None:
    args = parse_args()
    args.state.mkdir(parents=True, exist_ok=True)
    field = Field(args, install_llama_cpp(args.state, args.llama_version) if args.theirs else None)
    bound = Bound()
    result = {"machine": machine.describe(), "at": datetime.datetime.now().isoformat(timespec="seconds"), "seed": args.seed,
              "cache_mib": args.cache_mib, "bound": {"first": bound.first, "gap": bound.gap}, "ratios": {}}
    subject = f"Stria {args.ours[0]}"
    if "contexts" in args.only:
        result["contexts"] = contexts(field)
        result["ratios"]["contexts"] = ratio_to_peers(result["contexts"], subject)
    if "interference" in args.only:
        result["interference"] = interference(field)
    if "goodput" in args.only:
        result["goodput"] = goodput(field, args, bound)
        result["ratios"]["goodput"] = ratio_to_peers({name: best(rows) for name, rows in result["goodput"].items()}, subject)
    print(markdown(result))
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
