"""The manifests against the schemas of what they are, and against the binaries that they start."""
import copy
import re
import subprocess
import urllib.error
import urllib.request

import manifests
import pytest
import yaml
from manifests import ROOT, containers, name_of, render
from stack import BIN, Stack, get_text

OVERLAYS = ["overlays/cpu-dev", "overlays/gpu", "overlays/gpu-tp"]
FOLDERS = ["base", "monitoring", "autoscale/hpa", "autoscale/keda", "gateway", *OVERLAYS]


@pytest.fixture(scope="module")
def rendered() -> dict[str, list[dict]]:
    return {folder: render(folder) for folder in FOLDERS}


@pytest.fixture(scope="module")
def helps() -> dict[str, str]:
    return {name: subprocess.run([str(BIN / name / name), "--help"], capture_output=True, text=True, check=True).stdout
            for name in ("scheduler", "controller", "worker")}


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    stack = Stack(tmp_path_factory.mktemp("stack"), worker_flags=("--threads", "1")).start_all()
    yield {"scheduler": stack.base_url, "controller": stack.controller_url, "worker": stack.worker_http}
    stack.stop()


@pytest.fixture(scope="module")
def metrics(running) -> set[str]:
    """Names that the running processes show, and those of docs/metrics.md, which some show only after an event."""
    live = set(re.findall(r"^# TYPE (\S+)", "\n".join(get_text(url + "/metrics") for url in running.values()), re.MULTILINE))
    documented = set(manifests.METRIC.findall((ROOT / "docs/metrics.md").read_text()))
    assert live <= documented, "not in docs/metrics.md"
    return documented


def answers(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=10) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        return error.code


def complaints(documents, helps, metrics) -> list[str]:
    result = [c for d in documents for c in manifests.schema_complaints(d) + manifests.metric_complaints(d, metrics)]
    result += [c for container in containers(documents) for c in manifests.binary_complaints(container, helps)]
    result += [f"{name}: {c}" for name, template in manifests.pod_templates(documents).items() for c in manifests.lockdown_complaints(template)]
    return result


@pytest.mark.parametrize("folder", FOLDERS)
def test_everything_is_as_its_schema_and_the_binaries_say(folder, rendered, helps, metrics):
    assert complaints(rendered[folder], helps, metrics) == []


@pytest.mark.parametrize("folder", ["base", *OVERLAYS])
def test_selectors_ports_and_addresses_lead_somewhere(folder, rendered):
    assert manifests.wiring_complaints(rendered[folder]) == []


def test_keda_scales_what_is_there(rendered):
    assert manifests.wiring_complaints(rendered["base"] + rendered["autoscale/keda"]) == []


@pytest.mark.parametrize("folder", ["base", *OVERLAYS])
def test_probes_are_answered_and_readiness_is_not_liveness(folder, rendered, running):
    for container in containers(rendered[folder]):
        paths = manifests.probes(container)
        for probe, path in paths.items():
            assert answers(running[container["name"]] + path) == 200, (container["name"], probe, path)
        assert paths["livenessProbe"] != paths["readinessProbe"], container["name"]


def test_liveness_does_not_ask_for_others(rendered, tmp_path):
    """A scheduler without workers is not ready, and yet alive: a restart would not bring workers."""
    stack = Stack(tmp_path)
    stack.start("scheduler")
    try:
        from stack import wait_for
        wait_for("the scheduler", lambda: answers(stack.base_url + "/live") == 200, 30)
        (container,) = [c for c in containers(rendered["base"]) if c["name"] == "scheduler"]
        codes = {probe: answers(stack.base_url + path) for probe, path in manifests.probes(container).items()}
        assert codes == {"startupProbe": 200, "livenessProbe": 200, "readinessProbe": 503}
    finally:
        stack.stop()


def test_rules_are_those_of_monitoring(rendered):
    (rule,) = [d for d in rendered["monitoring"] if d["kind"] == "PrometheusRule"]
    assert rule["spec"] == yaml.safe_load((ROOT / "monitoring/rules.yml").read_text())


def test_groups_run_the_same_worker(rendered):
    """LeaderWorkerSet's pods are the StatefulSet's, but for room and place."""
    def worker(folder):
        (container,) = [c for c in containers(rendered[folder]) if c["name"] == "worker"]
        return container
    single, group = worker("overlays/gpu"), worker("overlays/gpu-tp")
    for part in single.keys() - {"resources", "volumeMounts"}:
        assert single[part] == group[part], part


def test_only_the_throwaway_overlay_is_insecure(rendered):
    for folder in ("base", *OVERLAYS):
        for container in containers(rendered[folder]):
            environment = {variable["name"] for variable in container.get("env", [])}
            insecure = "--insecure" in container["args"]
            assert insecure == (folder == "overlays/cpu-dev") and insecure != ("STRIA_CURVE_KEY" in environment), (folder, container["name"])


