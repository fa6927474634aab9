"""Speed beside the peers, in one run: `./stria bench` calls this.

Rounds are interleaved: within a round every contestant runs each case once, peers and our widths taking turns, so that a ratio
compares neighbours in time. Every sample is kept in .stria/bench/ as it comes: `--continue` goes on with the last run, and `--seconds`
bounds one call, so a long run can be done in pieces. The tables are those of the whole run so far.
"""
import argparse
import dataclasses
import datetime
import json
import pathlib
import time
from collections.abc import Callable

import chart
import contestants as running
import machine
import report
import services_overhead
from cases import CASES, MEASURES, PEER_SETTINGS, SUBJECT, Contestant, contestants
from install_peers import ROOT, install_llama_cpp, install_openvino, say
from samples import Run, fastest, job_name

DOCS = ROOT / "docs/bench"
QUICK_SECONDS = 220  # of measuring, which leaves some for builds that have nothing to do
SLOW_PREFILL = 150  # tokens per second: how long a case takes that never ran
SERVICE_TURNS = 3  # in each round
KERNEL_REPETITIONS = 15


def parse_args() -> argparse.Namespace:
    names = [m.name for m in MEASURES]
    parser = argparse.ArgumentParser(prog="./stria bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="under 4 minutes: INT4 against each peer's fastest setting of the last full run")
    parser.add_argument("--rounds", type=int, help="default 3; --quick: as many as fit, at most 3")
    parser.add_argument("--only", default="", help="a run apart, or with --continue a piece of the full one; some of: "
                        + ", ".join([*names, "kernels", "memory", "services"]))
    parser.add_argument("--peers", default=",".join(PEER_SETTINGS), help="default: %(default)s; '' for none")
    parser.add_argument("--continue", dest="keep", action="store_true", help="go on with the last run: what it has is not measured again")
    parser.add_argument("--seconds", type=float, help="stop before what would end later than this")
    parser.add_argument("--report", action="store_true", help="measure nothing, show the last run")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="figures, ratios and all samples")
    parser.add_argument("--install", action="store_true", help="install the peers, measure nothing")
    parser.add_argument("--model", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--llama-version", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--state", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.only = [name for name in args.only.split(",") if name]
    args.peers = [name for name in args.peers.split(",") if name]
    for flag, given, known in (("--only", args.only, {*names, "kernels", "memory", "services"}), ("--peers", args.peers, set(PEER_SETTINGS))):
        if not set(given) <= known:
            parser.error(f"{flag} does not know {', '.join(sorted(set(given) - known))}")
    return args


def wanted(only: list[str], name: str) -> bool:
    return not only or name in only


@dataclasses.dataclass(frozen=True)
class Job:
    name: str
    round: int
    work: Callable[[], dict]
    guess: float = 20  # seconds, until it ran once


class Plan:
    """Jobs in the order in which they run."""

    def __init__(self, runner: running.Runner | None, state: pathlib.Path, only: list[str], peers: list[str]):
        self.runner, self.state, self.only, self.peers = runner, state, only, peers
        self.cases = [case for case in CASES.values() if any(m.case == case and wanted(only, m.name) for m in MEASURES)]
        self.jobs = []

    def add_case(self, case, contestant: Contestant, round_: int) -> None:
        self.jobs.append(Job(job_name(case, contestant), round_, lambda: self.runner.case(contestant, case),
                             10 + case.sequences * case.context / SLOW_PREFILL))

    def add_kernels(self, shapes, round_: int) -> None:
        if wanted(self.only, "kernels"):
            for shape in shapes:
                self.jobs.append(Job(report.kernel_job(*shape), round_, lambda shape=shape: self.runner.kernels(
                    *shape, KERNEL_REPETITIONS, self.state / "kernels.json")))

    def add_memory(self) -> None:
        if wanted(self.only, "memory"):
            self.jobs.append(Job("memory", 0, lambda: self.runner.memory(report.MEMORY_CASE), 400))

    def add_services(self, round_: int) -> None:
        if wanted(self.only, "services"):
            for streams in (1, 8):
                self.jobs.append(Job(f"services/{streams}", round_, lambda streams=streams: services_overhead.measure(
                    self.runner.model, streams, SERVICE_TURNS), 60))


def full_plan(plan: Plan, rounds: int) -> Plan:
    for round_ in range(rounds):
        plan.add_kernels(report.KERNEL_SHAPES if round_ == 0 else report.KERNEL_SHAPES[:1], round_)
        for case in plan.cases:
            everyone = contestants(case, plan.peers)
            for contestant in everyone[round_ % len(everyone):] + everyone[:round_ % len(everyone)]:
                plan.add_case(case, contestant, round_)
        plan.add_services(round_)
    plan.add_memory()
    return plan


def quick_plan(plan: Plan, rounds: int, last_full: Run) -> Plan:
    """What the ratios need comes first: INT4 beside the fastest peer of each case; then the other peers; then more rounds."""
    def fastest_of(measure) -> list[Contestant]:
        """Of each peer, the fastest of all first; a peer's first setting where there was no full run."""
        each = [fastest(last_full, measure, peer) or Contestant(peer, PEER_SETTINGS[peer][0]) for peer in plan.peers]
        best = fastest(last_full, measure)
        return sorted(each, key=lambda contestant: contestant != best)

    rivals = {case: list(dict.fromkeys(c for m in MEASURES if m.case == case and wanted(plan.only, m.name) for c in fastest_of(m)))
              for case in plan.cases}
    plan.add_kernels(report.KERNEL_SHAPES[:1], 0)
    for case in plan.cases:
        for contestant in (*rivals[case][:1], SUBJECT):
            plan.add_case(case, contestant, 0)
    for case in plan.cases:
        for contestant in rivals[case][1:]:
            plan.add_case(case, contestant, 0)
    for round_ in range(1, rounds):
        for case in plan.cases:
            for contestant in (*rivals[case][:1], SUBJECT, *rivals[case][1:]):
                plan.add_case(case, contestant, round_)
    return plan


def measure(run: Run, plan: Plan, seconds: float | None, history: list[Run], skip: bool) -> None:
    """Runs what is not there yet, in order, until a job is expected to end later than `seconds`; or skips what follows of that
    case in that round, since a sample without its neighbour makes no ratio, and goes on."""
    begin, skipped = time.monotonic(), set()
    for number, job in enumerate(plan.jobs, 1):
        turn = (job.name.partition("/")[0], job.round)
        if run.done(job.name, job.round) or turn in skipped:
            continue
        expected = next((s for r in history if (s := r.seconds(job.name))), job.guess)
        if seconds is not None and time.monotonic() - begin + expected > seconds:
            if not skip:
                break
            skipped.add(turn)
            continue
        say(f"[{number}/{len(plan.jobs)}] round {job.round + 1}: {job.name}")
        start = time.monotonic()
        line = {"job": job.name, "round": job.round, "at": datetime.datetime.now().isoformat(timespec="seconds")}
        try:
            outcome = {"result": job.work()}
        except running.Failed as failure:
            outcome = {"error": str(failure)}
            say(f"did not run: {failure}")
        run.add(line | {"seconds": round(time.monotonic() - start, 2)} | outcome)


def main() -> None:
    args = parse_args()
    args.state.mkdir(parents=True, exist_ok=True)
    plan = Plan(None, args.state, args.only, args.peers)
    installed = {}
    if args.install or (plan.cases and not args.report):
        if "llama.cpp" in args.peers:
            installed["llama_bin"] = install_llama_cpp(args.state, args.llama_version)
        if "OpenVINO" in args.peers:
            installed["openvino_python"] = install_openvino(args.state)
    if args.install:
        return
    here = machine.describe()
    kind = "quick" if args.quick else "part" if args.only and not args.keep and not args.report else "full"
    run = Run(args.state / f"{kind}.jsonl", here, keep=args.keep or args.report)
    full = run if kind == "full" else Run(args.state / "full.jsonl", here, keep=True)
    rounds = args.rounds or 3
    plan = quick_plan(plan, rounds, full) if args.quick else full_plan(plan, rounds)
    if not args.report:
        plan.runner = running.Runner(args.model, here["cores"], **installed)
        measure(run, plan, args.seconds or (QUICK_SECONDS if args.quick else None), [run, full], skip=args.quick)
    text = report.markdown(run)
    whole = full_plan(Plan(None, args.state, [], list(PEER_SETTINGS)), rounds)
    left = sum(not run.done(job.name, job.round) for job in whole.jobs)
    if left and kind == "full":
        text += f"\nNot complete: {left} jobs of {rounds} rounds are left.\n"
    print(text)
    if args.json:
        args.json.write_text(json.dumps(report.as_json(run), indent=1) + "\n")
    if kind == "full" and run.lines and not args.report:
        DOCS.mkdir(exist_ok=True)
        (DOCS / "last_full_run.md").write_text("# The last full run\n\nWritten by `./stria bench`; [README](README.md) says how to read it.\n\n"
                                               f"![decode](decode.svg)\n\n{text}")
        (DOCS / "decode.svg").write_text(chart.svg(run))


if __name__ == "__main__":
    main()
