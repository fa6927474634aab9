"""What is measured: cases that every contestant runs, measures read from them, and each contestant's settings."""
import dataclasses
from collections.abc import Iterable


@dataclasses.dataclass(frozen=True)
class Case:
    """`sequences` prompts of `context` tokens, then `steps` decode steps of all of them together."""
    sequences: int
    context: int
    steps: int

    @property
    def name(self) -> str:
        return f"{self.sequences}x{self.context}"

    @property
    def repeats(self) -> int:
        """Times the case runs in one process; the last counts. A short prompt would else measure first touches of memory."""
        return 2 if self.context <= 512 else 1


@dataclasses.dataclass(frozen=True)
class Measure:
    """Tokens per second of one phase of one case; `name` is the ratio's name in the JSON file."""
    name: str
    case: Case
    phase: str  # "decode", all sequences together, or "prefill"
    title: str


_SHORT, _LONG, _LONGEST = Case(1, 100, 64), Case(1, 2048, 32), Case(1, 7168, 32)
MEASURES = (
    Measure("decode_100", _SHORT, "decode", "decode, context 100"),
    Measure("decode_2048", _LONG, "decode", "decode, context 2,048"),
    Measure("decode_7168", _LONGEST, "decode", "decode, context 7,168"),
    Measure("decode_8x200", Case(8, 200, 64), "decode", "decode, 8 sequences of 200, total"),
    Measure("decode_8x2048", Case(8, 2048, 32), "decode", "decode, 8 sequences of 2,048, total"),
    Measure("prefill_512", Case(1, 512, 8), "prefill", "prefill, 512 tokens"),
    Measure("prefill_7168", _LONGEST, "prefill", "prefill, 7,168 tokens"),
)
CASES = {measure.case.name: measure.case for measure in MEASURES}
CHART_MEASURES = tuple(m for m in MEASURES if m.phase == "decode" and m.case.sequences == 1)


@dataclasses.dataclass(frozen=True)
class Contestant:
    peer: str
    setting: str

    @property
    def name(self) -> str:
        return f"{self.peer} {self.setting}"


OURS = "Stria"
WIDTHS = ("fp16", "int8", "int4", "int2")
SUBJECT = Contestant(OURS, "int4")  # whose ratios the targets are about
PEER_SETTINGS = {
    "llama.cpp": ("f16", "q8_0", "q4_0"),                # cache type, flash attention on
    "OpenVINO": ("pa-f16", "pa-u8", "pa-u4", "sdpa-f16"),  # attention backend, KV_CACHE_PRECISION
}


def contestants(case: Case, peers: Iterable[str] = tuple(PEER_SETTINGS)) -> list[Contestant]:
    """In the order of a round: peers and our widths take turns."""
    theirs = [[Contestant(peer, s) for s in PEER_SETTINGS[peer] if runs(peer, s, case)] for peer in peers]
    columns = [[SUBJECT] + [Contestant(OURS, w) for w in WIDTHS if w != SUBJECT.setting], *theirs]
    return [column[i] for i in range(max(map(len, columns))) for column in columns if i < len(column)]


def runs(peer: str, setting: str, case: Case) -> bool:
    """OpenVINO batches sequences only in its paged-attention pipeline."""
    return not (peer == "OpenVINO" and setting.startswith("sdpa") and case.sequences > 1)
