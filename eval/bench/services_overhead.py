"""What the services cost: the engine called in-process beside the same engine behind HTTP, in alternating runs on one machine.

Usage: services_overhead.py MODEL [--rounds N] [--tokens N] [--json FILE]
Prints a Markdown table of medians and ratios: tokens per second while all streams generate, and the client's own CPU share
(the client shares the cores with what it measures).
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/integration"))
from stack import BIN, Stack  # noqa: E402  the tests' own start and stop of the three processes

PROMPT, WIDTH = 32, "int4"


def run_json(*command: str) -> dict:
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def in_process(model: str, streams: int, tokens: int) -> dict:
    return run_json(str(ROOT / "bazel-bin/worker/engine_bench"), "--model", model, "--decode", f"{streams}x{PROMPT}x{WIDTH}",
                    "--steps", str(tokens), "--prefill", "16")["decode"][0]


def through_http(port: int, streams: int, tokens: int, seed: int) -> dict:
    return run_json(str(BIN / "scheduler/bench_client"), "--port", str(port), "--streams", str(streams), "--prompt-tokens", str(PROMPT),
                    "--max-tokens", str(tokens), "--kv", WIDTH, "--seed", str(seed))


def measure(stack: Stack, args: argparse.Namespace, streams: int) -> dict:
    """Engine and HTTP in turns, so that a slow minute of the machine meets both. The idle stack sleeps meanwhile."""
    through_http(stack.api_port, streams, 64, 1000)  # warm
    engine, http, cost, cpu, canary = [], [], [], [], []
    for seed in range(args.rounds):
        direct = in_process(args.model, streams, args.tokens)
        served = through_http(stack.api_port, streams, args.tokens, seed)
        engine.append(direct["tokens_per_second"])
        http.append(served["events_per_second"])
        cost.append(1 - http[-1] / engine[-1])
        cpu.append(served["client_cpu_share"])
        canary.append(direct["canary_overhead"])
    median = statistics.median
    print(f"| {streams} | {median(engine):.0f} | {median(http):.0f} | {1 - median(http) / median(engine):.1%}, {median(cost):.1%} "
          f"({min(cost):.1%} to {max(cost):.1%}) | {median(cpu):.1%} of one core | {median(canary):.3%} |", flush=True)
    return {"engine": engine, "http": http, "cost": cost, "client_cpu_share": cpu, "canary_overhead": canary}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--tokens", type=int, default=384)
    parser.add_argument("--json")
    args = parser.parse_args()
    results = {}
    print("| streams | engine, tokens/s | HTTP, tokens/s | services cost (of medians, median of pairs, range) | client CPU | canary at 1/64 |")
    print("|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        stack = Stack(pathlib.Path(folder)).start_all()
        try:
            for streams in args.streams:
                results[streams] = measure(stack, args, streams)
        finally:
            stack.stop()
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
