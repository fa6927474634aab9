"""Rules and dashboard against a real Prometheus that scrapes running processes."""
import json
import math
import pathlib
import re
import subprocess
import threading
import urllib.parse

import openai
import pytest
from stack import ROOT, free_ports, get_json, get_text, wait_for
from test_closed_loop import PROMPTS, chat

MONITORING = ROOT / "monitoring"
# Grafana fills these in; the interval is short because the test scrapes once a second.
VARIABLES = {"$__rate_interval": "15s", "$model": ".*"}


def dashboard_queries() -> list[tuple[str, str]]:
    """(panel's title, PromQL) of every query of the dashboard."""
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    return [(panel["title"], target["expr"]) for panel in dashboard["panels"] for target in panel.get("targets", [])]


def promtool(*args: str) -> subprocess.CompletedProcess:
    return subprocess.run(["promtool", *args], cwd=MONITORING, capture_output=True, text=True, timeout=180)


def test_promtool_accepts_rules_and_their_tests():
    for command in (["check", "rules", "rules.yml"], ["check", "config", "prometheus.yml"], ["test", "rules", "rules_test.yml"]):
        result = promtool(*command)
        assert result.returncode == 0, result.stdout + result.stderr


def test_every_alert_and_recording_has_a_test():
    rules = re.findall(r"(?:alert|record): (\S+)", (MONITORING / "rules.yml").read_text())
    tests = (MONITORING / "rules_test.yml").read_text()
    used_inside = {"stria:layer_flips:increase15m", "stria:telemetry_lost:ratio5m", "stria:inter_token_seconds:p99_5m"}
    assert [name for name in rules if name not in tests and name not in used_inside] == []


class Prometheus:
    def __init__(self, folder: pathlib.Path, stack):
        (self.port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        jobs = {"stria-controller": stack.controller_port, "stria-scheduler": stack.api_port, "stria-worker": stack.worker_port}
        config = folder / "prometheus.yml"
        config.write_text(json.dumps({  # JSON is YAML
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(MONITORING / "rules.yml")],
            "scrape_configs": [{"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]} for job, port in jobs.items()],
        }))
        self.log = open(folder / "prometheus.log", "wb")
        self.process = subprocess.Popen(
            ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}", "--storage.tsdb.retention.size=64MB",
             f"--web.listen-address=127.0.0.1:{self.port}"], stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)

    def query(self, expression: str) -> list[float]:
        answer = get_json(f"{self.url}/api/v1/query?query={urllib.parse.quote(expression)}")
        assert answer["status"] == "success", answer
        return [float(sample["value"][1]) for sample in answer["data"]["result"]]

    def stop(self) -> None:
        self.process.kill()
        self.process.wait(30)
        self.log.close()


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory, stack):
    server = Prometheus(tmp_path_factory.mktemp("prometheus"), stack)
    try:
        wait_for("Prometheus is ready", lambda: get_text(server.url + "/-/ready"))
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def traffic(stack, client):
    """Chats without end while the tests run, with a canary that fires often."""
    stack.striactl("canary", "rate", "set", "0.2")
    stop = threading.Event()

    def run():
        for i in range(10_000):
            if stop.is_set():
                return
            try:
                chat(client, stack.model, PROMPTS[i % len(PROMPTS)], stream=True, max_tokens=40)
            except openai.APIError:
                pass  # on a starved machine a worker may count as lost; the next chat finds it again

    thread = threading.Thread(target=run)
    thread.start()
    yield
    stop.set()
    thread.join()


def test_every_query_of_the_dashboard_returns_data(prometheus, traffic):
    queries = dashboard_queries()
    assert len(queries) > 20
    for title, expression in queries:
        for name, value in VARIABLES.items():
            expression = expression.replace(name, value)
        assert "$" not in expression, f"{title}: an unknown variable in {expression}"
        wait_for(f"{title}: {expression}", lambda: any(math.isfinite(value) for value in prometheus.query(expression)), 60)


def test_rules_load_and_are_evaluated_without_errors(prometheus, traffic):
    def groups():
        found = get_json(prometheus.url + "/api/v1/rules")["data"]["groups"]
        return found if all(rule["health"] != "unknown" for group in found for rule in group["rules"]) else None

    rules = [rule for group in wait_for("every rule was evaluated", groups) for rule in group["rules"]]
    assert len(rules) == len(re.findall(r"(?:alert|record): ", (MONITORING / "rules.yml").read_text()))
    assert [rule["name"] for rule in rules if rule["health"] != "ok"] == []
    for rule in rules:
        if rule["type"] == "recording":
            wait_for(rule["name"], lambda: prometheus.query(rule["name"]))


def test_every_metric_is_in_the_document(stack, traffic):
    documented = set(re.findall(r"stria_\w+", (ROOT / "docs/metrics.md").read_text()))
    for url in (stack.controller_url, stack.base_url, stack.worker_http):
        served = set(re.findall(r"^# TYPE (stria_\w+) ", get_text(url + "/metrics"), re.MULTILINE))
        assert served and served - documented == set(), url
