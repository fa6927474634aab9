"""Samples of a run, kept as they come, and the arithmetic over them: medians, the fastest peer, ratios.

A run is a file of JSON lines: first what machine it was, then one line per job,
{"job": "1x7168/llama.cpp f16", "round": 0, "seconds": 81.2, "result": {…}} or "error" in place of "result".
"""
import json
import pathlib
import statistics

from cases import SUBJECT, Case, Contestant, Measure, contestants


def job_name(case: Case, contestant: Contestant) -> str:
    return f"{case.name}/{contestant.name}"


class Run:
    def __init__(self, path: pathlib.Path, machine: dict, keep: bool):
        """Goes on with the run in `path` if `keep` and it was made on this machine; starts it anew otherwise."""
        self.path, self.machine, self.lines = path, machine, []
        if keep and path.exists():
            self.machine, *self.lines = map(json.loads, path.read_text().splitlines())
            for key in ("cpu", "cores"):
                if self.machine[key] != machine[key]:
                    raise ValueError(f"{path} was measured on {self.machine[key]!r}, this is {machine[key]!r}: start a new run")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(machine) + "\n")

    def add(self, line: dict) -> None:
        self.lines.append(line)
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def done(self, job: str, round_: int) -> bool:
        """Measured, or refused in any round: a setting that this machine does not take is tried once."""
        return any(line["job"] == job and (line["round"] == round_ or "error" in line) for line in self.lines)

    def seconds(self, job: str) -> float | None:
        taken = [line["seconds"] for line in self.lines if line["job"] == job]
        return statistics.median(taken) if taken else None

    def results(self, job: str) -> dict[int, dict]:
        return {line["round"]: line["result"] for line in self.lines if line["job"] == job and "result" in line}

    def errors(self) -> dict[str, str]:
        return {line["job"]: line["error"] for line in self.lines if "error" in line}

    def rates(self, measure: Measure, contestant: Contestant) -> dict[int, float]:
        """Tokens per second by round."""
        return {r: result[measure.phase] for r, result in self.results(job_name(measure.case, contestant)).items()}


def fastest(run: Run, measure: Measure, peer: str | None = None) -> Contestant | None:
    """The setting with the highest median, of one peer or of all; None where nothing was measured."""
    medians = {c: statistics.median(rates) for c in contestants(measure.case)
               if c.peer != SUBJECT.peer and peer in (None, c.peer) and (rates := run.rates(measure, c).values())}
    return max(medians, key=medians.get, default=None)


def ratios(run: Run, measure: Measure) -> list[float]:
    """Ours over the fastest peer and setting, round by round; over its median in rounds that it missed."""
    rival = fastest(run, measure)
    if rival is None:
        return []
    theirs = run.rates(measure, rival)
    usual = statistics.median(theirs.values())
    return [ours / theirs.get(r, usual) for r, ours in run.rates(measure, SUBJECT).items()]
