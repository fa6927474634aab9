"""The benchmark's pure parts: what is read from each contestant, how ratios are made, what the JSON file and the picture hold."""
import json
import pathlib
import xml.etree.ElementTree as ElementTree

import bench
import cases
import chart
import contestants
import machine
import pytest
import report
import samples
from cases import CASES, MEASURES, Contestant

SAMPLES = pathlib.Path(__file__).parent / "samples"
MACHINE = {"cpu": "A <processor> & more", "instruction_sets": ["avx2"], "cores": 2, "date": "2026-01-01"}


def make_run(tmp_path, *lines) -> samples.Run:
    run = samples.Run(tmp_path / "run.jsonl", MACHINE, keep=False)
    for job, round_, result in lines:
        run.add({"job": job, "round": round_, "seconds": 1.0, "result": result})
    return run


def kernel_result(read: float, fractions: list[float]) -> dict:
    width = {"bytes": 2_000_000, "samples": {"seconds": [0.001] * len(fractions), "fraction_of_read": fractions}}
    return {"read_gbps": read, "kernels": {name: width for name in cases.WIDTHS}}


def full_run(tmp_path) -> samples.Run:
    """Two rounds of everything; rates differ by contestant, case and round."""
    lines = []
    for round_ in range(2):
        for case in CASES.values():
            for i, contestant in enumerate(cases.contestants(case)):
                rate = (100.0 + i + 10 * round_) * case.sequences * (100 / (100 + case.context))
                lines.append((samples.job_name(case, contestant), round_,
                              {"prefill": 10 * rate, "decode": rate, "canary_overhead": 0.0005 * (round_ + 1)}))
        lines.append((report.kernel_job(8, 7168), round_, kernel_result(40.0 + round_, [0.7, 0.8, 0.9])))
        turn = {"engine": 100.0, "http": 95.0 - round_, "cost": 0.05 + 0.01 * round_, "client_cpu_share": 0.02}
        lines.append(("services/8", round_, {"turns": [turn, turn]}))
    lines.append(("memory", 0, {"resident_growth_bytes": 1030, "cache_bytes": 1000}))
    return make_run(tmp_path, *lines)


def test_of_llama_cpp_the_last_repetition_counts():
    result = contestants.parse_batched_bench((SAMPLES / "llama_batched_bench.txt").read_text())
    assert result == {"prefill": 59.080776, "decode": 1.466781}


def test_a_run_without_result_is_a_failure_that_shows_the_output():
    with pytest.raises(contestants.Failed, match="unsupported cache type"):
        contestants.parse_batched_bench("error: unsupported cache type\n")
    with pytest.raises(contestants.Failed, match="no kernel"):
        contestants.parse_openvino(["[INFO] loading\n"], lambda: "exit 1: no kernel")
    with pytest.raises(contestants.Failed, match="exit 3: no such model"):
        contestants.run(["sh", "-c", "echo no such model >&2; exit 3"])


def test_openvino_may_print_before_its_result():
    lines = iter(['[INFO] loading {x}\n', '{"prefill": 900.5, "decode": 50.25}\n', '{"prefill": 1.0, "decode": 2.0}\n'])
    assert contestants.parse_openvino(lines, pytest.fail) == {"prefill": 900.5, "decode": 50.25}
    assert contestants.parse_openvino(lines, pytest.fail) == {"prefill": 1.0, "decode": 2.0}


def test_engine_bench_gives_the_last_repetition():
    result = contestants.parse_engine_bench((SAMPLES / "engine_bench.json").read_text())
    last = json.loads((SAMPLES / "engine_bench.json").read_text())["decode"][-1]
    assert (result["prefill"], result["decode"]) == (last["prefill_tokens_per_second"], last["tokens_per_second"])
    assert result["canary_overhead"] == last["canary_overhead"]


def test_llama_cpp_has_room_for_every_token_and_one_more():
    command = [str(word) for word in contestants.llama_command(pathlib.Path("/p"), pathlib.Path("m"), 2, "q8_0", CASES["8x2048"])]
    room = int(command[command.index("-c") + 1])
    assert room >= 8 * (2048 + 32 + 1) and room % 8 == 0
    assert command[command.index("-ctk") + 1] == command[command.index("-ctv") + 1] == "q8_0"


