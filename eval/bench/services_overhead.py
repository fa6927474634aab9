"""What the services cost: the engine called in-process beside the same engine behind HTTP, in turns over one stack, so that a slow
minute of the machine meets both. The idle stack sleeps meanwhile."""
import json
import pathlib
import sys
import tempfile

from contestants import ENGINE_BENCH, OUR_ENVIRONMENT, run
from install_peers import ROOT

sys.path.insert(0, str(ROOT / "tests"))
from stack import BIN, Stack  # noqa: E402  the tests' own start and stop of the three processes

PROMPT, WIDTH, TOKENS = 32, "int4", 384


def in_process(model: pathlib.Path, streams: int) -> dict:
    return json.loads(run([ENGINE_BENCH, "--model", model, "--decode", f"{streams}x{PROMPT}x{WIDTH}", "--steps", TOKENS],
                          OUR_ENVIRONMENT))["decode"][0]


def through_http(port: int, streams: int, tokens: int, seed: int) -> dict:
    return json.loads(run([BIN / "scheduler/bench_client", "--port", port, "--streams", streams, "--prompt-tokens", PROMPT,
                           "--max-tokens", tokens, "--kv", WIDTH, "--seed", seed]))


def measure(model: pathlib.Path, streams: int, turns: int) -> dict:
    """`cost`: the share of the engine's tokens per second that clients do not get, while all streams generate;
    `client_cpu_share`: of one core, which the client takes from what it measures."""
    out = []
    with tempfile.TemporaryDirectory() as folder:
        stack = Stack(pathlib.Path(folder)).start_all()
        try:
            through_http(stack.api_port, streams, 64, 1000)  # warm
            for seed in range(turns):
                engine = in_process(model, streams)["tokens_per_second"]
                served = through_http(stack.api_port, streams, TOKENS, seed)
                http = served["events_per_second"]
                out.append({"engine": engine, "http": http, "cost": 1 - http / engine, "client_cpu_share": served["client_cpu_share"]})
        finally:
            stack.stop()
    return {"turns": out}
