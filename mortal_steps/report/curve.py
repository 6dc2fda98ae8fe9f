"""Draws the curves of a run: its rewards and, below them, statistics of its completions."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # slow to import, and needed now and then
    from matplotlib.axes import Axes

Rows = Sequence[Mapping[str, Any]]

WINDOW = 10
"""Steps that the running mean covers."""
NUM_COLOURS = 64
"""Colours of the picture; enough for some lines with soft edges."""
WIDTH_INCHES, TOP_INCHES, BELOW_INCHES = 8.0, 4.5, 2.0
FEWEST_STEPS = 10
"""Steps from which on a curve of lengths or entropy is drawn."""
MOST_FUNCTIONS = 6
"""Lines in the panel of reward functions; a run may have any number of functions."""
FAINT, FULL, JUDGED = "#9ecae1", "#08519c", "#d94801"
LENGTH, LONGEST, ENTROPY = "completions/mean_length", "completions/max_length", "entropy"


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawn:
    """What the picture says about its lines."""

    title: str
    training_temperature: float
    held_out_temperature: float
    forked: tuple[str, int] | None = None
    """The run from which a fork continues, and the step."""
    changed: Sequence[int] = ()
    """Steps from which on other reward functions score."""


def reward_curve(drawn: Drawn, metrics: Rows, evaluations: Rows) -> bytes:
    """A PNG of the reward per step, its running mean, and the held-out reward; below them a panel
    each for the length of completions, for the entropy, and for the functions where there are more
    than one.

    Where nothing was scored there is no point. The temperatures tell training from evaluation:
    greedy rewards are not those of what is sampled.
    """
    from matplotlib.figure import Figure

    below = _panels(metrics)
    height = TOP_INCHES + (BELOW_INCHES if below else 0.0)
    figure = Figure(figsize=(WIDTH_INCHES, height), dpi=110)
    # Placed by hand: a layout engine would draw all of it twice.
    split = (BELOW_INCHES if below else 0.0) / height
    top = figure.add_axes((0.08, split + 0.11 * (1 - split), 0.9, 0.81 * (1 - split)))
    for place, (title, lines) in enumerate(below.items()):
        left, width = 0.08 + 0.9 * place / len(below), 0.9 / len(below)
        axes = figure.add_axes((left, 0.14 * split, width - 0.05, 0.68 * split))
        _draw_panel(axes, title, metrics, lines)
    _draw_rewards(top, drawn, metrics, evaluations)
    for axes in figure.axes:
        _mark(axes, drawn, named=axes is top)
        axes.grid(alpha=0.3)
    top.legend(loc="best", fontsize="small")
    return _in_few_colours(figure)


def _draw_rewards(axes: Axes, drawn: Drawn, metrics: Rows, evaluations: Rows) -> None:
    steps, rewards = _points(metrics, "reward")
    sampled = _how(drawn.training_temperature)
    axes.plot(steps, rewards, color=FAINT, linewidth=1, label=f"training, each step ({sampled})")
    label = f"training, mean of {WINDOW} steps"
    axes.plot(steps, _means(rewards), color=FULL, linewidth=2, label=label)
    steps, rewards = _points(evaluations, "reward")
    if steps:
        label = f"held-out problems ({_how(drawn.held_out_temperature)})"
        axes.plot(steps, rewards, color=JUDGED, marker="o", linewidth=1.5, label=label)
    axes.set(title=drawn.title, xlabel="train step", ylabel="mean reward")
    axes.locator_params(axis="x", integer=True)


def _panels(metrics: Rows) -> dict[str, dict[str, str]]:
    """Title -> the lines of a panel: their labels by key of metrics.jsonl. None in a run's first
    steps."""
    if len(metrics) < FEWEST_STEPS:
        return {}
    known = dict.fromkeys([*metrics[0], *metrics[-1]])
    functions = [key for key in known if key.startswith("rewards/") and key.endswith("/mean")]
    panels = {}
    if LENGTH in known:
        panels["completion length (tokens)"] = {LENGTH: "mean", LONGEST: "longest"}
    if ENTROPY in known:
        panels["entropy (nats per token)"] = {ENTROPY: ""}
    if len(functions) > 1:
        shown = {key: key.split("/", 1)[1].removesuffix("/mean") for key in functions}
        panels["each reward function"] = dict(list(shown.items())[:MOST_FUNCTIONS])
    return panels


def _draw_panel(axes: Axes, title: str, metrics: Rows, lines: Mapping[str, str]) -> None:
    for key, label in lines.items():
        steps, values = _points(metrics, key)
        axes.plot(steps, _means(values), linewidth=1.5, label=label[:24])
    axes.set_title(title, fontsize="small")
    axes.tick_params(labelsize="x-small")
    if any(lines.values()):
        axes.legend(loc="best", fontsize="x-small", framealpha=0.6)


def _mark(axes: Axes, drawn: Drawn, *, named: bool) -> None:
    """Mark a fork's first step, and the steps from which on other reward functions score."""
    if drawn.forked is not None:
        parent, step = drawn.forked
        label = f"fork of {parent[:32]} after step {step}" if named else None
        axes.axvline(step, color="#6a51a3", linestyle="--", linewidth=1, label=label)
    for place, step in enumerate(drawn.changed):
        label = "other reward functions" if named and place == 0 else None
        axes.axvline(step, color="#636363", linestyle=":", linewidth=1, label=label)


def _points(rows: Rows, key: str) -> tuple[list[int], list[float]]:
    found = [(row["step"], row[key]) for row in rows if row.get(key) is not None]
    return [step for step, _ in found], [value for _, value in found]


def _means(values: Sequence[float]) -> list[float]:
    """Running means of up to `WINDOW` values."""
    return [
        sum(values[max(0, end - WINDOW) : end]) / min(WINDOW, end)
        for end in range(1, len(values) + 1)
    ]


def _in_few_colours(figure: Any) -> bytes:
    """The picture in few colours, at a third of its size, because reports contain it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    canvas: Any = FigureCanvasAgg(figure)  # whose methods have no types
    canvas.draw()
    small = io.BytesIO()
    pixels = Image.frombuffer("RGBA", canvas.get_width_height(), canvas.buffer_rgba())
    pixels.convert("RGB").quantize(NUM_COLOURS).save(small, format="png")
    return small.getvalue()


def _how(temperature: float) -> str:
    """How completions were chosen."""
    return f"sampled, temperature {temperature:g}" if temperature else "greedy, temperature 0"
