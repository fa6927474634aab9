"""What a run says: Markdown for people, JSON for programs."""
import statistics

from cases import MEASURES, OURS, PEER_SETTINGS, SUBJECT, WIDTHS, Contestant, contestants
from samples import Run, fastest, ratios

KERNEL_SHAPES = ((8, 7168), (8, 16384), (1, 131072))  # sequences, tokens; the targets' shape first
MEMORY_CASE = f"8x7168x{SUBJECT.setting}"


def kernel_job(sequences: int, tokens: int) -> str:
    return f"kernels/{sequences}x{tokens}"


def spread(values, form: str) -> str:
    values = list(values)
    if not values:
        return "–"
    median = format(statistics.median(values), form)
    return median if len(values) == 1 else f"{median} ({min(values):{form}}–{max(values):{form}})"


def kernel_samples(run: Run, shape: tuple[int, int], width: str, what: str) -> list[float]:
    """`seconds` or `fraction_of_read`, each beside its own read probes, of all rounds."""
    return [x for result in run.results(kernel_job(*shape)).values() for x in result["kernels"][width]["samples"][what]]


def read_rates(run: Run, shape: tuple[int, int]) -> list[float]:
    return [result["read_gbps"] for result in run.results(kernel_job(*shape)).values()]


def canary_overheads(run: Run) -> list[float]:
    """At the shortest context, where a step is shortest and a firing weighs most."""
    return [r["canary_overhead"] for r in run.results(f"{MEASURES[0].case.name}/{SUBJECT.name}").values()]


def markdown(run: Run) -> str:
    machine = run.machine
    parts = [f"{machine['cpu']}; {', '.join(machine['instruction_sets'])}; {machine['cores']} threads; {machine['date']}. "
             "Medians, in brackets the least and the most.",
             _ratio_table(run), _rate_table(run), _kernel_tables(run), _memory(run), _services(run), _errors(run)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _ratio_table(run: Run) -> str:
    lines = [f"| tokens/s | {OURS} {SUBJECT.setting} | fastest of " + " | fastest of ".join(PEER_SETTINGS) + " | ratio |",
             "|---|---|" + "---|" * len(PEER_SETTINGS) + "---|"]
    for measure in MEASURES:
        cells = [spread(run.rates(measure, SUBJECT).values(), ".0f")]
        for peer in PEER_SETTINGS:
            best = fastest(run, measure, peer)
            cells.append(f"{spread(run.rates(measure, best).values(), '.0f')}, {best.setting}" if best else "–")
        values = ratios(run, measure)
        lines.append(f"| {measure.title} | " + " | ".join(cells) + f" | {'**' + spread(values, '.2f') + '**' if values else '–'} |")
    return "\n".join(lines)


def _rate_table(run: Run) -> str:
    """Every contestant at every setting."""
    everyone = sorted({c for m in MEASURES for c in contestants(m.case)}, key=lambda c: (c.peer != OURS, c.peer))
    everyone = [Contestant(OURS, w) for w in WIDTHS] + [c for c in everyone if c.peer != OURS]
    everyone.sort(key=lambda c: [OURS, *PEER_SETTINGS].index(c.peer) * 100 + _setting_index(c))
    rows = []
    for contestant in everyone:
        cells = [spread(run.rates(m, contestant).values(), ".0f") for m in MEASURES]
        if any(cell != "–" for cell in cells):
            rows.append(f"| {contestant.name} | " + " | ".join(cells) + " |")
    return "\n".join(["| tokens/s | " + " | ".join(m.name for m in MEASURES) + " |", "|---|" + "---|" * len(MEASURES), *rows])


def _setting_index(contestant: Contestant) -> int:
    return (WIDTHS if contestant.peer == OURS else PEER_SETTINGS[contestant.peer]).index(contestant.setting)


def _kernel_tables(run: Run) -> str:
    lines = ["| decode attention alone | width | bytes read | ms | GB/s | of the read rate |", "|---|---|---|---|---|---|"]
    for shape in KERNEL_SHAPES:
        results = run.results(kernel_job(*shape))
        for width in WIDTHS if results else ():
            nbytes = next(iter(results.values()))["kernels"][width]["bytes"]
            seconds = kernel_samples(run, shape, width, "seconds")
            lines.append(f"| {shape[0]} × {shape[1]:,} tokens, read {spread(read_rates(run, shape), '.1f')} GB/s | {width} "
                         f"| {nbytes / 1e6:,.1f} MB | {spread([s * 1e3 for s in seconds], '.2f')} "
                         f"| {nbytes / statistics.median(seconds) / 1e9:.1f} "
                         f"| {spread(kernel_samples(run, shape, width, 'fraction_of_read'), '.0%')} |")
    canary = canary_overheads(run)
    note = f"\n\nCanary at 1/64, context 100: {spread(canary, '.3%')} of the time per output token." if canary else ""
    return "\n".join(lines) + note if len(lines) > 2 else note.strip()


def _memory(run: Run) -> str:
    results = list(run.results("memory").values())
    if not results:
        return ""
    growth = [r["resident_growth_bytes"] / r["cache_bytes"] for r in results]
    return (f"Resident memory, 8 sequences of 7,168 tokens at INT4: grew by {results[-1]['resident_growth_bytes'] / 1e6:,.1f} MB, pages "
            f"and rings say {results[-1]['cache_bytes'] / 1e6:,.1f} MB; ratio {spread(growth, '.3f')}.")


def _services(run: Run) -> str:
    lines = []
    for streams in (1, 8):
        turns = [turn for result in run.results(f"services/{streams}").values() for turn in result["turns"]]
        if turns:
            column = lambda name: [turn[name] for turn in turns]
            of_medians = 1 - statistics.median(column("http")) / statistics.median(column("engine"))
            lines.append(f"| {streams} | {spread(column('engine'), '.0f')} | {spread(column('http'), '.0f')} | {of_medians:.1%}; "
                         f"{spread(column('cost'), '.1%')} | {spread(column('client_cpu_share'), '.1%')} of a core |")
    head = ["| streams | engine, tokens/s | HTTP, tokens/s | services cost: of the medians; of pairs | client CPU |", "|---|---|---|---|---|"]
    return "\n".join(head + lines) if lines else ""


def _errors(run: Run) -> str:
    return "\n".join(f"- {job} did not run: {text.splitlines()[-1] if text else 'no output'}" for job, text in run.errors().items())


def as_json(run: Run) -> dict:
    shape = KERNEL_SHAPES[0]
    reads, canary = read_rates(run, shape), canary_overheads(run)
    ratio_samples = {m.name: ratios(run, m) for m in MEASURES}
    return {
        "read_gbps": statistics.median(reads) if reads else None,
        "kernels": {w: {"fraction_of_read": statistics.median(kernel_samples(run, shape, w, "fraction_of_read"))} for w in WIDTHS if reads},
        "ratios": {name: statistics.median(values) if values else None for name, values in ratio_samples.items()},
        "canary_overhead": statistics.median(canary) if canary else None,
        "ratio_samples": ratio_samples,
        "machine": run.machine,
        "samples": run.lines,
    }
