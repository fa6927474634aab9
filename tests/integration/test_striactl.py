"""Every striactl command against running processes: one stack for all, put back as it was after each test."""
import json
import os
import re
import subprocess

import pytest
import yaml
from stack import BIN, Stack, free_ports, get_json, wait_for

STRIACTL = str(BIN / "ctl/striactl")


@pytest.fixture(autouse=True)
def as_before(request):
    """Puts the settings back, so that no test sees another's."""
    if "stack" not in request.fixturenames:
        yield
        return
    stack = request.getfixturevalue("stack")
    before = stack.striactl("export").stdout
    yield
    subprocess.run([STRIACTL, "--controller", stack.controller_url, "apply", "-f", "-"], input=before, text=True, check=True, timeout=30,
                   capture_output=True)


def settings(stack) -> dict:
    return get_json(stack.controller_url + "/v1/settings")["settings"]


def newest(stack) -> dict:
    return json.loads(stack.striactl("history", "-o", "json", "--limit", "1").stdout)[0]


def refused(stack, code: int, *args: str) -> str:
    """Runs a command that must fail with one clear line; returns the line."""
    result = stack.striactl(*args, check=False)
    assert result.returncode == code, (args, result.stdout, result.stderr)
    assert result.stderr.startswith("striactl: ") and result.stderr.count("\n") == 1, result.stderr
    assert result.stdout == ""
    return result.stderr


def test_status_shows_each_worker_and_its_epochs(stack):
    result = wait_for("a synced fleet", lambda: (r := stack.striactl("status", check=False)).returncode == 0 and r)
    assert "SYNCED" in result.stdout and "\033" not in result.stdout
    status = json.loads(stack.striactl("status", "-o", "json").stdout)
    worker = status["workers"][0]
    assert worker["state"] == "SYNCED" and worker["epoch_applied"] == worker["epoch_sent"] > 0
    assert yaml.safe_load(stack.striactl("status", "-o", "yaml").stdout)["workers"][0]["worker"] == worker["worker"]


def test_tiers(stack):
    assert len(json.loads(stack.striactl("tiers", "-o", "json").stdout)["layers"]) == 30
    assert "LAYER" in stack.striactl("tiers", "--model", stack.model).stdout
    assert "no model is called 'none'" in refused(stack, 2, "tiers", "--model", "none")


def test_tau_get_set_plan(stack):
    before = float(stack.striactl("tau", "get").stdout)
    assert "would be revision" in stack.striactl("tau", "plan", "0.05").stdout
    assert settings(stack)["tau"] == before, "a plan changes nothing"
    stack.striactl("tau", "set", "0.05", "--reason", "a test", "--who", "ada")
    assert stack.striactl("tau", "get").stdout == "0.05\n"
    change = newest(stack)
    assert (change["who"], change["reason"], change["before"]["tau"], change["after"]["tau"]) == ("ada", "a test", before, 0.05)
    assert "tau = -1" in refused(stack, 2, "tau", "set", "--", "-1")
    assert 'tau = "much"' in refused(stack, 2, "tau", "set", "much")


def test_target(stack):
    assert "no target; tau stays at 0.022" in stack.striactl("target").stdout
    assert stack.striactl("target", "show").stdout == stack.striactl("target").stdout
    assert "would be revision" in stack.striactl("target", "set", "kl=0.005", "--dry-run").stdout
    assert settings(stack)["target_kl"] == 0
    stack.striactl("target", "set", "kl=0.005", "--reason", "what we promised")
    assert newest(stack)["changed"] == ["target_kl"] and settings(stack)["target_kl"] == 0.005
    shown = json.loads(stack.striactl("target", "-o", "json").stdout)
    assert (shown["target_kl"], shown["moves"], shown["pinned"]) == (0.005, "tau", 0.022)
    assert shown["lowest"] < 0.022 < shown["highest"] and len(shown["models"]) == 1
    assert yaml.safe_load(stack.striactl("target", "-o", "yaml").stdout)["target_kl"] == 0.005
    stack.striactl("target", "off", "--keep")
    assert settings(stack)["target_kl"] == 0 and settings(stack)["tau"] == 0.022, "nothing was measured, nothing moved"
    for bad in ("0.005", "kl=much", "kl=0", "kl=-1", "kl", "ppl=3"):
        assert bad in refused(stack, 2, "target", "set", "--", bad)