def test_a_ratio_is_against_the_fastest_setting_of_any_peer_round_by_round(tmp_path):
    measure = next(m for m in MEASURES if m.name == "decode_2048")
    rates = {"Stria int4": (100, 120, 90), "Stria int2": (500, 500, 500), "llama.cpp f16": (60, 10, 10),
             "llama.cpp q8_0": (40, 40, 40), "OpenVINO pa-u8": (50, 48, 45), "OpenVINO pa-f16": (30, 30, 30)}
    run = make_run(tmp_path, *[(f"1x2048/{name}", r, {"decode": x, "prefill": 1.0})
                               for name, values in rates.items() for r, x in enumerate(values)])
    assert samples.fastest(run, measure) == Contestant("OpenVINO", "pa-u8")  # by medians: one lucky round does not count
    assert samples.fastest(run, measure, "llama.cpp") == Contestant("llama.cpp", "q8_0")
    assert samples.ratios(run, measure) == [100 / 50, 120 / 48, 90 / 45]


def test_a_round_that_the_peer_missed_is_compared_with_its_median(tmp_path):
    measure = next(m for m in MEASURES if m.name == "decode_100")
    run = make_run(tmp_path, *[("1x100/Stria int4", r, {"decode": 100.0}) for r in range(3)],
                   *[("1x100/llama.cpp f16", r, {"decode": 40.0 + r}) for r in range(2)])
    assert samples.ratios(run, measure) == [100 / 40, 100 / 41, 100 / 40.5]


def test_nothing_measured_is_no_ratio(tmp_path):
    run = make_run(tmp_path, ("1x100/Stria int4", 0, {"decode": 100.0, "prefill": 300.0, "canary_overhead": 0.0005}))
    assert samples.ratios(run, MEASURES[0]) == []
    assert report.as_json(run)["ratios"]["decode_100"] is None
    assert "–" in report.markdown(run)


def test_json_holds_what_its_readers_expect(tmp_path):
    result = json.loads(json.dumps(report.as_json(full_run(tmp_path))))
    assert set(result["ratios"]) == {"decode_100", "decode_2048", "decode_7168", "decode_8x200", "decode_8x2048", "prefill_512",
                                     "prefill_7168"}
    assert all(0.5 < ratio < 2 for ratio in result["ratios"].values())
    assert result["read_gbps"] == 40.5
    assert {w: k["fraction_of_read"] for w, k in result["kernels"].items()} == dict.fromkeys(("fp16", "int8", "int4", "int2"), 0.8)
    assert result["canary_overhead"] == pytest.approx(0.00075)
    assert result["machine"] == MACHINE
    assert len(result["samples"]) == len(samples.Run(tmp_path / "run.jsonl", MACHINE, keep=True).lines)


def test_tables_show_every_part(tmp_path):
    text = report.markdown(full_run(tmp_path))
    assert "| 8 × 7,168 tokens, read 40.5 (40.0–41.0) GB/s | int4 | 2.0 MB | 1.00 (1.00–1.00) | 2.0 | 80% (70%–90%) |" in text
    assert "grew by 0.0 MB" in text and "ratio 1.030" in text
    assert "| 8 | 100 (100–100) | 94 (94–95) | 5.5%; 5.5% (5.0%–6.0%) | 2.0% (2.0%–2.0%) of a core |" in text
    rows = [line for line in text.splitlines() if line.startswith(("| Stria", "| llama.cpp", "| OpenVINO"))]
    assert len(rows) == len(cases.WIDTHS) + sum(map(len, cases.PEER_SETTINGS.values()))


def test_a_run_goes_on_where_it_stopped_but_not_on_another_machine(tmp_path):
    make_run(tmp_path, ("memory", 0, {"resident_growth_bytes": 1, "cache_bytes": 1}))
    run = samples.Run(tmp_path / "run.jsonl", MACHINE | {"date": "2026-01-02"}, keep=True)
    assert run.done("memory", 0) and not run.done("memory", 1)
    run.add({"job": "1x100/OpenVINO pa-u4", "round": 0, "seconds": 1.0, "error": "not supported"})
    assert run.done("1x100/OpenVINO pa-u4", 2)  # refused once is refused
    assert "1x100/OpenVINO pa-u4 did not run: not supported" in report.markdown(run)
    with pytest.raises(ValueError, match="start a new run"):
        samples.Run(tmp_path / "run.jsonl", MACHINE | {"cores": 3}, keep=True)


