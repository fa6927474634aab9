"""Runs one case of one contestant in a process of its own. Results: {"prefill": tokens/s, "decode": tokens/s, …}."""
import dataclasses
import json
import os
import pathlib
import subprocess
import tempfile
from collections.abc import Callable, Iterable

from cases import CASES, OURS, Case, Contestant
from install_peers import ROOT

ENGINE_BENCH = ROOT / "bazel-bin/worker/engine_bench"
KERNEL_BENCH = ROOT / "bazel-bin/kernels/bench/kernel_bench"
OPENVINO_CASE = pathlib.Path(__file__).with_name("openvino_case.py")
OUR_ENVIRONMENT = {"GOMP_SPINCOUNT": "20000"}  # what the worker sets for itself; peers run as they come


class Failed(Exception):
    """A contestant that did not run; the text is the end of what it said."""


def run(command: list, environment: dict[str, str] | None = None) -> str:
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False,
                            env={**os.environ, **(environment or {})})
    if result.returncode != 0:
        raise Failed(f"exit {result.returncode}: {(result.stderr or result.stdout).strip()[-400:]}")
    return result.stdout


class OpenVinoProcess:
    """OpenVINO GenAI at one setting, kept between cases: loading the model takes it ten seconds."""

    def __init__(self, python: pathlib.Path, model: pathlib.Path, threads: int, setting: str):
        backend, _, precision = setting.partition("-")
        room = [max(case.sequences for case in CASES.values()), max(case.sequences * case.context for case in CASES.values())]
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([str(word) for word in (python, OPENVINO_CASE, model, threads, backend, precision, *room)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True)

    def case(self, case: Case) -> dict:
        try:
            print(case.sequences, case.context, case.steps, case.repeats, file=self.process.stdin, flush=True)
        except BrokenPipeError:
            pass  # it ended: there is no answer
        return parse_openvino(self.process.stdout, self._ended)

    def _ended(self) -> str:
        self.process.wait()
        self.log.seek(0)
        return f"exit {self.process.returncode}: {self.log.read().strip()[-400:]}"


@dataclasses.dataclass(frozen=True)
class Runner:
    model: pathlib.Path
    threads: int
    llama_bin: pathlib.Path | None = None  # peers that are not there are not asked for
    openvino_python: pathlib.Path | None = None
    openvino: dict[str, OpenVinoProcess] = dataclasses.field(default_factory=dict)  # by setting

    def case(self, contestant: Contestant, case: Case) -> dict:
        by_peer = {OURS: self._ours, "llama.cpp": self._llama_cpp, "OpenVINO": self._openvino}
        return by_peer[contestant.peer](contestant.setting, case)

    def kernels(self, sequences: int, tokens: int, repetitions: int, target: pathlib.Path) -> dict:
        run([KERNEL_BENCH, "--only", "decode", "--sequences", sequences, "--tokens", tokens, "--threads", self.threads,
             "--repetitions", repetitions, "--json", target], OUR_ENVIRONMENT)
        return json.loads(target.read_text())

    def memory(self, case: str) -> dict:
        return json.loads(run([*self._engine_bench(), "--memory", case], OUR_ENVIRONMENT))["memory"][0]

    def _engine_bench(self) -> list:
        return [ENGINE_BENCH, "--model", self.model, "--threads", self.threads, "--pool-mib", 4096]

    def _ours(self, width: str, case: Case) -> dict:
        cases = [f"{case.name}x{width}"] * case.repeats
        return parse_engine_bench(run([*self._engine_bench(), "--steps", case.steps, "--decode", *cases], OUR_ENVIRONMENT))

    def _llama_cpp(self, cache_type: str, case: Case) -> dict:
        return parse_batched_bench(run(llama_command(self.llama_bin, self.model, self.threads, cache_type, case)))

    def _openvino(self, setting: str, case: Case) -> dict:
        if setting not in self.openvino:
            self.openvino[setting] = OpenVinoProcess(self.openvino_python, self.model, self.threads, setting)
        return self.openvino[setting].case(case)


def llama_command(folder: pathlib.Path, model: pathlib.Path, threads: int, cache_type: str, case: Case) -> list:
    """Eight sequences share the work of one prompt: only their decode is measured, and each has a copy of the cache."""
    per_sequence = -(-(case.context + case.steps + 1) // 256) * 256
    return [folder / "llama-batched-bench", "-m", model, "-t", threads, "-tb", threads, "-fa", "on",
            "-ctk", cache_type, "-ctv", cache_type, "-c", per_sequence * case.sequences,
            "-npp", ",".join([str(case.context)] * case.repeats), "-ntg", case.steps, "-npl", case.sequences,
            *(["-pps"] if case.sequences > 1 else []), "--output-format", "jsonl"]


def parse_engine_bench(text: str) -> dict:
    last = json.loads(text)["decode"][-1]
    return {"prefill": last["prefill_tokens_per_second"], "decode": last["tokens_per_second"],
            "step_ms": last["step_ms"], "canary_overhead": last["canary_overhead"], "firing_us": last["firing_us"]}


def parse_batched_bench(text: str) -> dict:
    """The last of the JSON lines among whatever else llama.cpp prints."""
    lines = [line[line.index("{"):] for line in text.splitlines() if '"speed_tg"' in line]
    if not lines:
        raise Failed(f"llama-batched-bench printed no result: {text.strip()[-400:]}")
    last = json.loads(lines[-1])
    return {"prefill": last["speed_pp"], "decode": last["speed_tg"]}


def parse_openvino(lines: Iterable[str], ended: Callable[[], str]) -> dict:
    """The next result among whatever else the library prints."""
    for line in lines:
        if line.startswith('{"prefill"'):
            return json.loads(line)
    raise Failed(ended())
