"""Mode kaizen with a pack of plans: the ratio is split, the widths are held, the canary guards."""
import json

import pytest
from openai import BadRequestError, OpenAI
from stack import get_json, wait_for

STORY = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again. " * 40


def write_pack(folder, fingerprint: str, plans: list[str], lossless: float) -> None:
    folder.mkdir()
    (folder / "pack.json").write_text(json.dumps({
        "format": "stria-pack", "version": 1, "model": {"fingerprint": fingerprint, "layers": 30},
        "kaizen": {"lossless_ratio": lossless, "plans": [[width] * 30 for width in plans]}, "record": "by hand"}))


def test_kaizen_splits_the_ratio_and_the_canary_widens_what_is_not_pinned(make_stack, tmp_path):
    stack = make_stack()
    (model,) = get_json(stack.controller_url + "/v1/status")["models"]
    write_pack(tmp_path / "pack", model["model"], ["int4", "int2"], lossless=4)
    stack.kill("scheduler")
    stack.scheduler_flags = ("--pack", str(tmp_path / "pack"))
    stack.start("scheduler")
    stack.wait_ready()
    stack.striactl("tau", "set", "1e-9")  # nothing passes: the guard is FP16 once something was measured
    stack.striactl("canary", "rate", "set", "0")
    client = OpenAI(base_url=stack.base_url + "/v1", api_key="none", max_retries=0, timeout=300)

    def ask(**kv):
        return client.completions.create(model=stack.model, prompt=STORY, max_tokens=8, temperature=0, extra_body={"kv": {"mode": "kaizen", **kv}}).usage

    split = ask(ratio=16)
    assert split.kv_plan == "kaizen: 30×int4, keep 0.25" and split.kv_plan_ratio == pytest.approx(16)
    assert split.kv_tokens < split.prompt_tokens * 0.4
    with pytest.raises(BadRequestError, match="made for 4 to 8"):
        ask(ratio=2)
    unmeasured = ask()
    assert unmeasured.kv_plan == "kaizen: 30×int4" and unmeasured.kv_ratio_missed == 0, "no reading yet: nothing is widened"

    stack.striactl("canary", "rate", "set", "1")
    ask(guard="off")
    wait_for("a guard at FP16", lambda: {layer["guard_plain"] for layer in get_json(stack.controller_url + "/v1/tiers")["layers"]} == {"fp16"})
    wait_for("the worker has it", lambda: all(w["state"] == "SYNCED" for w in get_json(stack.controller_url + "/v1/status")["workers"]))
    widened = ask()
    assert widened.kv_payload_bits == 16 and widened.kv_ratio_missed > 0.5, widened
    kept = ask(guard="off")
    assert kept.kv_payload_bits < 7 and not hasattr(kept, "kv_ratio_missed"), kept
    wait_for("all pages are back", lambda: stack.worker_metric("stria_worker_pool_used_bytes") == 0)

    write_pack(tmp_path / "other", "0" * 64, ["int4"], lossless=4)
    stack.kill("scheduler")
    stack.scheduler_flags = ("--pack", str(tmp_path / "other"))
    stack.start("scheduler")
    wait_for("the worker is turned away", lambda: f"the pack is for {'0' * 64}" in stack.log("scheduler"))
