"""The main job: live traffic through three processes, with a cache that tiers itself."""
import concurrent.futures
import threading

from stack import get_json, wait_for

PROMPTS = [
    "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May. How many in all?",
    "Write a short story about a lighthouse keeper who finds a message in a bottle.",
    "Explain how photosynthesis works to a ten year old.",
    "List five animals that live in the desert and say why they can.",
    "What is the difference between a list and a tuple in Python?",
    "Describe the water cycle step by step.",
    "Give me a recipe for vegetable soup with quantities.",
    "Why do leaves change colour in autumn?",
]


def chat(client, model, text, *, stream, max_tokens=100, mode="auto", temperature=0.0, seed=1):
    """Returns (text, usage) of one chat."""
    kwargs = dict(model=model, messages=[{"role": "user", "content": text}], max_tokens=max_tokens, temperature=temperature,
                  seed=seed, extra_body={"kv": {"mode": mode}})
    if not stream:
        reply = client.chat.completions.create(**kwargs)
        return reply.choices[0].message.content, reply.usage
    parts, usage = [], None
    for chunk in client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **kwargs):
        usage = chunk.usage or usage
        parts += [choice.delta.content or "" for choice in chunk.choices]
    return "".join(parts), usage


def in_parallel(jobs):
    """Runs the callables at once and returns their results in order."""
    with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
        return [future.result() for future in [pool.submit(job) for job in jobs]]


def widths(stack) -> set[str]:
    return {layer["keys"] for layer in get_json(stack.controller_url + "/v1/tiers")["layers"]}


def test_sixteen_chats_complete_and_the_cache_tiers_itself(make_stack):
    from openai import OpenAI

    stack = make_stack()
    client = OpenAI(base_url=stack.base_url + "/v1", api_key="none", max_retries=0, timeout=300)
    stack.striactl("canary", "rate", "set", "0")
    in_parallel([lambda: chat(client, stack.model, PROMPTS[0], stream=False, max_tokens=80)])
    assert stack.worker_metric("stria_worker_canary_firings_total") == 0
    assert widths(stack) == {"fp16"}, "before the first firing every layer is FP16"

    stack.striactl("canary", "rate", "set", "0.2")
    # The default τ0 is for 4,096 tokens; √(L/L0) makes it strict for these short chats, so widen it for a visible mixture.
    stack.striactl("tau", "set", "0.05")
    wait_for("settings applied", lambda: all(w["state"] == "SYNCED" for w in get_json(stack.controller_url + "/v1/status")["workers"]))
    answers = in_parallel([lambda i=i: chat(client, stack.model, PROMPTS[i % 8], stream=i % 2 == 0, max_tokens=160)
                           for i in range(16)])
    assert all(text and usage.completion_tokens > 0 for text, usage in answers)
    assert stack.worker_metric("stria_worker_canary_firings_total") > 0
    wait_for("a mixture of widths", lambda: len(widths(stack)) >= 2)
    assert any(usage.kv_payload_bits < 16 for _, usage in answers), [usage.kv_payload_bits for _, usage in answers]


def live_sequences(stack):
    return [s for s in get_json(stack.worker_http + "/debug/sequences")["sequences"] if not s["prefilling"]]


def test_tau_changes_new_pages_and_leaves_old_ones(make_stack):
    from openai import OpenAI

    stack = make_stack()
    client = OpenAI(base_url=stack.base_url + "/v1", api_key="none", max_retries=0, timeout=300)
    stack.striactl("canary", "rate", "set", "1")
    stack.striactl("tau", "set", "1e-7")  # nothing passes: every layer FP16
    seen_enough = threading.Event()

    def long_stream():
        stream = client.completions.create(model=stack.model, prompt=" ".join(PROMPTS * 3), max_tokens=3000, temperature=1.0,
                                           seed=5, logit_bias={"2": -100, "0": -100}, stream=True)
        for _ in stream:
            if seen_enough.is_set():
                stream.close()
                return

    reader = threading.Thread(target=long_stream)
    reader.start()
    try:
        before = wait_for("three pages of a live sequence", lambda: next(
            (s for s in live_sequences(stack) if len(s["layers"][0]["keys"]) >= 3), None))
        stack.striactl("tau", "set", "10")  # everything passes: INT2
        after = wait_for("pages of two widths behind the first", lambda: next(
            (s for s in live_sequences(stack) if s["id"] == before["id"]
             and any(len({p["bits"] for p in layer["keys"][1:]}) >= 2 for layer in s["layers"])), None))
    finally:
        seen_enough.set()
        reader.join()
    for old, new in zip(before["layers"], after["layers"]):
        for kind in ("keys", "values"):
            assert new[kind][: len(old[kind])] == old[kind], "an old page's width or bytes changed"
        assert new["keys"][0]["bits"] == 16, "the first page keeps the attention sinks exact"
        assert new["keys"][-1]["bits"] == 2


def test_fixed_modes_do_not_depend_on_neighbours(stack, client):
    for mode in ("fp16", "int8", "int4", "int2"):
        text = PROMPTS[0] * 4
        alone, usage = chat(client, stack.model, text, stream=False, mode=mode, max_tokens=48)
        crowd = in_parallel([lambda i=i: chat(client, stack.model, text if i == 7 else PROMPTS[i % 8] * (i % 3 + 1), stream=i % 2 == 1,
                                              mode=mode, max_tokens=48) for i in range(16)])
        assert crowd[7][0] == alone, mode
        assert usage.kv_plan == mode


def test_cancelled_streams_return_their_pages(stack, client):
    wait_for("an idle pool", lambda: stack.worker_metric("stria_worker_pool_used_bytes") == 0)
    kept, cancelled = [], []

    def run(i):
        stream = client.chat.completions.create(model=stack.model, messages=[{"role": "user", "content": PROMPTS[i % 8]}],
                                                max_tokens=300 if i % 2 else 1500, temperature=1.0, seed=i, stream=True)
        for count, _ in enumerate(stream):
            if i % 2 == 0 and count == 5 + i:
                stream.close()
                cancelled.append(i)
                return
        kept.append(i)

    in_parallel([lambda i=i: run(i) for i in range(16)])
    assert len(kept) == 8 and len(cancelled) == 8
    wait_for("all pages back", lambda: stack.worker_metric("stria_worker_pool_used_bytes") == 0, 10)
    assert stack.worker_metric("stria_worker_sequences_running") == 0


def test_a_full_pool_queues_and_too_large_is_refused(make_stack):
    import openai

    stack = make_stack(worker_flags=("--pool-bytes", "24MiB"))
    client = openai.OpenAI(base_url=stack.base_url + "/v1", api_key="none", max_retries=0, timeout=300)
    answers = in_parallel([lambda i=i: chat(client, stack.model, PROMPTS[i % 8], stream=False, mode="fp16", max_tokens=200)
                           for i in range(8)])
    assert all(text for text, _ in answers)
    try:
        chat(client, stack.model, "word " * 3000, stream=False, mode="fp16", max_tokens=200)
        raise AssertionError("a request larger than the pool was accepted")
    except openai.BadRequestError as error:
        assert "bytes" in error.message and any(c.isdigit() for c in error.message), error.message
    _, usage = chat(client, stack.model, PROMPTS[1], stream=False, mode="int2", max_tokens=16)
    assert usage.completion_tokens > 0