def test_canary_rate(stack):
    stack.striactl("canary", "rate", "set", "1/32")
    assert stack.striactl("canary", "rate", "get").stdout == "0.03125\n"
    wait_for("the worker has it", lambda: stack.worker_metric("stria_worker_canary_rate") == 0.03125)


def test_settings_by_name(stack):
    assert "reference_length" in stack.striactl("settings", "show").stdout
    assert stack.striactl("settings", "get", "alpha").stdout == "0.04\n"
    for name, value in (("alpha", "0.2"), ("reference_length", "8192"), ("keys_widest", "int8")):
        stack.striactl("settings", "set", name, value)
        assert stack.striactl("settings", "get", name).stdout == value + "\n"
    for name in json.loads(stack.striactl("settings", "show", "-o", "json").stdout)["settings"]:
        stack.striactl("settings", "get", name)
    assert "no setting is called 'taw'" in refused(stack, 2, "settings", "get", "taw")
    assert "taw" in refused(stack, 2, "settings", "set", "taw", "1")
    for no_width in ("int3", "1", "8", "true"):
        assert "must be one of int2 int4 int8 fp16" in refused(stack, 2, "settings", "set", "keys_widest", no_width)


def test_pin_and_unpin(stack):
    stack.striactl("pin", "3", "int8", "--reason", "fragile")
    stack.striactl("pin", "4", "int8", "int4")
    assert settings(stack)["pins"] == {"3": {"keys": "int8", "values": "int8"}, "4": {"keys": "int8", "values": "int4"}}
    assert newest(stack)["changed"] == ["pins.4"]
    assert "pins.4.keys" in stack.striactl("history").stdout
    stack.striactl("unpin", "3", "4")
    assert settings(stack)["pins"] == {}
    refused(stack, 2, "pin", "3", "int5")
    refused(stack, 2, "pin", "x", "int8")
    refused(stack, 2, "pin", "99999", "int8")


def test_plan_and_dry_run_change_nothing(stack, tmp_path):
    before = get_json(stack.controller_url + "/v1/settings")
    file = tmp_path / "settings.yaml"
    file.write_text("tau: 0.5\npins:\n  2: {keys: fp16}\n")
    by_name = json.loads(stack.striactl("plan", "tau=0.5", "alpha=0.3", "-o", "json").stdout)
    assert by_name["dry_run"] and by_name["changed"] == ["tau", "alpha"] and by_name["plan"]["models"][0]["layers"] is not None
    assert "pins.2.keys - -> fp16" in stack.striactl("plan", "-f", str(file)).stdout
    for command in (["tau", "set", "0.5"], ["pin", "1", "int4"], ["freeze"], ["recommend", "on"], ["apply", "-f", str(file)]):
        assert "would be revision" in stack.striactl(*command, "--dry-run").stdout, command
    assert get_json(stack.controller_url + "/v1/settings") == before
    refused(stack, 2, "plan", "tau")
    refused(stack, 2, "plan", "tau=-3")


def test_diff_has_diffs_exit_codes(stack, tmp_path):
    exported = tmp_path / "exported.yaml"
    exported.write_text(stack.striactl("export").stdout)
    same = stack.striactl("diff", "-f", str(exported), check=False)
    assert (same.returncode, same.stdout) == (0, "")
    stack.striactl("tau", "set", "0.06")
    differs = stack.striactl("diff", "-f", str(exported), check=False)
    assert differs.returncode == 1 and "tau 0.06 -> 0.022" in differs.stdout
    revision = newest(stack)["revision"]
    stack.striactl("tau", "set", "0.07")
    between = stack.striactl("diff", str(revision), str(revision + 1), "-o", "json", check=False)
    assert between.returncode == 1
    assert json.loads(between.stdout) == [{"setting": "tau", "from": 0.06, "to": 0.07}]
    assert stack.striactl("diff", str(revision), check=False).returncode == 1
    assert stack.striactl("diff", str(revision + 1), check=False).returncode == 0
    stack.striactl("diff", check=False)
    assert "there is no revision 99999" in refused(stack, 2, "diff", "99999")
    broken = tmp_path / "broken.yaml"
    broken.write_text("tau: [")
    assert str(broken) in refused(stack, 2, "diff", "-f", str(broken))
    assert "cannot read" in refused(stack, 2, "diff", "-f", str(tmp_path / "none"))


