"""Workers and schedulers are killed, stopped and replaced under load, and clients hang up. Afterwards every request has ended in
exactly one way, no page is held, and greedy FP16 answers are those of a calm run, near ties aside."""
import concurrent.futures
import contextlib
import random
import signal
import threading
import time

import openai
from stack import Stack, wait_for
from test_closed_loop import PROMPTS
from test_failover import NEAR_TIE, connect, first_difference, stream

TOKENS = 60
CLIENTS = 6


class Life:
    """When there was a scheduler. A request may break only if there was none for a part of its time."""

    def __init__(self):
        self.lock = threading.Lock()
        self.deaths, self.down = 0, False

    def state(self) -> tuple[int, bool]:
        with self.lock:
            return self.deaths, self.down

    def ends(self):
        with self.lock:
            self.deaths, self.down = self.deaths + 1, True

    def begins(self):
        with self.lock:
            self.down = False

    def missed(self, before: tuple[int, bool]) -> bool:
        """Whether there was none at some time since `before`."""
        return before[1] or self.state() != before


def monkey(stack: Stack, life: Life, rng: random.Random, deadline: float, done: list[str]):
    """One misfortune after the other, each mended before the next."""
    workers = list(stack.worker_ports)
    while time.monotonic() < deadline:
        what = rng.choices(["kill worker", "stop worker", "drain worker", "kill scheduler", "stop scheduler"], [4, 3, 3, 1, 2])[0]
        who = rng.choice(workers) if "worker" in what else "scheduler"
        done.append(what)
        if what.startswith("kill"):
            if who == "scheduler":
                life.ends()
            stack.kill(who, signal.SIGKILL)
            time.sleep(rng.uniform(0, 1.5))
            stack.start(who)
        elif what.startswith("drain"):
            assert stack.kill(who, signal.SIGTERM) == 0, stack.log(who)[-2000:]
            stack.start(who)
        else:
            stack.processes[who].send_signal(signal.SIGSTOP)
            time.sleep(rng.uniform(0.2, 4))
            stack.processes[who].send_signal(signal.SIGCONT)
        time.sleep(rng.uniform(0.5, 3))
        # Somebody who serves, or there is nobody to be unkind to.
        wait_for("a worker serves", lambda: [w for w in stack.status()["workers"] if w["state"] == "serving"], 120)
        life.begins()


def ask(client, model: str, rng: random.Random, calm: dict) -> str:
    """One request, and how it ended: complete, or hung up on. Raises what the client raises."""
    kind = rng.choice(["greedy", "greedy", "sampled", "whole", "hang up"])
    prompt = rng.choice(PROMPTS)
    if kind == "greedy":
        tokens = stream(client, model, prompt, TOKENS, temperature=0)
        at = first_difference(calm[prompt], tokens)
        assert at is None or calm[prompt][at][1] < NEAR_TIE, f"{prompt!r} differs at {at}, gap {calm[prompt][at][1]}"
    elif kind == "sampled":
        stream(client, model, prompt, TOKENS, temperature=1.0, seed=rng.randrange(1000))
    elif kind == "whole":
        reply = client.chat.completions.create(model=model, messages=[{"role": "user", "content": prompt}], max_tokens=TOKENS,
                                               n=2, temperature=1.0, extra_body={"ignore_eos": True})
        assert reply.usage.completion_tokens == 2 * TOKENS and len(reply.choices) == 2
    else:
        pieces = client.chat.completions.create(model=model, messages=[{"role": "user", "content": prompt}], max_tokens=1000, stream=True)
        for _ in zip(range(rng.randrange(1, 30)), pieces):
            pass
        pieces.close()
    return kind


def load(stack: Stack, model: str, life: Life, seed: int, deadline: float, calm: dict) -> list[str]:
    rng, client, ends = random.Random(seed), connect(stack), []
    while time.monotonic() < deadline:
        before = life.state()
        try:
            ends.append(ask(client, model, rng, calm))
        except (openai.APIError, openai.APIConnectionError) as error:
            # httpx reports a broken connection in several ways; the scheduler's own refusals carry a status.
            status = getattr(error, "status_code", None)
            refused = status in (429, 503)  # nothing of it was begun
            given_up = "workers were lost" in str(error)
            assert refused or given_up or life.missed(before), f"{type(error).__name__}: {error}"
            ends.append("refused" if refused else "given up" if given_up else "scheduler died")
            time.sleep(0.2)
        except Exception as error:  # noqa: BLE001: a stream cut off by a dead scheduler surfaces from below the client
            if isinstance(error, AssertionError) or not life.missed(before):
                raise
            ends.append("scheduler died")
    return ends


def test_chaos(tmp_path, request):
    seconds, seed = request.config.getoption("--chaos-seconds"), request.config.getoption("--chaos-seed")
    with contextlib.ExitStack() as cleanup:
        stack = Stack(tmp_path, workers=2, worker_flags=("--threads", "1", "--drain-seconds", "1", "--grace-seconds", "5"),
                      scheduler_flags=("--worker-timeout", "5"))
        cleanup.callback(stack.stop)
        stack.start_all()
        model, client = stack.model, connect(stack)
        with concurrent.futures.ThreadPoolExecutor(len(PROMPTS)) as pool:
            answers = list(pool.map(lambda prompt: stream(client, model, prompt, TOKENS, temperature=0), PROMPTS))
        calm = dict(zip(PROMPTS, answers))

        life, done, deadline = Life(), [], time.monotonic() + seconds
        with concurrent.futures.ThreadPoolExecutor(CLIENTS + 1) as pool:
            clients = [pool.submit(load, stack, model, life, seed * 100 + i, deadline, calm) for i in range(CLIENTS)]
            pool.submit(monkey, stack, life, random.Random(seed), deadline, done).result()
            ends = [end for future in clients for end in future.result(timeout=300)]
        counts = {end: ends.count(end) for end in sorted(set(ends))}
        print(f"seed {seed}: {len(done)} misfortunes {dict((d, done.count(d)) for d in sorted(set(done)))}, requests {counts}")
        assert len(done) >= seconds / 15 and sum(counts.get(kind, 0) for kind in ("greedy", "sampled", "whole")) >= CLIENTS

        wait_for("two workers", lambda: len([w for w in stack.status()["workers"] if w["state"] == "serving"]) == 2, 120)
        wait_for("nothing runs", lambda: stack.status()["running"] + stack.status()["waiting"] == 0, 60)
        for worker in stack.worker_ports:
            wait_for(f"no pages of {worker}", lambda worker=worker: stack.worker_metric("stria_worker_pool_used_bytes", worker) == 0, 60)
        for prompt in PROMPTS[:3]:
            at = first_difference(calm[prompt], stream(client, model, prompt, TOKENS, temperature=0))
            assert at is None or calm[prompt][at][1] < NEAR_TIE


