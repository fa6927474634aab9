"""Tokens per second against context as an SVG: one line for each of our widths and for each peer at its fastest setting."""
import statistics
from xml.sax.saxutils import escape

from cases import CHART_MEASURES, OURS, PEER_SETTINGS, WIDTHS, Contestant
from samples import Run, fastest

WIDTH, HEIGHT = 760, 440
LEFT, RIGHT, TOP, BOTTOM = 60, 190, 56, 50
LABEL_HEIGHT = 17
OUR_COLORS = dict(zip(WIDTHS, ("#9ecae1", "#6baed6", "#08519c", "#3182bd")))
PEER_COLORS = dict(zip(PEER_SETTINGS, ("#8c6d31", "#ad494a")))


def series(run: Run) -> list[tuple[str, str, list[tuple[int, float]]]]:
    """(label, colour, [(context, median tokens/s)]) of everything that was measured."""
    out = []
    for width in WIDTHS:
        contestant = Contestant(OURS, width)
        out.append((contestant.name, OUR_COLORS[width], _points(run, lambda _, c=contestant: c)))
    for peer, color in PEER_COLORS.items():
        out.append((f"{peer}, fastest", color, _points(run, lambda m, p=peer: fastest(run, m, p))))
    return [s for s in out if s[2]]


def _points(run: Run, choose) -> list[tuple[int, float]]:
    return [(m.case.context, statistics.median(rates)) for m in CHART_MEASURES
            if (contestant := choose(m)) and (rates := run.rates(m, contestant).values())]


def step_of(top: float) -> int:
    """Distance of grid lines: the least of 1, 2, 5 times a power of ten that gives at most six."""
    power = 1
    while True:
        for factor in (1, 2, 5):
            if top <= 6 * factor * power:
                return factor * power
        power *= 10


def spaced(wanted: list[float]) -> list[float]:
    """Heights near the wanted ones (given in rising order) that keep labels apart, pushed down, then back up from the edge."""
    out, limit = [], HEIGHT - BOTTOM
    for y in wanted:
        out.append(max(y, out[-1] + LABEL_HEIGHT) if out else y)
    for i in reversed(range(len(out))):
        limit = out[i] = min(out[i], limit)
        limit -= LABEL_HEIGHT
    return out


def svg(run: Run) -> str:
    lines = series(run)
    contexts = [m.case.context for m in CHART_MEASURES]
    step = step_of(max((y for *_, points in lines for _, y in points), default=1))
    top = step * -(-max((y for *_, points in lines for _, y in points), default=1) // step)
    x_of = lambda x: LEFT + (WIDTH - LEFT - RIGHT) * x / max(contexts)
    y_of = lambda y: HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * y / top
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="Helvetica, Arial, sans-serif" font-size="13">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
           _text(LEFT, 24, "Decode, one sequence: tokens per second against context", weight="bold", size=15),
           _text(LEFT, 42, f"{run.machine['cpu']}, {run.machine['cores']} threads, {run.machine['date']}", fill="#666666", size=12)]
    for i in range(int(top // step) + 1):
        y = y_of(i * step)
        out.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#e5e5e5"/>')
        out.append(_text(LEFT - 8, y + 4, str(i * step), anchor="end", fill="#666666"))
    for context in contexts:
        out.append(_text(x_of(context), HEIGHT - BOTTOM + 20, f"{context:,}", anchor="middle", fill="#666666"))
    out.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, "tokens in the cache", anchor="middle", fill="#666666"))
    lines.sort(key=lambda s: -s[2][-1][1])
    for (label, color, points), at in zip(lines, spaced([y_of(s[2][-1][1]) for s in lines])):
        path = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2.5"/>')
        out += [f'<circle cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="3" fill="{color}"/>' for x, y in points]
        end_x, end_y = x_of(points[-1][0]), y_of(points[-1][1])
        out.append(f'<line x1="{end_x + 4:.1f}" y1="{end_y:.1f}" x2="{WIDTH - RIGHT + 14}" y2="{at:.1f}" stroke="{color}" stroke-width="0.7"/>')
        out.append(_text(WIDTH - RIGHT + 18, at + 4, f"{label}: {points[-1][1]:.0f}", fill=color))
    return "\n".join([*out, "</svg>"]) + "\n"


def _text(x: float, y: float, text: str, anchor="start", fill="#222222", weight="normal", size=13) -> str:
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}" font-weight="{weight}" font-size="{size}">'
            f'{escape(text)}</text>')