def test_export_and_apply_with_compare_and_swap(stack, tmp_path):
    stack.striactl("pin", "7", "int8")
    exported = json.loads(stack.striactl("export", "-o", "json").stdout)
    assert exported["settings"] == settings(stack)
    assert yaml.safe_load(stack.striactl("export").stdout) == exported
    wanted = tmp_path / "wanted.yaml"
    wanted.write_text("settings:\n  alpha: 0.15\n  pins:\n    \"8\": {keys: int4, values: [int2, int8]}\n")
    revision = exported["revision"]
    assert str(revision) in refused(stack, 4, "apply", "-f", str(wanted), "--check-rev", str(revision - 1))
    stack.striactl("apply", "-f", str(wanted), "--check-rev", str(revision), "--reason", "from a file")
    now = settings(stack)
    assert now["alpha"] == 0.15 and now["tau"] == exported["settings"]["tau"], "what the file does not name stays"
    assert now["pins"] == {"8": {"keys": "int4", "values": ["int2", "int8"]}}, "pins are what the file says"
    assert newest(stack)["reason"] == "from a file"
    assert "nothing to change" in stack.striactl("apply", "-f", str(wanted)).stdout
    wanted.write_text("alpha: 7\n")
    assert "alpha = 7" in refused(stack, 2, "apply", "-f", str(wanted))


def test_history_and_undo(stack):
    stack.striactl("tau", "set", "0.03")
    stack.striactl("settings", "set", "alpha", "0.4")
    listed = json.loads(stack.striactl("history", "-o", "json").stdout)
    assert [change["revision"] for change in listed] == list(range(1, len(listed) + 1))
    assert yaml.safe_load(stack.striactl("history", "-o", "yaml").stdout)[-1]["after"]["alpha"] == 0.4
    stack.striactl("undo", str(listed[-2]["revision"]), "--reason", "was wrong")
    assert settings(stack)["tau"] == 0.022 and settings(stack)["alpha"] == 0.4, "later changes of other settings stay"
    assert newest(stack)["reason"] == "was wrong"
    stack.striactl("undo")
    assert settings(stack)["tau"] == 0.03, "undoing the undo"
    assert newest(stack)["reason"] == f"undo of revision {newest(stack)['revision'] - 1}"
    assert "there is no revision 99999" in refused(stack, 2, "undo", "99999")


def test_freeze_and_thaw(stack):
    stack.striactl("freeze", "--reason", "measuring")
    wait_for("the worker holds", lambda: stack.worker_metric("stria_worker_tiers_frozen") == 1)
    assert "FROZEN" in stack.striactl("status", check=False).stdout
    stack.striactl("thaw")
    wait_for("the worker moves", lambda: stack.worker_metric("stria_worker_tiers_frozen") == 0)


def test_recommend(stack):
    stack.striactl("recommend", "on")
    assert settings(stack)["recommend_only"] is True
    stack.striactl("recommend", "off")
    assert settings(stack)["recommend_only"] is False


def test_flips(stack):
    assert isinstance(json.loads(stack.striactl("flips", "-o", "json").stdout), list)
    assert stack.striactl("flips", "--limit", "3").stdout


def test_watch_tells_the_past_and_the_present(stack, tmp_path):
    first = newest(stack)["revision"]
    with open(tmp_path / "watch", "w") as out:
        watch = subprocess.Popen([STRIACTL, "--controller", stack.controller_url, "watch", "--from", str(first), "-o", "json"], stdout=out)
    try:
        def events():
            lines = (tmp_path / "watch").read_text().splitlines()
            return [json.loads(line) for line in lines]
        wait_for("the past", lambda: any(e["event"] == "revision" and e["data"]["revision"] == first for e in events()))
        stack.striactl("tau", "set", "0.044")
        wait_for("the present", lambda: any(e["event"] == "revision" and e["data"]["after"]["tau"] == 0.044 for e in events()))
        wait_for("the workers", lambda: any(e["event"] == "worker" and e["data"]["state"] == "SYNCED" for e in events()))
    finally:
        watch.kill()
        watch.wait()


