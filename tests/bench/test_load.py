"""The load generator: arrivals, the figures made of answers, and reading a stream however it is cut. tests/integration drives it at the real server."""
import asyncio
import json
import random

import load
import pytest
import serve
from load import Answer, Bound, Request


def answer(sent: float, *times: float, ended: bool = True) -> Answer:
    return Answer(sent, list(times), ended)


def test_arrivals_are_poisson_and_the_same_for_the_same_seed():
    arrivals = load.poisson(2.0, 2000, seed=7)
    assert arrivals == load.poisson(2.0, 2000, seed=7) != load.poisson(2.0, 2000, seed=8)
    gaps = [b.at - a.at for a, b in zip(arrivals, arrivals[1:])]
    mean = sum(gaps) / len(gaps)
    assert mean == pytest.approx(0.5, rel=0.1)
    assert sum((gap - mean) ** 2 for gap in gaps) / len(gaps) == pytest.approx(mean ** 2, rel=0.2)  # exponential: deviation = mean
    lengths = sorted(len(r.prompt) for r in arrivals)
    assert lengths[0] >= 16 and lengths[-1] == 2048 and 200 < lengths[len(lengths) // 2] < 320


def test_a_bound_is_met_by_whole_answers_in_time_only():
    bound = Bound(first=1.0, gap=0.1)
    assert bound.met(answer(10, 10.9, 11.0, 11.05))
    assert bound.met(answer(10, 10.5))
    assert not bound.met(answer(10, 11.1, 11.2))
    assert not bound.met(answer(10, 10.5, 10.7, 10.9))
    assert not bound.met(answer(10, 10.5, ended=False))


def test_the_summary_counts_those_without_a_token_and_keeps_them_out_of_percentiles():
    answers = [answer(0, 0.5), answer(0, 3.0), Answer(0, error="429")]
    figures = load.summary(answers, 10, Bound(first=1.0))
    assert figures == {"requests": 3, "good": 1, "goodput": 0.1, "attained": pytest.approx(1 / 3), "ttft_p50": 0.5, "ttft_p99": 3.0, "errors": ["429"]}
    assert load.summary([], 10, Bound())["attained"] is None


@pytest.mark.parametrize("share, expected", [(0.0, 1), (0.5, 2), (0.51, 3), (0.99, 4), (1.0, 4)])
def test_percentile_is_a_value_that_was_seen(share, expected):
    assert load.percentile([4, 1, 3, 2], share) == expected


def serve_bytes(head: bytes, chunks: list[bytes]):
    async def handle(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head + b"".join(b"%x\r\n%s\r\n" % (len(c), c) for c in chunks))
        writer.close()

    async def main():
        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        got = Answer(0)
        async with server:
            await load.ask(server.sockets[0].getsockname()[1], Request(0, [1000], 4), {}, got)
        return got
    return asyncio.run(main())


OK = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_a_stream_reads_the_same_however_its_chunks_are_cut():
    events = [{"choices": [{"text": text}]} for text in ("a", "", "bü")] + [{"choices": [], "usage": {}}]
    body = b"".join(b"data: " + json.dumps(e).encode() + b"\n\n" for e in events) + b"data: [DONE]\n\n"
    rng = random.Random(3)
    for _ in range(20):
        cuts = sorted(rng.sample(range(1, len(body)), 9))
        got = serve_bytes(OK, [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)])] + [b""])
        assert got.ended and not got.error and len(got.times) == 2


def test_refusals_errors_in_the_stream_and_broken_streams_are_told_apart():
    assert "429" in serve_bytes(b"HTTP/1.1 429 Too Many\r\n\r\n", [b"full"]).error
    assert "out of cache" in serve_bytes(OK, [b'data: {"error": "out of cache"}\n\n', b""]).error
    assert "without [DONE]" in serve_bytes(OK, [b'data: {"choices": [{"text": "a"}]}\n\n', b""]).error
    assert not serve_bytes(OK, [b'data: {"choices": [{"text": "a"}]}\n\n']).ended


def test_the_ratio_is_ours_over_the_best_peer_and_none_without_one():
    assert serve.ratio_to_peers({"Stria int4": 6.0, "llama.cpp f16": 1.0, "llama.cpp q4_0": 2.0}, "Stria int4") == 3.0
    assert serve.ratio_to_peers({"Stria int4": 6.0}, "Stria int4") is None
