"""The quality target on live traffic: shadows measure, the controller moves tau, everything survives a restart."""
import concurrent.futures
import json

from stack import get_json, get_text, metric, wait_for

TEXT = ("Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May. How many clips did she sell altogether? "
        "The lighthouse keeper found a message in a bottle. It said that the treasure lies 12 steps north of the old oak, 7 steps east. ")


def answer(client, model, seed: int, tokens: int = 160):
    return client.completions.create(model=model, prompt=f"Story {seed}. " + TEXT * 6, max_tokens=tokens, temperature=1.0, seed=seed,
                                     logit_bias={"2": -100, "0": -100}).choices[0].text


def serve(client, model, seeds):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda seed: answer(client, model, seed), seeds))


def target(stack) -> dict:
    return json.loads(stack.striactl("target", "-o", "json").stdout)


def test_a_target_moves_tau_and_outlives_a_restart(make_stack):
    from openai import OpenAI

    stack = make_stack(worker_flags=("--shadow-share", "1", "--shadow-sequences", "4", "--prefix-cache", "off"))
    client = OpenAI(base_url=stack.base_url + "/v1", api_key="none", max_retries=0, timeout=300)
    stack.striactl("canary", "rate", "set", "0.2")
    stack.striactl("tau", "set", "0.3")  # narrow pages, a large KL
    assert "no target" in stack.striactl("target").stdout
    serve(client, stack.model, range(4))  # until the first firing pages are FP16, which says nothing

    serve(client, stack.model, range(10, 14))
    measured = wait_for("a measured KL", lambda: target(stack)["models"][0]["measured"])
    assert measured["tokens"] > 0 and measured["kl"] > 0.004, "twice the target below"
    assert [entry["length"] for entry in measured["by_length"]] == sorted({entry["length"] for entry in measured["by_length"]})
    shown = target(stack)
    assert shown["target_kl"] is None and shown["models"][0]["value"] == 0.3 and not shown["models"][0]["moving"]
    assert stack.worker_metric("stria_worker_shadow_scored_tokens_total") >= measured["tokens"]
    assert stack.worker_metric("stria_worker_shadow_kl_nats_total") > 0

    stack.striactl("target", "set", "kl=0.002", "--reason", "what we promised")
    assert json.loads(stack.striactl("history", "-o", "json").stdout)[-1]["changed"] == ["target_kl"]
    revision = get_json(stack.controller_url + "/v1/settings")["revision"]
    assert target(stack)["models"][0]["value"] == 0.3, "it begins where tau is pinned"
    serve(client, stack.model, range(20, 28))
    moved = wait_for("tau below where it was pinned", lambda: next((t for t in [target(stack)] if t["models"][0]["value"] < 0.25), None))
    assert moved["models"][0]["moving"] and moved["pinned"] == 0.3
    wait_for("steps in the history", lambda: len(target(stack)["steps"]) > 2)
    assert get_json(stack.controller_url + "/v1/settings")["revision"] == revision, "steps are no revisions"
    page = get_text(stack.controller_url + "/metrics")
    assert metric(page, "stria_controller_target_kl_nats") == 0.002
    assert metric(page, "stria_controller_tau_in_force") < 0.25 and metric(page, "stria_controller_tau") == 0.3
    assert metric(page, "stria_controller_quality_tokens_total") > 0
    assert "next-token KL of 0.002 nats at most" in stack.striactl("target").stdout

    def value():
        return get_json(stack.controller_url + "/v1/target")["models"][0]["value"]
    wait_for("nothing in flight", lambda: stack.worker_metric("stria_worker_shadow_sequences") == 0)
    before = wait_for("no step under way", lambda: (v := value()) and v == value() and v)
    stack.kill("controller", 15)
    stack.start("controller")
    wait_for("the controller is back", lambda: value())
    assert abs(value() / before - 1) < 1e-9, "a restart goes on where it was"

    stack.striactl("target", "off", "--keep")
    assert abs(float(stack.striactl("tau", "get").stdout) / before - 1) < 1e-5 and target(stack)["target_kl"] is None
    stack.striactl("undo")
    stack.striactl("target", "off")
    assert value() == 0.3, "back to where it is pinned"


def test_shadows_change_no_text_and_give_their_pages_back(make_stack):
    from openai import OpenAI

    texts = []
    for share in ("0", "1"):
        stack = make_stack(worker_flags=("--shadow-share", share, "--prefix-cache", "off"))
        client = OpenAI(base_url=stack.base_url + "/v1", api_key="none", max_retries=0, timeout=300)
        # The same widths at every page of both runs, whenever firings come: INT4, from the first page on.
        for name in ("keys_narrowest", "keys_widest", "values_narrowest", "values_widest"):
            stack.striactl("settings", "set", name, "int4")
        wait_for("settings applied", lambda: stack.worker_metric("stria_worker_tier_bits", layer="0", tensor="keys") == 4)
        texts.append(answer(client, stack.model, 7))
        wait_for("an idle pool", lambda: stack.worker_metric("stria_worker_pool_used_bytes") == 0)
        assert stack.worker_metric("stria_worker_shadow_bytes") == 0
        assert (stack.worker_metric("stria_worker_shadow_scored_tokens_total") > 0) == (share == "1")
        stack.stop()
    assert texts[0] == texts[1]