def test_a_controller_that_is_away_has_its_own_exit_code():
    (port,) = free_ports(1)
    for command in (["status"], ["tau", "set", "0.1"], ["watch"], ["export"], ["diff"]):
        result = subprocess.run([STRIACTL, "--controller", f"http://127.0.0.1:{port}", *command], capture_output=True, text=True, timeout=30)
        assert result.returncode == 3 and result.stderr.count("\n") == 1 and f"127.0.0.1:{port}" in result.stderr, result


def test_every_command_has_a_test():
    """The tree that completion knows is the tree that main() parses."""
    script = subprocess.run([STRIACTL, "completion", "bash"], capture_output=True, text=True, check=True).stdout
    commands = re.search(r'"striactl:0"\) COMPREPLY=\(\$\(compgen -W "([^"]*)"', script).group(1).split()
    assert set(commands) == {"status", "tiers", "tau", "target", "canary", "settings", "pin", "unpin", "freeze", "thaw", "recommend", "export", "apply", "plan",
                             "diff", "history", "undo", "flips", "watch", "completion", "man", "keys"}


# What is typed (the cursor at its end) → what must be among the completions, and what must not.
COMPLETIONS = [
    ("striactl ", {"status", "tau", "recommend"}, {"get", "--output"}),
    ("striactl ta", {"tau"}, {"tiers"}),
    ("striactl tau ", {"get", "set", "plan"}, {"status"}),
    ("striactl target ", {"show", "set", "off"}, {"get"}),
    ("striactl target off --", {"--keep", "--reason"}, {"--limit"}),
    ("striactl -o json canary ", {"rate"}, {"get"}),
    ("striactl canary rate s", {"set"}, {"get"}),
    ("striactl -o ", {"table", "json", "yaml"}, {"status"}),
    ("striactl tau set --", {"--reason", "--check-rev", "--dry-run", "--output"}, {"--limit"}),
    ("striactl settings get ", {"alpha", "tau"}, {"int4"}),
    ("striactl pin 3 ", {"int2", "fp16"}, {"alpha"}),
    ("striactl recommend ", {"on", "off"}, set()),
    ("striactl completion ", {"bash", "fish", "zsh"}, set()),
]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_in_a_real_shell(shell, tmp_path):
    script = tmp_path / "completion"
    script.write_text(subprocess.run([STRIACTL, "completion", shell], capture_output=True, text=True, check=True).stdout)
    for typed, wanted, unwanted in COMPLETIONS:
        words = typed.split()
        if typed.endswith(" "):
            words.append("")
        quoted = " ".join(f"'{word}'" for word in words)
        if shell == "bash":
            code = f'source {script}; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _striactl; printf "%s\\n" "${{COMPREPLY[@]}}"'
        elif shell == "zsh":  # compadd only works inside zsh's line editor, so the words are caught on their way there
            code = (f'compdef() {{ :; }}; compadd() {{ shift; for w in "$@"; do case $w in "{words[-1]}"*) print -r -- $w;; esac; done; }}; '
                    f'source {script}; words=({quoted}); CURRENT={len(words)}; _striactl')
        else:
            code = f"source {script}; complete -C '{typed}'"
        flags = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
        result = subprocess.run([shell, *flags, "-c", code], capture_output=True, text=True, timeout=30,
                                env={**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)})
        assert result.stderr == "", (typed, result.stderr)
        offered = {line.split("\t")[0] for line in result.stdout.split("\n")}
        assert wanted <= offered and not unwanted & offered, (shell, typed, offered)


def test_the_manual_has_every_command():
    manual = subprocess.run([STRIACTL, "man"], capture_output=True, text=True, check=True).stdout
    plain = manual.replace("\\-", "-")
    for command in ("status", "tau plan VALUE", "canary rate set VALUE", "target set TARGET", "target off", "settings set NAME VALUE", "pin LAYER KEYS", "recommend on", "apply", "undo",
                    "diff", "watch", "completion SHELL"):
        assert f".SS {command}" in plain, command
    for option in ("--reason", "--check-rev", "--token-file", "--dry-run"):
        assert option in plain
    for code in range(7):
        assert f"\\fB{code}\\fR" in manual


