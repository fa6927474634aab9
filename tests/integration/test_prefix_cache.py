"""Shared prompt pages through the real processes: who hits what, what is answered, and what the memory is worth."""
import openai
import pytest
from stack import wait_for
from test_closed_loop import in_parallel
from test_failover import first_difference

# A prompt behind shared pages is computed in chunks of other sizes, an answer's pages by decode rows: logits move a little.
NEAR_TIE = 0.3

RULES = ["Answer in one sentence.", "Be friendly to everybody, whatever they ask.", "Never mention prices.", "Use words that a child knows.",
         "If a question has several answers, choose the shortest.", "Count on your fingers before you give a number."]
SYSTEM = " ".join(f"Rule {i + 1}: {RULES[i % 6]}" for i in range(24))
QUESTIONS = ["What colour is grass?", "How many legs has a spider?", "Why does it rain?", "What do bees make?", "Who lives in a shell?", "What is ice?"]


def client_of(stack):
    return openai.OpenAI(base_url=stack.base_url + "/v1", api_key="none", max_retries=0, timeout=300)


def ask(client, model, messages, tokens=24, **extra):
    """(tokens with the gap to the second best, text, usage) of a greedy answer over FP16 pages."""
    reply = client.chat.completions.create(model=model, messages=messages, max_tokens=tokens, temperature=0, logprobs=True, top_logprobs=2,
                                           extra_body={"kv": {"mode": "fp16"}, "ignore_eos": True, **extra})
    choice = reply.choices[0]
    gaps = [(token.token, token.top_logprobs[0].logprob - token.top_logprobs[1].logprob) for token in choice.logprobs.content]
    return gaps, choice.message.content, reply.usage


def chat(question, system=SYSTEM):
    return [{"role": "system", "content": system}, {"role": "user", "content": question}]


def assert_same_up_to_a_near_tie(alone, shared):
    at = first_difference(alone, shared)
    assert at is None or alone[at][1] < NEAR_TIE, (at, alone[at])


def cached(usage):
    return usage.prompt_tokens_details.cached_tokens


def test_a_system_prompt_and_a_chat_are_computed_once(make_stack):
    stack = make_stack()
    client, model = client_of(stack), stack.model
    alone = [ask(client, model, chat(q), cache_prompt=False) for q in QUESTIONS]
    assert [cached(usage) for _, _, usage in alone] == [0] * len(QUESTIONS)
    assert stack.worker_metric("stria_worker_prefix_lookups_total") == 0
    computed = stack.worker_metric("stria_worker_tokens_total", kind="prompt")

    shared = [ask(client, model, chat(q)) for q in QUESTIONS]
    system_pages = cached(shared[1][2])
    assert cached(shared[0][2]) == 0 and system_pages >= 192 and system_pages % 64 == 0
    assert [cached(usage) for _, _, usage in shared[1:]] == [system_pages] * (len(QUESTIONS) - 1)
    for (a, _, _), (b, _, _) in zip(alone, shared):
        assert_same_up_to_a_near_tie(a, b)
    hits = (len(QUESTIONS) - 1) * system_pages
    wait_for("hits", lambda: stack.worker_metric("stria_worker_prefix_hit_tokens_total") == hits)
    prompts = sum(usage.prompt_tokens for _, _, usage in shared)
    wait_for("the others computed", lambda: stack.worker_metric("stria_worker_tokens_total", kind="prompt") - computed == prompts - hits)

    # The next turn finds the pages of the answer as well as those of the prompt.
    talk, before = chat("Tell me everything that you know about whales."), 0
    for turn in range(3):
        gaps, text, usage = ask(client, model, talk, tokens=80)
        assert_same_up_to_a_near_tie(ask(client, model, talk, tokens=80, cache_prompt=False)[0], gaps)
        assert cached(usage) >= max(before // 64 * 64, system_pages)
        before = usage.prompt_tokens  # at least: an answer's text may be read back as other tokens
        talk += [{"role": "assistant", "content": text}, {"role": "user", "content": "Go on."}]

    assert cached(ask(client, model, chat(QUESTIONS[0]), cache_salt="another tenant")[2]) == 0
    assert cached(ask(client, model, chat(QUESTIONS[0]), cache_salt="another tenant")[2]) >= system_pages
    several = client.chat.completions.create(model=model, messages=chat("Say a number.", "Another beginning. " + SYSTEM), max_tokens=8, n=4, seed=1)
    assert len(several.choices) == 4 and cached(several.usage) == 0, "the first of them computes the prompt"

    # What is kept is free memory.
    wait_for("no pages in use", lambda: stack.worker_metric("stria_worker_pool_used_bytes") == 0)
    assert stack.worker_metric("stria_worker_prefix_shared_bytes") == 0
    assert stack.worker_metric("stria_worker_prefix_idle_bytes") == stack.worker_metric("stria_worker_prefix_bytes") > 0
    wait_for("the scheduler's view", lambda: (lambda w: w["used_bytes"] == 0 and w["idle_bytes"] > 0)(stack.status()["workers"][0]))


def test_a_full_pool_evicts_and_nobody_waits_for_it(make_stack):
    # Prompts of about 500 tokens take 8 rows of 1.4 MiB: 3 of them fill the pool, which serves 20.
    stack = make_stack(worker_flags=("--pool-bytes", "48MiB"))
    client, model = client_of(stack), stack.model
    prompts = [chat(QUESTIONS[i % 6], f"You are clerk number {i}. " + SYSTEM) for i in range(10)]
    alone = [ask(client, model, messages, cache_prompt=False) for messages in prompts]
    for _ in range(2):
        shared = in_parallel([lambda m=m: ask(client, model, m) for m in prompts])
        for (a, _, _), (b, _, usage) in zip(alone, shared):
            assert_same_up_to_a_near_tie(a, b)
    assert stack.worker_metric("stria_worker_prefix_evictions_total") > 0
    assert stack.worker_metric("stria_worker_preemptions_total") == 0
    wait_for("no pages in use", lambda: stack.worker_metric("stria_worker_pool_used_bytes") == 0)
    idle = stack.worker_metric("stria_worker_prefix_idle_bytes")
    assert 0 < idle <= 48 << 20


def test_off_means_off(make_stack):
    stack = make_stack(worker_flags=("--prefix-cache", "off"))
    client, model = client_of(stack), stack.model
    for _ in range(2):
        assert cached(ask(client, model, chat(QUESTIONS[0]), tokens=4)[2]) == 0
    assert stack.worker_metric("stria_worker_prefix_entries") == 0
    wait_for("no pages in use", lambda: stack.worker_metric("stria_worker_pool_used_bytes") == 0)


def test_a_chat_goes_on_where_its_pages_are(make_stack):
    stack = make_stack(workers=2, worker_flags=("--threads", "1"))
    client, model = client_of(stack), stack.model
    # Two begin at once, so each worker gets one; later turns come alone, when both workers are equally empty.
    talks = [chat(QUESTIONS[i], f"You are clerk number {i}. " + SYSTEM) for i in range(2)]
    answers = in_parallel([lambda t=t: ask(client, model, t, tokens=100) for t in talks])
    prompts = {name: stack.worker_metric("stria_worker_tokens_total", worker=name, kind="prompt") for name in stack.worker_ports}
    if 0 in prompts.values():
        pytest.fail(f"both began on one worker: {prompts}")
    for talk, (_, text, first) in zip(talks, answers):
        messages = talk + [{"role": "assistant", "content": text}, {"role": "user", "content": "Go on."}]
        assert cached(ask(client, model, messages)[2]) >= first.prompt_tokens // 64 * 64
