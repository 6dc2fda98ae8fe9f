"""The graph of a recipe as SVG, whose colours are those of the page (`STYLE`)."""

import html
from collections.abc import Sequence
from itertools import pairwise

from mortal_steps.recipes.record import Standing
from mortal_steps.recipes.report.graph import Box, Layout, Line, Point, lay_out
from mortal_steps.recipes.report.view import StageView
from mortal_steps.report.printable import printable
from mortal_steps.report.units import money

MARGIN = 8.0
WIDTH = 248.0
"""Of a node."""
HEAD, ROW, CURVE, FOOT = 46.0, 18.0, 44.0, 12.0
"""Heights in a node: name and kind, a line of text, the curve, room below."""
INSIDE = 14.0
"""Room between the side of a node and what is in it."""
CHARS = 34
"""Of a line in a node."""
CHAR_WIDTH = 6.2
"""Of the words on lines, about."""

WORDS: dict[Standing, str] = {
    "complete": "complete",
    "running": "running",
    "failed": "failed",
    "stopped": "stopped",
    "interrupted": "interrupted",
    "asks": "asks a person",
    "refused": "does not begin",
    "waits": "waits",
    "ready": "can begin",
}
STYLE = """
:root { --complete: #1a7f37; --running: #0969da; --failed: #cf222e; --asks: #9a6700;
        --idle: #6e7781; --page: #ffffff; --card: #ffffff; --text: #1f2328; --muted: #59636e; }
@media (prefers-color-scheme: dark) {
  :root { --complete: #3fb950; --running: #58a6ff; --failed: #f85149; --asks: #d29922;
          --idle: #7d8590; --page: #0d1117; --card: #151b23; --text: #e6edf3; --muted: #9198a1; }
}
.graph { display: block; max-width: 100%; height: auto; margin: 1.5rem auto; }
.graph text { font: 12px system-ui, sans-serif; fill: var(--muted); }
.graph .name { font-size: 15px; font-weight: 600; fill: var(--text); }
.graph .merit { fill: var(--text); }
.graph .mono { font-family: ui-monospace, monospace; font-size: 11px; }
.graph .card { fill: var(--card); stroke: var(--line); }
.graph a:hover .card { stroke: var(--running); }
.graph .line { fill: none; stroke: var(--idle); stroke-width: 1.3; opacity: .75; }
.graph .tip { fill: var(--idle); }
.graph .word rect { fill: var(--page); }
.graph .training { fill: none; stroke: var(--bar); stroke-width: 1.5; }
.graph .held-out { fill: none; stroke: var(--asks); stroke-width: 1.5; }
.graph .dot { fill: var(--asks); }
.graph .complete { fill: var(--complete); } .graph .running { fill: var(--running); }
.graph .failed { fill: var(--failed); }
.graph .asks, .graph .stopped, .graph .interrupted { fill: var(--asks); }
.graph .refused { fill: var(--failed); } .graph .waits, .graph .ready { fill: var(--idle); }
"""


def picture(stages: Sequence[StageView]) -> str:
    """Return the graph; a stage whose run has a report leads there."""
    parents = {stage.name: stage.record.parents for stage in stages}
    sizes = {stage.name: (WIDTH, _height(stage)) for stage in stages}
    found = lay_out(parents, sizes, MARGIN)
    width, height = found.width, found.height
    by_name = {stage.name: stage for stage in stages}
    said = ", ".join(f"{stage.name}: {WORDS[stage.record.standing]}" for stage in stages)
    return "\n".join(
        [
            f'<svg class="graph" xmlns="http://www.w3.org/2000/svg" role="img" '
            f'aria-label="{_text(said, 400)}" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}">',
            *(_line(line) for line in found.lines),
            *(_node(stage, found.nodes[stage.name]) for stage in stages),
            *_words(found, by_name),
            "</svg>",
        ]
    )


def _height(stage: StageView) -> float:
    return HEAD + (CURVE if _has_curve(stage) else 0) + ROW * len(_rows(stage)) + FOOT


def _has_curve(stage: StageView) -> bool:
    return len(stage.training) > 1


def _rows(stage: StageView) -> list[tuple[str, str]]:
    """Return the lines of text in a node, each with its class."""
    price = f"${money(stage.dollars)}" if stage.dollars else ""
    facts = " · ".join(filter(None, (stage.took, price)))
    reached = stage.reached if not stage.merit or stage.record.standing == "running" else ""
    lines = [
        ("merit", stage.merit),
        ("reached", reached),
        ("mono", " · ".join(filter(None, (stage.digest, facts)))),
    ]
    return [(kind, _text(text, CHARS)) for kind, text in lines if text]


