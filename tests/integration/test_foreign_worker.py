"""docs/protocol.md suffices: a worker written from it in Python serves behind the real scheduler and under the real controller, with CURVE."""
import json
import pathlib
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import pytest
from stack import BIN, ROOT, Stack, get_json, get_text, metric, wait_for

PROMPT = [1000, 2000, 3000, 4000, 5000]


def post(url: str, body: dict, timeout: float = 60) -> dict:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=timeout) as reply:
        return json.load(reply)


class ForeignStack(Stack):
    """Scheduler and controller with CURVE, and the worker of another make."""

    def __init__(self, folder: pathlib.Path):
        keys = folder / "keys"
        subprocess.run([str(BIN / "ctl/striactl"), "keys", str(keys)], check=True, capture_output=True)
        subprocess.run(["flatc", "--python", "--gen-object-api", "-o", str(folder), *map(str, (ROOT / "proto").glob("*.fbs"))], check=True)
        flags = {name: ("--curve-key-file", str(keys / f"{name}.key"), "--curve-workers-file", str(keys / "workers.pub")) for name in ("scheduler", "controller")}
        super().__init__(folder, scheduler_flags=flags["scheduler"], controller_flags=flags["controller"])
        servers = dict(line.split() for line in (keys / "servers.pub").read_text().splitlines())
        self.secrets = [(keys / "worker.key").read_text().strip(), servers["scheduler"], servers["controller"]]

    def command(self, name: str) -> list[str]:
        if name != "worker":
            return super().command(name)
        addresses = [f"tcp://127.0.0.1:{port}" for port in (self.sequences_port, self.telemetry_port, self.tiers_port)]
        return [sys.executable, str(ROOT / "tests/integration/foreign_worker.py"), str(self.folder), *addresses, "parrot", *self.secrets]


@pytest.fixture
def stack(tmp_path):
    result = ForeignStack(tmp_path).start_all()
    yield result
    result.stop()


def answer_of(tokens: int) -> list[int]:
    return [PROMPT[i % len(PROMPT)] for i in range(tokens)]


def test_it_serves_survives_and_leaves(stack):
    def text(tokens):
        return post(stack.base_url + "/detokenize", {"tokens": answer_of(tokens)})["prompt"]

    def complete(tokens, **more):
        return post(stack.base_url + "/v1/completions", {"model": "parrot", "prompt": PROMPT, "max_tokens": tokens, "ignore_eos": True, **more})

    assert stack.model == "parrot"
    reply = complete(12)
    assert reply["choices"][0]["text"] == text(12) and reply["usage"]["completion_tokens"] == 12
    with pytest.raises(urllib.error.HTTPError) as refused:
        complete(12, kv={"mode": "int4", "keep": 64}, prompt=PROMPT * 40)
    assert "parrot neither evicts" in refused.value.read().decode()

    # Its readings are so small that every layer goes to two bits; it acknowledges each vector.
    wait_for("tiers by its readings", lambda: [layer["keys"] for layer in get_json(stack.controller_url + "/v1/tiers")["layers"]] == ["int2"] * 3)
    stack.striactl("pin", "1", "int8")
    pinned = get_json(stack.controller_url + "/v1/tiers")
    assert [layer["keys"] for layer in pinned["layers"]] == ["int2", "int8", "int2"]
    wait_for("the pin in force", lambda: get_json(stack.controller_url + "/v1/status")["workers"][0]["epoch_applied"] >= pinned["epoch"])
    controller = get_text(stack.controller_url + "/metrics")
    assert metric(controller, "stria_controller_frames_accepted_total") >= 1
    assert metric(controller, "stria_controller_malformed_tiers_frames_total") == 0

    # It does not know the question what its cache holds, which harms nobody.
    with pytest.raises(urllib.error.HTTPError) as silent:
        get_json(stack.controller_url + "/v1/cache?worker=parrot")
    assert silent.value.code == 504

    # It dies in the middle of an answer; another goes on from the tokens that were delivered.
    count = 400
    result = []
    asking = threading.Thread(target=lambda: result.append(complete(count)))
    asking.start()
    wait_for("half of the answer", lambda: stack.scheduler_metric("stria_scheduler_generated_tokens_total") >= 12 + 100)
    stack.kill("worker", signal.SIGKILL)
    stack.start("worker")
    asking.join(120)
    assert result[0]["choices"][0]["text"] == text(count)
    assert stack.scheduler_metric("stria_scheduler_failovers_total") == 1
    assert stack.kill("worker", signal.SIGTERM) == 0