def test_every_contestant_runs_each_case_once_a_round():
    plan = bench.full_plan(bench.Plan(None, pathlib.Path(), [], list(cases.PEER_SETTINGS)), rounds=2)
    jobs = [(job.name, job.round) for job in plan.jobs]
    assert len(jobs) == len(set(jobs))
    for case in CASES.values():
        for contestant in cases.contestants(case):
            assert {(samples.job_name(case, contestant), r) for r in (0, 1)} <= set(jobs)
    assert not any("8x" in job and "sdpa" in job for job, _ in jobs)


def test_only_one_measure_runs_only_its_case():
    plan = bench.full_plan(bench.Plan(None, pathlib.Path(), ["prefill_7168"], list(cases.PEER_SETTINGS)), rounds=1)
    assert {job.name.partition("/")[0] for job in plan.jobs} == {"1x7168"}


def test_without_peers_only_our_widths_run():
    plan = bench.full_plan(bench.Plan(None, pathlib.Path(), ["decode_100"], []), rounds=1)
    assert {job.name for job in plan.jobs} == {f"1x100/Stria {width}" for width in cases.WIDTHS}


def test_quick_begins_with_the_fastest_peer_and_takes_one_setting_of_each(tmp_path):
    full = full_run(tmp_path)
    plan = bench.quick_plan(bench.Plan(None, pathlib.Path(), ["decode_2048"], list(cases.PEER_SETTINGS)), 2, full)
    measure = next(m for m in MEASURES if m.name == "decode_2048")
    best = samples.fastest(full, measure)
    other = samples.fastest(full, measure, next(p for p in cases.PEER_SETTINGS if p != best.peer))
    once = [f"1x2048/{c.name}" for c in (best, cases.SUBJECT, other)]
    assert [job.name for job in plan.jobs] == once * 2


@pytest.mark.parametrize("skip", [False, True])
def test_measuring_stops_before_a_job_that_would_end_too_late(tmp_path, skip):
    run = make_run(tmp_path, ("memory", 0, {"resident_growth_bytes": 1, "cache_bytes": 1}))  # took one second
    plan = bench.Plan(None, pathlib.Path(), [], [])
    done = lambda: {"n": 1}
    plan.jobs = [bench.Job("memory", 0, pytest.fail), bench.Job("memory", 1, done), bench.Job("1x100/slow", 0, pytest.fail, guess=6),
                 bench.Job("1x100/its neighbour", 0, pytest.fail, guess=1), bench.Job("memory", 2, done)]
    bench.measure(run, plan, seconds=5, history=[run], skip=skip)
    assert list(run.results("memory")) == ([0, 1, 2] if skip else [0, 1])


def test_picture_is_well_formed_and_names_every_line(tmp_path):
    run = full_run(tmp_path)
    root = ElementTree.fromstring(chart.svg(run))
    space = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{space}polyline")) == len(cases.WIDTHS) + len(cases.PEER_SETTINGS)
    texts = [t.text for t in root.findall(f"{space}text")]
    for name in [f"Stria {w}" for w in cases.WIDTHS] + list(cases.PEER_SETTINGS):
        assert any(t.startswith(name) for t in texts), name
    for element in root.iter(f"{space}circle"):
        assert 0 < float(element.get("cx")) < chart.WIDTH and 0 < float(element.get("cy")) < chart.HEIGHT
    ElementTree.fromstring(chart.svg(make_run(tmp_path)))  # nothing measured yet


def test_labels_keep_apart_and_inside():
    heights = chart.spaced([100, 101, 102, 390, 391])
    assert all(b - a >= chart.LABEL_HEIGHT for a, b in zip(heights, heights[1:]))
    assert heights[-1] <= chart.HEIGHT - chart.BOTTOM


@pytest.mark.parametrize("top, step", [(0.5, 1), (6, 1), (7, 2), (30, 5), (60, 10), (61, 20), (170, 50), (1234, 500)])
def test_grid(top, step):
    assert chart.step_of(top) == step


@pytest.mark.parametrize("text, cores", [("max 100000\n", None), ("200000 100000", 2.0), ("150000 100000", 1.5), ("", None)])
def test_cgroup_quota(text, cores):
    assert machine.cpu_quota(text) == cores
