"""Processes die and come back; what was accepted ends in one clear way."""
import signal
import time
import urllib.error

import openai
import pytest
from stack import get_json, wait_for
from test_closed_loop import PROMPTS, chat, in_parallel


def connect(stack):
    return openai.OpenAI(base_url=stack.base_url + "/v1", api_key="none", max_retries=0, timeout=120)


def test_controller_dies_and_returns(make_stack):
    stack = make_stack()
    client = connect(stack)
    stack.striactl("canary", "rate", "set", "1")
    stack.striactl("tau", "set", "0.07", "--reason", "a test")
    chat(client, stack.model, PROMPTS[1], stream=False, max_tokens=120)
    before = get_json(stack.controller_url + "/v1/tiers")
    stack.kill("controller")
    text, _ = chat(client, stack.model, PROMPTS[2], stream=True, max_tokens=40)
    assert text, "serving goes on without a controller"
    stack.start("controller")
    status = wait_for("the worker is in step again", lambda: (
        s := get_json(stack.controller_url + "/v1/status"))["workers"] and s["workers"][0]["state"] == "SYNCED" and s)
    after = get_json(stack.controller_url + "/v1/tiers")
    assert after["tau"] == pytest.approx(0.07)
    assert [layer["keys"] for layer in after["layers"]] == [layer["keys"] for layer in before["layers"]]
    assert status["workers"][0]["epoch_applied"] > before["epoch"], "a restart takes the next epoch, never an old one"


def test_scheduler_restart_leaves_no_pages_behind(make_stack):
    stack = make_stack(worker_flags=("--grace-seconds", "3"))
    client = connect(stack)
    stream = client.chat.completions.create(model=stack.model, messages=[{"role": "user", "content": PROMPTS[1]}],
                                            max_tokens=2000, temperature=1.0, stream=True)
    next(iter(stream))
    stack.kill("scheduler")
    wait_for("the orphan's pages are back", lambda: stack.worker_metric("stria_worker_pool_used_bytes") == 0, 20)
    stack.start("scheduler")
    stack.wait_ready()
    assert chat(client, stack.model, PROMPTS[5], stream=False, max_tokens=20)[0]


def test_terminated_processes_exit_clean(make_stack):
    stack = make_stack()
    for name in ("scheduler", "worker", "controller"):
        assert stack.kill(name, signal.SIGTERM) == 0, stack.log(name)[-2000:]


def test_a_worker_that_stands_still_for_a_minute_delays_nobody(make_stack):
    stack = make_stack(workers=2)
    client = connect(stack)

    def entry(worker: str) -> dict:
        workers = get_json(stack.controller_url + "/v1/status")["workers"]
        return next(w for w in workers if w["worker"].endswith(f"-{stack.worker_ports[worker]}"))

    def in_step(worker: str):
        return (e := entry(worker))["state"] == "SYNCED" and e["epoch_applied"] == e["epoch"] and e

    process = stack.processes["worker1"]
    process.send_signal(signal.SIGSTOP)
    try:
        deadline = time.monotonic() + 60
        stopped_at = entry("worker1")["epoch_applied"]
        wait_for("it is STALE", lambda: entry("worker1")["state"] == "STALE", 40)
        rounds = 0
        while time.monotonic() < deadline or rounds < 3:
            rounds += 1
            stack.striactl("canary", "rate", "set", f"{1 / (rounds + 1)}")  # a vector of its own each
            epoch = wait_for("the other worker has it", lambda: in_step("worker"))["epoch"]
            assert entry("worker1")["state"] == "STALE" and entry("worker1")["epoch_applied"] == stopped_at < epoch
            assert chat(client, stack.model, PROMPTS[rounds % 8], stream=True, max_tokens=20)[0], "requests are served meanwhile"
            cache = get_json(f"{stack.controller_url}/v1/cache?worker={entry('worker')['worker']}")
            assert cache["epoch"] >= epoch and cache["sequences"] == []
            with pytest.raises(urllib.error.HTTPError) as refused:
                get_json(f"{stack.controller_url}/v1/cache?worker={entry('worker1')['worker']}")
            assert refused.value.code in (503, 504)
        assert entry("worker1")["heard_seconds_ago"] > 40
    finally:
        process.send_signal(signal.SIGCONT)
    last = wait_for("it catches up", lambda: in_step("worker1"))
    assert last["epoch_applied"] == entry("worker")["epoch_applied"] and last["restarts"] == 0
    wait_for("the scheduler uses it again", lambda: {w["state"] for w in stack.status()["workers"]} == {"serving"})
    answers = in_parallel([lambda i=i: chat(client, stack.model, PROMPTS[i], stream=False, max_tokens=20) for i in range(6)])
    assert all(text for text, _ in answers)
