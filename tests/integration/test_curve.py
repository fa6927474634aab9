"""The three services on sockets off loopback, with CURVE: who has a listed key takes part, who has none gets nothing and blocks nobody."""
import os
import pathlib
import subprocess

import pytest
from stack import BIN, MODEL, get_json, get_text, metric, wait_for


def run(*command: str) -> subprocess.CompletedProcess:
    return subprocess.run(command, capture_output=True, text=True, timeout=30)


def make_keys(folder: pathlib.Path, *flags: str) -> pathlib.Path:
    made = run(str(BIN / "ctl/striactl"), "keys", str(folder), *flags)
    assert made.returncode == 0, made.stderr
    return folder


def server_flags(keys: pathlib.Path, name: str) -> tuple[str, ...]:
    return ("--curve-key-file", str(keys / f"{name}.key"), "--curve-workers-file", str(keys / "workers.pub"), "--workers-bind", "0.0.0.0")


def test_only_listed_keys_take_part(make_stack, tmp_path):
    keys = make_keys(tmp_path / "keys")
    stack = make_stack(worker_flags=("--threads", "1", "--curve-key-file", str(keys / "worker.key"), "--curve-servers-file", str(keys / "servers.pub")),
                       scheduler_flags=server_flags(keys, "scheduler"), controller_flags=server_flags(keys, "controller"))
    # A worker with a key that nobody listed; it knows the servers'. Its keys come from the environment.
    other = make_keys(tmp_path / "other")
    command = stack.command("worker")
    command = ["0" if part == str(stack.worker_port) else part for part in command[:command.index("--curve-key-file")]] + ["--name", "stranger"]
    environment = {**os.environ, "STRIA_CURVE_KEY": (other / "worker.key").read_text(), "STRIA_CURVE_SERVERS": (keys / "servers.pub").read_text()}
    with open(stack.folder / "stranger.log", "wb") as log:
        stack.processes["stranger"] = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    wait_for("the stranger is refused", lambda: stack.scheduler_metric("stria_scheduler_peers_refused_total") >= 1 and metric(
        get_text(stack.controller_url + "/metrics"), "stria_controller_peers_refused_total") >= 2)  # tiers and telemetry
    wait_for("the stranger has loaded", lambda: '"serving"' in stack.log("stranger"))

    from openai import OpenAI
    client = OpenAI(base_url=stack.base_url + "/v1", api_key="none", max_retries=0, timeout=120)
    reply = client.completions.create(model=stack.model, prompt="Once upon a time", max_tokens=150, extra_body={"ignore_eos": True})
    assert reply.usage.completion_tokens == 150
    assert len(stack.status()["workers"]) == 1
    assert [w["state"] for w in get_json(stack.controller_url + "/v1/status")["workers"]] == ["SYNCED"]
    wait_for("readings over CURVE", lambda: metric(get_text(stack.controller_url + "/metrics"), "stria_controller_frames_accepted_total") >= 1)
    secrets = [path.read_text().strip() for folder in (keys, other) for path in folder.glob("*.key")]
    told = "".join(stack.log(name) for name in stack.processes) + get_text(stack.base_url + "/config")
    assert len(secrets) == 6 and not any(secret in told for secret in secrets)


@pytest.mark.parametrize("service, flags", [
    ("scheduler", ["--workers-bind", "0.0.0.0", "--workers-port", "0"]),
    ("controller", ["--workers-bind", "0.0.0.0", "--telemetry-port", "0", "--tiers-port", "0"]),
    ("worker", ["--scheduler", "tcp://scheduler:5555"]),
])
def test_off_loopback_is_refused_without_keys(service, flags, tmp_path):
    command = [str(BIN / f"{service}/{service}"), *flags, "--http-port", "0"]
    command += ["--state", str(tmp_path / "state.db")] if service == "controller" else ["--model", str(MODEL)]
    ended = run(*command)
    assert ended.returncode in (1, 2) and "needs CURVE keys" in ended.stderr, ended
    half = run(*command, "--curve-key-file", str(make_keys(tmp_path / "keys") / "worker.key"))
    assert half.returncode in (1, 2) and "needs both" in half.stderr, half
