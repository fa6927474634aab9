"""Who may call a worker, and where anything listens."""
import json
import subprocess
import urllib.error
import urllib.request

import pytest
from stack import Stack, get_text


def test_a_worker_shows_its_inside_to_token_holders_only(make_stack, tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text("viewer grafana fedcba9876543210\n")
    stack = make_stack(worker_flags=("--tokens-file", str(tokens)))
    for path in ("/health", "/ready", "/metrics"):
        assert get_text(stack.worker_http + path)
    for path in ("/config", "/debug/sequences", "/nothing"):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            get_text(stack.worker_http + path)
    asked = urllib.request.Request(stack.worker_http + "/config", headers={"Authorization": "Bearer fedcba9876543210"})
    with urllib.request.urlopen(asked, timeout=30) as reply:
        text = reply.read().decode()
    assert json.loads(text)["tokens-file"] == "***" and "fedcba" not in text + stack.log("worker")


@pytest.mark.parametrize("name", ["scheduler", "controller", "worker"])
def test_no_http_off_loopback_without_secrets(tmp_path, name):
    done = subprocess.run([*Stack(tmp_path).command(name), "--bind", "0.0.0.0"], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "--bind 0.0.0.0 is off loopback: needs --" in done.stderr + done.stdout
