"""Clients of an OpenAI-style server under load: what a request saw, arrivals, and the figures made of many."""
import asyncio
import dataclasses
import json
import math
import random
import statistics
import time


@dataclasses.dataclass(frozen=True)
class Request:
    at: float  # seconds after the start of the load
    prompt: list[int]
    max_tokens: int


@dataclasses.dataclass
class Answer:
    sent: float
    times: list[float] = dataclasses.field(default_factory=list)  # of each piece of text
    ended: bool = False  # whole, with [DONE]
    error: str = ""

    @property
    def first(self) -> float | None:
        """Seconds to the first token."""
        return self.times[0] - self.sent if self.times else None

    @property
    def gaps(self) -> list[float]:
        return [after - before for before, after in zip(self.times, self.times[1:])]


@dataclasses.dataclass(frozen=True)
class Bound:
    """What a reader at the other end still calls live."""
    first: float = 4.0  # seconds to the first token
    gap: float = 0.2  # mean seconds between tokens

    def met(self, answer: Answer) -> bool:
        return answer.ended and answer.first <= self.first and (not answer.gaps or statistics.mean(answer.gaps) <= self.gap)


def tokens(rng: random.Random, count: int) -> list[int]:
    """Ids that every tokenizer of a served model has, and no special one."""
    return [rng.randrange(1000, 30000) for _ in range(count)]


def poisson(rate: float, seconds: float, seed: int, median: int = 256, spread: float = 1.0,
            shortest: int = 16, longest: int = 2048) -> list[Request]:
    """Arrivals at `rate` per second; prompt lengths log-normal about `median`, answers of 32 to 160 tokens."""
    rng, at, out = random.Random(seed), 0.0, []
    while (at := at + rng.expovariate(rate)) < seconds:
        length = round(min(max(rng.lognormvariate(math.log(median), spread), shortest), longest))
        out.append(Request(at, tokens(rng, length), rng.randint(32, 160)))
    return out


def percentile(values: list[float], share: float) -> float | None:
    """The smallest value that at least `share` of `values` does not exceed; None of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def summary(answers: list[Answer], seconds: float, bound: Bound) -> dict:
    good = sum(bound.met(a) for a in answers)
    firsts = [a.first for a in answers if a.first is not None]
    return {"requests": len(answers), "good": good, "goodput": good / seconds, "attained": good / len(answers) if answers else None,
            "ttft_p50": percentile(firsts, 0.5), "ttft_p99": percentile(firsts, 0.99),
            "errors": sorted({a.error for a in answers if a.error})[:3]}


async def _lines(reader: asyncio.StreamReader):
    """Lines of a chunked body; a line may be cut anywhere by the chunks."""
    rest = b""
    while size := int((await reader.readline()).strip() or b"0", 16):
        rest += await reader.readexactly(size)
        await reader.readexactly(2)
        *whole, rest = rest.split(b"\n")
        for line in whole:
            yield line.rstrip(b"\r")


async def ask(port: int, request: Request, extra: dict, answer: Answer) -> None:
    """One streaming completion; `answer` grows as its tokens come. Cancelling hangs up."""
    body = json.dumps({"prompt": request.prompt, "max_tokens": request.max_tokens, "stream": True, "temperature": 0,
                       "ignore_eos": True, **extra}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
                     b"Content-Length: %d\r\n\r\n" % len(body) + body)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if b" 200 " not in head.split(b"\r\n")[0]:
            answer.error = (head.split(b"\r\n")[0] + b" " + await reader.read(300)).decode(errors="replace")
            return
        async for line in _lines(reader):
            if line == b"data: [DONE]":
                answer.ended = True
                return
            if line.startswith((b"error:", b'data: {"error"')):
                answer.error = line.decode(errors="replace")[:300]
                return
            if line.startswith(b"data: "):
                choices = json.loads(line[6:]).get("choices")
                if choices and choices[0].get("text"):
                    answer.times.append(time.monotonic())
        answer.error = "the stream ended without [DONE]"
    except (OSError, EOFError, ValueError) as error:
        answer.error = f"{type(error).__name__}: {error}"[:300]
    finally:
        writer.close()


async def play(port: int, requests: list[Request], extra: dict, patience: float) -> list[Answer]:
    """Sends each request at its time. Who has no whole answer `patience` seconds after the last arrival hangs up."""
    begin, answers, running = time.monotonic(), [], []
    for request in requests:
        await asyncio.sleep(max(0.0, begin + request.at - time.monotonic()))
        answers.append(Answer(time.monotonic()))
        running.append(asyncio.create_task(ask(port, request, extra, answers[-1])))
    await asyncio.wait(running, timeout=patience)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    return answers


async def held_at_once(port: int, contexts: int, prompt: int, extra: dict, calm: float, answer: int = 2048, seed: int = 1) -> int:
    """Sends `contexts` prompts of `prompt` tokens that would generate `answer` more, too many to end meanwhile, and counts those that
    have begun and not ended when `calm` seconds brought no further one (ten times that for the first): what the cache holds together."""
    rng = random.Random(seed)
    answers = [Answer(time.monotonic()) for _ in range(contexts)]
    running = [asyncio.create_task(ask(port, Request(0, tokens(rng, prompt), answer), extra, a)) for a in answers]
    most, last_growth = 0, time.monotonic()
    while most < contexts and time.monotonic() - last_growth < (calm if most else 10 * calm):
        await asyncio.sleep(0.25)
        held = sum(bool(a.times) and not a.ended and not a.error and time.monotonic() - a.times[-1] < calm for a in answers)
        if held > most:
            most, last_growth = held, time.monotonic()
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    return most


async def long_prompt_beside(port: int, streams: int, long: int, extra: dict, seed: int = 2) -> dict:
    """While `streams` generate, a prompt of `long` tokens comes in and, once it is being computed, one of 30. `gap`: the longest pause
    of a running stream until the long one's first token; `start`: the short one's time to its first token; both in median steps."""
    rng = random.Random(seed)
    running = [Answer(time.monotonic()) for _ in range(streams)]
    tasks = [asyncio.create_task(ask(port, Request(0, tokens(rng, 64), 2048), extra, a)) for a in running]
    while not all(len(a.times) >= 40 for a in running):
        if any(a.error or a.ended for a in running):
            raise RuntimeError(f"a running stream ended: {[a.error for a in running]}")
        await asyncio.sleep(0.05)
    step = statistics.median(gap for a in running for gap in a.gaps[8:])
    begin = time.monotonic()
    long_answer = Answer(begin)
    tasks.append(asyncio.create_task(ask(port, Request(0, tokens(rng, long), 4), extra, long_answer)))
    await asyncio.sleep(10 * step)
    short = Answer(time.monotonic())
    tasks.append(asyncio.create_task(ask(port, Request(0, tokens(rng, 30), 4), extra, short)))
    while not (long_answer.times and short.times) and not (long_answer.error or short.error):
        await asyncio.sleep(0.05)
    end = long_answer.times[0] if long_answer.times else time.monotonic()
    pauses = [after - before for a in running for before, after in zip(a.times, a.times[1:]) if after > begin and before < end]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return {"step_ms": step * 1e3, "gap": max(pauses) / step if pauses else None, "start": short.first / step if short.first else None,
            "long_ttft": long_answer.first, "errors": [a.error for a in (long_answer, short) if a.error]}
