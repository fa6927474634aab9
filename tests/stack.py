"""The three real processes on ports from the kernel, started, killed and restarted at will."""
import json
import os
import pathlib
import signal
import socket
import subprocess
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
BIN = ROOT / "bazel-bin" / "services"
MODEL = pathlib.Path(os.environ.get("STRIA_MODEL", ROOT / ".stria/models/SmolLM2-135M-Instruct.Q4_1.gguf"))


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now. All are held until the last is known, so they differ."""
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def get_json(url: str, timeout: float = 30):
    with urllib.request.urlopen(url, timeout=timeout) as reply:
        return json.load(reply)


def get_text(url: str, timeout: float = 30) -> str:
    with urllib.request.urlopen(url, timeout=timeout) as reply:
        return reply.read().decode()


def metric(text: str, name: str, **labels: str) -> float:
    """Sum of the samples of `name` whose labels include `labels`. ValueError if there is none."""
    values = []
    for line in text.splitlines():
        if line.startswith(name) and line[len(name)] in "{ ":
            if all(f'{key}="{value}"' in line for key, value in labels.items()):
                values.append(float(line.rsplit(" ", 1)[1]))
    if not values:
        raise ValueError(f"no sample of {name} with {labels}")
    return sum(values)


def wait_for(what: str, condition, seconds: float = 60):
    """Polls until `condition()` is truthy and returns that value; errors of a connection count as not yet."""
    deadline = time.monotonic() + seconds
    last = None
    while time.monotonic() < deadline:
        try:
            last = condition()
            if last:
                return last
        except (OSError, ValueError) as error:
            last = error
        time.sleep(0.05)
    raise AssertionError(f"{what}: not after {seconds} s; last seen: {last!r}")


class Stack:
    """Workers are called "worker", "worker1", "worker2", …"""

    def __init__(self, folder: pathlib.Path, worker_flags: tuple[str, ...] = (), scheduler_flags: tuple[str, ...] = (),
                 controller_flags: tuple[str, ...] = (), workers: int = 1):
        self.folder = folder
        (self.api_port, self.controller_port, self.sequences_port, self.telemetry_port, self.tiers_port,
         *worker_ports) = free_ports(5 + workers)
        self.worker_ports = {f"worker{i or ''}": port for i, port in enumerate(worker_ports)}
        self.worker_port = self.worker_ports["worker"]
        self.base_url = f"http://127.0.0.1:{self.api_port}"
        self.controller_url = f"http://127.0.0.1:{self.controller_port}"
        self.worker_http = f"http://127.0.0.1:{self.worker_port}"
        self.worker_flags = worker_flags
        self.scheduler_flags = scheduler_flags
        self.controller_flags = controller_flags
        self.processes: dict[str, subprocess.Popen] = {}

    def command(self, name: str) -> list[str]:
        model = ["--model", str(MODEL)]
        return {
            "controller": [str(BIN / "controller/controller"), "--http-port", str(self.controller_port),
                           "--telemetry-port", str(self.telemetry_port), "--tiers-port", str(self.tiers_port),
                           "--state", str(self.folder / "controller.db"), *self.controller_flags],
            **{worker: [str(BIN / "worker/worker"), *model, "--http-port", str(port),
                        "--scheduler", f"tcp://127.0.0.1:{self.sequences_port}",
                        "--controller-telemetry", f"tcp://127.0.0.1:{self.telemetry_port}",
                        "--controller-tiers", f"tcp://127.0.0.1:{self.tiers_port}", *self.worker_flags]
               for worker, port in self.worker_ports.items()},
            "scheduler": [str(BIN / "scheduler/scheduler"), *model, "--http-port", str(self.api_port),
                          "--workers-port", str(self.sequences_port), *self.scheduler_flags],
        }[name]

    def start(self, name: str) -> None:
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(self.command(name), stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def start_all(self) -> "Stack":
        for name in ("controller", *self.worker_ports, "scheduler"):
            self.start(name)
        self.wait_ready()
        return self

    def wait_ready(self) -> None:
        def check():
            for name, process in self.processes.items():
                assert process.poll() is None, f"{name} ended:\n{self.log(name)[-3000:]}"
            get_text(self.base_url + "/health")
            workers = self.processes.keys() & self.worker_ports.keys()
            if len([w for w in self.status()["workers"] if w["state"] == "serving"]) < len(workers):
                return None
            return all(w["state"] == "SYNCED" for w in get_json(self.controller_url + "/v1/status")["workers"]) or None
        wait_for("stack ready", check, 120)

    def status(self) -> dict:
        """The scheduler's view of its workers."""
        return get_json(self.base_url + "/v1/status")

    def kill(self, name: str, sig: int = signal.SIGKILL) -> int:
        """Sends the signal, waits for the end and returns the exit status."""
        process = self.processes.pop(name)
        process.send_signal(sig)
        return process.wait(60)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def stop(self) -> None:
        for name in list(self.processes):
            self.kill(name)

    def striactl(self, *args: str, check: bool = True) -> subprocess.CompletedProcess:
        return subprocess.run([str(BIN / "ctl/striactl"), "--controller", self.controller_url, *args],
                              capture_output=True, text=True, timeout=30, check=check)

    def worker_metric(self, name: str, worker: str = "worker", **labels: str) -> float:
        return metric(get_text(f"http://127.0.0.1:{self.worker_ports[worker]}/metrics"), name, **labels)

    def scheduler_metric(self, name: str, **labels: str) -> float:
        return metric(get_text(self.base_url + "/metrics"), name, **labels)

    @property
    def model(self) -> str:
        return get_json(self.base_url + "/v1/models")["data"][0]["id"]