def _node(stage: StageView, box: Box) -> str:
    standing = stage.record.standing
    right, y = box.x + box.width - INSIDE, box.y + 22
    parts = [
        f"<title>{_text(f'{stage.name}: {stage.reached or WORDS[standing]}', 400)}</title>",
        f'<rect class="card" x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" '
        f'height="{box.height:.1f}" rx="8"/>',
        f'<rect class="{standing}" x="{box.x:.1f}" y="{box.y + 10:.1f}" width="4" '
        f'height="{box.height - 20:.1f}" rx="2"/>',
        f'<text class="name" x="{box.x + INSIDE:.1f}" y="{y:.1f}">{_text(stage.name, 20)}</text>',
        f'<text class="{standing}" style="fill: var(--{_colour(standing)})" '
        f'text-anchor="end" x="{right:.1f}" y="{y:.1f}">{WORDS[standing]}</text>',
        f'<text x="{box.x + INSIDE:.1f}" y="{y + 17:.1f}">{_text(stage.kind, CHARS)}</text>',
    ]
    y = box.y + HEAD
    if _has_curve(stage):
        area = Box(x=box.x + INSIDE, y=y + 2, width=box.width - 2 * INSIDE, height=CURVE - 10)
        parts += _curve(stage, area)
        y += CURVE
    for number, (kind, text) in enumerate(_rows(stage)):
        at = y + ROW * number + 13
        parts.append(f'<text class="{kind}" x="{box.x + INSIDE:.1f}" y="{at:.1f}">{text}</text>')
    inside = "\n".join(parts)
    if stage.page:
        return f'<a href="{html.escape(stage.page, quote=True)}">{inside}</a>'
    return f"<g>{inside}</g>"


def _colour(standing: Standing) -> str:
    others = {"stopped": "asks", "refused": "failed", "waits": "idle", "ready": "idle"}
    return others.get(standing, standing)


def _curve(stage: StageView, area: Box) -> list[str]:
    """Return the run's curve: training as a line, each evaluation as a dot. Losses of the one and
    rewards of the other have a scale each."""
    both = [*stage.training, *stage.held_out]
    last = max(step for step, _ in both)
    first = min(step for step, _ in both)

    def placed(points: Sequence[Point]) -> list[Point]:
        values = [value for _, value in (both if stage.judged_alike else points)]
        low, high = min(values, default=0.0), max(values, default=0.0)
        shares = [(value - low) / (high - low) if high > low else 0.5 for _, value in points]
        width = area.width / max(1, last - first)
        return [
            (area.x + width * (step - first), area.y + area.height * (1 - share))
            for (step, _), share in zip(points, shares, strict=True)
        ]

    found = [f'<path class="training" d="{_path(placed(stage.training))}"/>']
    held_out = placed(stage.held_out)
    if len(held_out) > 1:
        found.append(f'<path class="held-out" d="{_path(held_out)}"/>')
    if len(held_out) <= MOST_DOTS:
        found += [f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="2.6"/>' for x, y in held_out]
    return found


MOST_DOTS = 20
"""More evaluations are a line alone."""


def _path(points: Sequence[Point]) -> str:
    return "M" + " L".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _line(line: Line) -> str:
    """Return a line with its tip: straight beside nodes, curved between layers."""
    points = list(line.points)
    drawn = [f"M{points[0][0]:.1f},{points[0][1]:.1f}"]
    for number, (before, now) in enumerate(pairwise(points)):
        if number % 2 == 0:
            drawn.append(f"L{now[0]:.1f},{now[1]:.1f}")
        else:
            end = now[1] - (7 if number == len(points) - 2 else 0)
            half, (left, right) = (before[1] + end) / 2, (before[0], now[0])
            drawn.append(f"C{left:.1f},{half:.1f} {right:.1f},{half:.1f} {right:.1f},{end:.1f}")
    x, y = points[-1]
    tip = f"M{x:.1f},{y - 1:.1f} l-4,-7 h8 z"
    return f'<path class="line" d="{" ".join(drawn)}"/><path class="tip" d="{tip}"/>'


def _words(layout: Layout, stages: dict[str, StageView]) -> list[str]:
    """Return what is taken along each line, written on it."""
    found = []
    for line in layout.lines:
        what = " and ".join(stages[line.child].takes.get(line.parent, ()))
        if not what:
            continue
        (x0, y0), (x1, y1) = line.points[-2], line.points[-1]
        x, y = (x0 + x1) / 2, (y0 + y1 - 7) / 2
        width = CHAR_WIDTH * len(what) + 8
        found.append(
            f'<g class="word"><rect x="{x - width / 2:.1f}" y="{y - 9:.1f}" width="{width:.1f}" '
            f'height="18" rx="4"/><text text-anchor="middle" x="{x:.1f}" y="{y + 4:.1f}">'
            f"{_text(what, CHARS)}</text></g>"
        )
    return found


def _text(text: str, most: int) -> str:
    """Return text as XML shows it, on one line of at most so many characters."""
    shown = " ".join(printable(text).split()).replace(" -> ", " → ").replace("`", "")
    return html.escape(shown if len(shown) <= most else shown[: most - 1] + "…", quote=True)