def test_secrets_and_the_page_that_makes_them_agree(rendered):
    page = (ROOT / "docs/kubernetes.md").read_text()
    made = {name: set(re.findall(r"--from-file=(\w+)=", line)) for name, line in re.findall(r"create secret generic (\S+)((?:.*\\\n)*.*)", page)}
    used = {}
    for container in containers(rendered["base"]):
        for variable in container["env"]:
            if reference := variable["valueFrom"].get("secretKeyRef"):
                used.setdefault(reference["name"], set()).add(reference["key"])
    assert made == used


def test_metrics_that_the_endpoint_picker_is_told_exist(metrics):
    page = (ROOT / "docs/kubernetes.md").read_text()
    named = set(manifests.METRIC.findall(page))
    assert "stria_scheduler_queue_size" in named and named <= metrics


def edited(documents: list[dict], kind: str, name: str, edit) -> list[dict]:
    result = copy.deepcopy(documents)
    edit(next(d for d in result if name_of(d) == f"{kind}/{name}"))
    assert result != documents
    return result


def pod(document: dict) -> dict:
    return document["spec"]["template"]["spec"]


WRONG = {
    "an unknown field": ("Deployment", "stria-scheduler", lambda d: pod(d).update(containerz=[]), "containerz"),
    "a wrong type": ("Service", "stria-worker", lambda d: d["spec"]["ports"][0].update(port="http"), "http"),
    "an unknown field of a custom kind": ("ServiceMonitor", "stria", lambda d: d["spec"]["endpoints"][0].update(pathh="/"), "pathh"),
    "a missing field of a custom kind": ("InferencePool", "stria", lambda d: d["spec"].pop("targetPorts"), "targetPorts"),
    "a wrong flag": ("StatefulSet", "stria-worker", lambda d: pod(d)["containers"][0]["args"].append("--pool-byte=1"), "--pool-byte"),
    "a wrong variable": ("Deployment", "stria-scheduler", lambda d: pod(d)["containers"][0]["env"][0].update(name="STRIA_CURVE_KEYS"), "STRIA_CURVE_KEYS"),
    "a wrong port": ("Deployment", "stria-controller", lambda d: pod(d)["containers"][0]["ports"][1].update(containerPort=5555), "5555"),
    "an undefined variable in a flag": ("StatefulSet", "stria-worker", lambda d: pod(d)["containers"][0]["env"].pop(0), "POD_NAME"),
    "a wrong metric in a rule": ("PrometheusRule", "stria", lambda d: d["spec"]["groups"][0]["rules"][0].update(expr="stria_controller_tier_bit"),
                                 "stria_controller_tier_bit"),
    "a wrong metric in the autoscaler": ("HorizontalPodAutoscaler", "stria-worker",
                                         lambda d: d["spec"]["metrics"][0]["object"]["metric"].update(name="stria_scheduler_queue_size_total"), "queue_size_total"),
    "a root user": ("Deployment", "stria-controller", lambda d: pod(d)["securityContext"].pop("runAsNonRoot"), "root"),
    "a drain cut short": ("StatefulSet", "stria-worker", lambda d: pod(d).update(terminationGracePeriodSeconds=60), "drains"),
}


@pytest.mark.parametrize("what", WRONG)
def test_the_checks_find(what, rendered, helps, metrics):
    kind, name, edit, sign = WRONG[what]
    found = complaints(edited(rendered["overlays/gpu"], kind, name, edit), helps, metrics)
    assert any(sign in complaint for complaint in found), found


MISWIRED = {
    "a Service without pods": ("Service", "stria-worker", lambda d: d["spec"].update(selector={"app.kubernetes.io/name": "stria-workers"})),
    "a Service's port": ("Service", "stria-controller", lambda d: d["spec"]["ports"][2].update(targetPort="tier")),
    "a policy's port": ("NetworkPolicy", "stria-worker", lambda d: d["spec"]["egress"][1]["ports"][0].update(port=5558)),
    "the address of the scheduler": ("StatefulSet", "stria-worker", lambda d: pod(d)["containers"][0]["args"].append("--scheduler=tcp://stria-scheduler:5555")),
    "the autoscaler's target": ("HorizontalPodAutoscaler", "stria-worker", lambda d: d["spec"]["scaleTargetRef"].update(name="worker")),
}


@pytest.mark.parametrize("what", MISWIRED)
def test_the_wiring_check_finds(what, rendered):
    assert len(manifests.wiring_complaints(edited(rendered["overlays/gpu"], *MISWIRED[what]))) == 1


def test_a_wrong_probe_path_is_not_answered(running):
    for url in running.values():
        assert answers(url + "/healthz") == 404
