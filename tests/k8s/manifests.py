"""Renders the manifests, and looks for what is wrong with them: every check gives a list of complaints, empty when all is well."""
import functools
import pathlib
import re
import subprocess

import jsonschema
import kubernetes_validate
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
KUBERNETES = "1.33"
SCHEMAS = ROOT / "third_party/schemas"


@functools.cache
def render(folder: str) -> list[dict]:
    done = subprocess.run(["kubectl", "kustomize", str(ROOT / "k8s" / folder)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def name_of(document: dict) -> str:
    return f"{document['kind']}/{document['metadata']['name']}"


def _strict(schema: dict) -> dict:
    """A CRD's schema as JSON Schema that refuses what it does not name, as the API server does with strict field validation."""
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    result = {key: value for key, value in schema.items() if not key.startswith("x-") and key not in ("default", "format", "description")}
    if "properties" in schema:
        result["properties"] = {name: _strict(part) for name, part in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            result["additionalProperties"] = False
    elif isinstance(schema.get("additionalProperties"), dict):
        result["additionalProperties"] = _strict(schema["additionalProperties"])
    if "items" in schema:
        result["items"] = _strict(schema["items"])
    return result


@functools.cache
def custom_schemas() -> dict[tuple[str, str], dict]:
    result = {}
    for path in SCHEMAS.glob("*.yaml"):
        definition = yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["spec"]
        for version in definition["versions"]:
            schema = _strict(version["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = {"type": "object"}
            result[f"{definition['group']}/{version['name']}", definition["names"]["kind"]] = schema
    return result


def schema_complaints(document: dict) -> list[str]:
    schema = custom_schemas().get((document["apiVersion"], document["kind"]))
    if schema is not None:
        return [f"{name_of(document)}: {error.json_path}: {error.message}" for error in jsonschema.Draft202012Validator(schema).iter_errors(document)]
    try:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
    except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
        return [f"{name_of(document)}: {error.message}"]
    return []


def pod_templates(documents: list[dict]) -> dict[str, dict]:
    """The pod templates by the name of what makes them."""
    result = {}
    for document in documents:
        if document["kind"] in ("Deployment", "StatefulSet"):
            result[name_of(document)] = document["spec"]["template"]
        elif document["kind"] == "LeaderWorkerSet":
            result[name_of(document)] = document["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    return result


def containers(documents: list[dict]) -> list[dict]:
    return [container for template in pod_templates(documents).values() for container in template["spec"]["containers"]]


def flag(container: dict, name: str) -> str | None:
    return next((arg.partition("=")[2] for arg in container["args"] if arg.partition("=")[0] == name), None)


# Which flag says where a port listens.
PORT_FLAGS = {("scheduler", "http"): "--http-port", ("scheduler", "sequences"): "--workers-port",
              ("controller", "http"): "--http-port", ("controller", "telemetry"): "--telemetry-port", ("controller", "tiers"): "--tiers-port",
              ("worker", "http"): "--http-port"}


def binary_complaints(container: dict, helps: dict[str, str]) -> list[str]:
    """Flags, environment and ports against what `--help` of the binary says."""
    name = container["name"]
    known = helps[name]
    result = []
    for arg in container["args"]:
        if not re.search(rf"(^|[ ,]){re.escape(arg.partition('=')[0])}\b", known, re.MULTILINE):
            result.append(f"{name}: no flag {arg}")
    declared = [variable["name"] for variable in container.get("env", [])]
    for variable in declared:
        if variable.startswith("STRIA_") and not re.search(rf"\b{variable}\b", known):
            result.append(f"{name}: no variable {variable}")
    for used in re.findall(r"\$\((\w+)\)", " ".join(container["args"])):
        if used not in declared:
            result.append(f"{name}: $({used}) is not set")
    for port in container["ports"]:
        at = PORT_FLAGS.get((name, port["name"]))
        default = at and re.search(rf"{at} \w+=(\d+)\b", known)
        listens = at and (flag(container, at) or default and default.group(1))
        if listens != str(port["containerPort"]):
            result.append(f"{name}: port {port['name']} is {port['containerPort']}, the binary listens on {listens}")
    return result


def probes(container: dict) -> dict[str, str]:
    """Probe → path. All three must be there, on the HTTP port."""
    result = {}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        get = container[probe]["httpGet"]
        assert get["port"] == "http", (container["name"], probe)
        result[probe] = get["path"]
    return result


def _pods_of(selector: dict, documents: list[dict]) -> list[dict]:
    return [t for t in pod_templates(documents).values() if selector.items() <= t["metadata"]["labels"].items()]


def _ports(template: dict) -> set:
    return {value for container in template["spec"]["containers"] for port in container["ports"] for value in (port["name"], port["containerPort"])}


def wiring_complaints(documents: list[dict]) -> list[str]:
    """Selectors select pods, ports lead to ports, and the addresses that workers dial are Services."""
    result = []
    services = {d["metadata"]["name"]: d for d in documents if d["kind"] == "Service"}
    for service in services.values():
        pods = _pods_of(service["spec"]["selector"], documents)
        if not pods:
            result.append(f"{name_of(service)} selects nothing")
        result += [f"{name_of(service)}: no port {port['targetPort']}" for port in service["spec"]["ports"] for pod in pods if port["targetPort"] not in _ports(pod)]
    for document in documents:
        spec = document.get("spec", {})
        if document["kind"] == "PodDisruptionBudget" and not _pods_of(spec["selector"]["matchLabels"], documents):
            result.append(f"{name_of(document)} selects nothing")
        if document["kind"] == "InferencePool":
            pods = _pods_of(spec["selector"]["matchLabels"], documents)
            result += [f"{name_of(document)}: no port {port}" for port in spec["targetPorts"] if not any(port["number"] in _ports(pod) for pod in pods)]
        if document["kind"] == "NetworkPolicy":
            own = _pods_of(spec["podSelector"].get("matchLabels", {}), documents)
            if not own:
                result.append(f"{name_of(document)} selects nothing")
            rules = [(rule, own) for rule in spec.get("ingress", [])]
            for rule in spec.get("egress", []):
                peers = [pod for to in rule["to"] if "podSelector" in to for pod in _pods_of(to["podSelector"]["matchLabels"], documents)]
                if peers:
                    rules.append((rule, peers))
            result += [f"{name_of(document)}: no port {port['port']}" for rule, pods in rules for port in rule.get("ports", [])
                       if not all(port["port"] in _ports(pod) for pod in pods)]
        if document["kind"] in ("HorizontalPodAutoscaler", "ScaledObject"):
            target = spec["scaleTargetRef"]
            if not any((d["apiVersion"], d["kind"], d["metadata"]["name"]) == (target["apiVersion"], target["kind"], target["name"]) for d in documents):
                result.append(f"{name_of(document)}: no {target['kind']} {target['name']}")
    for container in containers(documents):
        for host, port in re.findall(r"tcp://([a-z-]+):(\d+)", " ".join(container["args"])):
            if host not in services or int(port) not in {p["port"] for p in services[host]["spec"]["ports"]}:
                result.append(f"{container['name']}: nothing at {host}:{port}")
    return result


def lockdown_complaints(template: dict) -> list[str]:
    """Not root, nothing to write on, nothing to gain, and time to drain."""
    result = []
    pod = template["spec"]
    if not pod["securityContext"].get("runAsNonRoot") or not pod["securityContext"].get("runAsUser"):
        result.append("runs as root")
    if pod.get("automountServiceAccountToken") is not False:
        result.append("has the API's token")
    for container in pod["containers"]:
        context = container.get("securityContext", {})
        if not context.get("readOnlyRootFilesystem") or context.get("allowPrivilegeEscalation") is not False or context.get("capabilities") != {"drop": ["ALL"]}:
            result.append(f"{container['name']}: securityContext {context}")
        if "memory" not in container["resources"]["limits"]:
            result.append(f"{container['name']}: no memory limit")
        stop = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["sleep", "0"])
        drain = float(flag(container, "--drain-seconds") or 0)
        if pod["terminationGracePeriodSeconds"] < float(stop[-1]) + drain + 10:
            result.append(f"{container['name']}: killed while it drains")
    return result


METRIC = re.compile(r"\bstria_\w+")


def metrics_used(document: dict) -> set[str]:
    return set(METRIC.findall(yaml.safe_dump(document))) if document["kind"] in ("PrometheusRule", "HorizontalPodAutoscaler", "ScaledObject") else set()


def metric_complaints(document: dict, known: set[str]) -> list[str]:
    bare = {re.sub(r"_(bucket|sum|count)$", "", name) for name in known} | known
    return [f"{name_of(document)}: no metric {name}" for name in sorted(metrics_used(document)) if re.sub(r"_(bucket|sum|count)$", "", name) not in bare]