VIEWER, OPERATOR = "viewer-0123456789abcdef", "operator-0123456789abcdef"


def test_roles(tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text(f"# who may do what\nviewer bob {VIEWER}\noperator ada {OPERATOR}\n")
    stack = Stack(tmp_path)
    with open(tmp_path / "controller.log", "ab") as log:
        controller = subprocess.Popen([*stack.command("controller"), "--tokens-file", str(tokens)], stdout=log, stderr=log)
    try:
        wait_for("the controller", lambda: get_json(stack.controller_url + "/ready"))

        def run(token: str | None, *args: str) -> subprocess.CompletedProcess:
            env = {k: v for k, v in os.environ.items() if k != "STRIA_TOKEN"} | ({"STRIA_TOKEN": token} if token else {})
            return subprocess.run([STRIACTL, "--controller", stack.controller_url, *args], capture_output=True, text=True, timeout=30, env=env)

        for token in (None, "wrong-0123456789abcdef", VIEWER[:-1]):
            for command in (["tau", "get"], ["tau", "set", "0.1"], ["watch"]):
                result = run(token, *command)
                assert result.returncode == 6 and result.stderr.count("\n") == 1, (token, command, result)
        assert run(VIEWER, "tau", "get").stdout == "0.022\n"
        assert run(VIEWER, "plan", "tau=0.1").returncode == 0
        for command in (["tau", "set", "0.1"], ["undo"], ["freeze"], ["pin", "1", "int4"]):
            result = run(VIEWER, *command)
            assert result.returncode == 6 and "needs an operator" in result.stderr, (command, result)
        file = tmp_path / "token"
        file.write_text(OPERATOR + "\n")
        assert run(None, "--token-file", str(file), "tau", "set", "0.1", "--who", "eve").returncode == 0
        history = json.loads(run(VIEWER, "history", "-o", "json").stdout)
        assert [change["who"] for change in history] == ["ada (eve)"], "the token's owner is the author"
        config = json.loads(subprocess.run(["curl", "-s", "-H", f"Authorization: Bearer {VIEWER}", stack.controller_url + "/config"],
                                           capture_output=True, text=True, check=True).stdout)
        statuses = [subprocess.run(["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", stack.controller_url + path],
                                   capture_output=True, text=True, check=True).stdout
                    for path in ("/health", "/ready", "/metrics", "/", "/page/main.js", "/config", "/openapi.json", "/v1/status", "/v1/cache",
                                 "/page%2F..%2Fv1/status", "/nowhere")]
        assert statuses == ["200"] * 5 + ["401"] * 4 + ["404", "401"], "the page's files hold no data, and no path hides behind theirs"
        command_line = (f"/proc/{controller.pid}/cmdline")
        seen = stack.log("controller") + json.dumps(config) + open(command_line).read() + json.dumps(history)
        assert VIEWER not in seen and OPERATOR not in seen, "tokens are told to nobody"
    finally:
        controller.kill()
        controller.wait()


def test_a_damaged_state_file_is_refused_then_kept_aside(tmp_path):
    stack = Stack(tmp_path)
    state = tmp_path / "controller.db"
    state.write_bytes(b"not a database, but something that was one" * 200)
    first = subprocess.run(stack.command("controller"), capture_output=True, text=True, timeout=30)
    assert first.returncode == 1 and "--put-damaged-state-aside" in first.stderr and str(state) in first.stderr
    assert state.read_bytes().startswith(b"not a database")
    controller = subprocess.Popen([*stack.command("controller"), "--put-damaged-state-aside"], stderr=subprocess.DEVNULL)
    try:
        status = wait_for("the controller", lambda: get_json(stack.controller_url + "/v1/status"))
        assert str(state) in status["state_file"]["damage"]
        (aside,) = tmp_path.glob("controller.db.damaged-*")
        assert aside.read_bytes().startswith(b"not a database")
    finally:
        controller.kill()
        controller.wait()
