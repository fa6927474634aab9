"""Clients that do harm, by malice or by accident: memory stays bounded and others are served."""
import contextlib
import json
import resource
import socket

import openai
import pytest
from stack import wait_for
from test_closed_loop import PROMPTS, chat, in_parallel

MIB = 1 << 20


def rss(process) -> int:
    """Bytes of memory that the process holds."""
    with open(f"/proc/{process.pid}/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def connect(stack, receive_buffer=None):
    s = socket.socket()
    if receive_buffer:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    s.settimeout(60)
    s.connect(("127.0.0.1", stack.api_port))
    return s


def head(length: int, path: str = "/v1/completions") -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n".encode()


def answer(s) -> bytes:
    data = b""
    with contextlib.suppress(ConnectionError):
        while piece := s.recv(65536):
            data += piece
            if b"\r\n\r\n" in data and b"}}" in data:
                break
    return data


@pytest.fixture
def many_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_hostile_clients_cost_little_and_delay_nobody(make_stack, many_files):
    stack = make_stack()
    client = openai.OpenAI(base_url=stack.base_url + "/v1", api_key="none", max_retries=0, timeout=120)
    expected = [chat(client, stack.model, prompt, stream=True, mode="fp16", max_tokens=60)[0] for prompt in PROMPTS[:3]]
    before = rss(stack.processes["scheduler"])

    with contextlib.ExitStack() as open_sockets:
        def keep(s):
            return open_sockets.enter_context(contextlib.closing(s))

        for _ in range(2000):
            keep(connect(stack))
        assert rss(stack.processes["scheduler"]) - before < 64 * MIB, "2,000 idle connections"

        for i in range(100):  # requests that never end: half a header, half a body
            half = keep(connect(stack))
            half.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nX-Slow: " if i % 2 else head(4_000_000) + b'{"prompt": "')
        for _ in range(8):  # long answers that nobody reads
            deaf = keep(connect(stack, receive_buffer=4096))
            body = json.dumps({"model": stack.model, "prompt": "x", "max_tokens": 400, "stream": True, "logprobs": 20, "ignore_eos": True})
            deaf.sendall(head(len(body)) + body.encode())

        answers = in_parallel([lambda p=p: chat(client, stack.model, p, stream=True, mode="fp16", max_tokens=60)[0] for p in PROMPTS[:3]])
        assert answers == expected, "others get their answers, unchanged"

        for body, status in [(b"{\"prompt\": \"\xff\xfe\"}", 400), (b"\x00" * 100, 400), (b"[" * 100_000, 400), (b"", 400),
                             (json.dumps({"prompt": "x", "stop": ["s"] * 10_000}).encode(), 400),
                             (json.dumps({"prompt": "x", "max_tokens": -5}).encode(), 400),
                             (json.dumps({"prompt": "x\u0000y", "max_tokens": 1}).encode(), 200)]:
            with contextlib.closing(connect(stack)) as s:
                s.sendall(head(len(body)) + body)
                assert answer(s).startswith(f"HTTP/1.1 {status}".encode()), body[:50]
        with contextlib.closing(connect(stack)) as s:
            s.sendall(head(100 << 20) + b"x" * 1000)
            assert answer(s).startswith(b"HTTP/1.1 413"), "a body over the limit"
        # 100 MB declared at once by honest headers: most are turned away before a byte of them is held.
        crowd = [keep(connect(stack)) for _ in range(100)]
        for s in crowd:
            s.sendall(head(4_000_000))
            with contextlib.suppress(ConnectionError):
                s.sendall(b" " * 1_000_000)
        assert rss(stack.processes["scheduler"]) - before < 384 * MIB, "256 MiB of bodies, and little beside them"
        assert chat(client, stack.model, PROMPTS[0], stream=False, mode="fp16", max_tokens=60)[0] == expected[0]
    wait_for("all work for clients that left has ended", lambda: stack.worker_metric("stria_worker_pool_used_bytes") == 0)
    assert stack.scheduler_metric("stria_scheduler_running") == 0
