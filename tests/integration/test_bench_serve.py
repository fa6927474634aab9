"""`./stria bench serve` drives the real server here, small; what it finds is left to the bench, that it finds it is tested."""
import asyncio

import load
import serve


def test_every_request_of_a_load_is_answered_whole(stack):
    requests = load.poisson(20.0, 0.5, seed=4, median=40, longest=100)
    assert len(requests) > 4
    answers = asyncio.run(load.play(stack.api_port, requests, {"kv": {"mode": "int4"}, "model": stack.model}, patience=120))
    assert [a.error for a in answers] == [""] * len(requests)
    for request, answer in zip(requests, answers):
        # A token that ends within a character comes with the next one, so pieces may be fewer than tokens.
        assert answer.ended and request.max_tokens // 2 < len(answer.times) <= request.max_tokens
        assert answer.first > 0


def test_contexts_held_are_bounded_by_the_pool(make_stack):
    server = make_stack(worker_flags=("--pool-bytes", "64MiB", "--max-sequences", "32"))
    extra = {"model": server.model}
    ours = asyncio.run(load.held_at_once(server.api_port, 8, 512, {**extra, "kv": {"mode": "fp16"}}, calm=10, answer=1024))
    assert 1 <= ours < 8


def test_a_long_prompt_beside_running_streams_is_measured_in_their_steps(stack):
    found = asyncio.run(load.long_prompt_beside(stack.api_port, 2, 1500, {"kv": {"mode": "int4"}, "model": stack.model}))
    assert not found["errors"]
    assert found["step_ms"] > 0 and found["gap"] >= 0.5 and found["start"] > 0


def test_the_account_of_a_request_gives_the_bytes_of_a_token_at_fp16(stack):
    class Server:
        port, extra = stack.api_port, {"kv": {"mode": "fp16"}, "model": stack.model}

    assert abs(serve.fp16_token_bytes(Server) - 2 * 30 * 3 * 64 * 2) < 1  # SmolLM2: layers, KV heads, channels, bytes
