"""Draws the curves of a run: its rewards and, below them, statistics of its completions."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mortal_steps.runs.manifest import learns_without_rewards

if TYPE_CHECKING:  # slow to import, and needed now and then
    from matplotlib.axes import Axes

Rows = Sequence[Mapping[str, Any]]

WINDOW = 10
"""Steps that the running mean covers."""
NUM_COLOURS = 64
"""Colours of the picture, which makes it a third as large: reports contain it."""
FEWEST_STEPS = 10
"""Steps from which on a curve of lengths or entropy is drawn."""
MOST_FUNCTIONS = 6
"""Lines in the panel of reward functions, and of named sets; a run may have any number of them."""
FAINT, FULL, JUDGED = "#9ecae1", "#08519c", "#d94801"
LENGTH, LONGEST, ENTROPY = "completions/mean_length", "completions/max_length", "entropy"


def reward_curve(title: str, metrics: Rows, evaluations: Rows) -> bytes:
    """Draw a PNG of the reward per step, its running mean, and the held-out reward; below them a
    panel each for the length of completions, for the entropy, and for the functions where there are
    more than one. Where nothing was scored there is no point."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image

    panels = _panels(metrics)
    figure = Figure(figsize=(8.0, 6.5 if panels else 4.5), dpi=110, layout="constrained")
    canvas: Any = FigureCanvasAgg(figure)
    rows: Any = figure.subfigures(2, 1, height_ratios=[9, 4]) if panels else [figure]
    _draw_rewards(rows[0].subplots(), title, metrics, evaluations)
    if panels:
        below = rows[1].subplots(1, len(panels), squeeze=False)[0]
        for axes, (name, lines) in zip(below, panels.items(), strict=True):
            _draw_panel(axes, name, metrics, lines)
    canvas.draw()  # `savefig` would draw twice, and compress what is compressed anew
    picture = Image.frombuffer("RGBA", canvas.get_width_height(), canvas.buffer_rgba())
    small = io.BytesIO()
    picture.convert("RGB").quantize(NUM_COLOURS).save(small, format="png")
    return small.getvalue()


def _draw_rewards(axes: Axes, title: str, metrics: Rows, evaluations: Rows) -> None:
    """Draw rewards, or losses where rows of a dataset are learned."""
    merit = "loss" if learns_without_rewards(metrics[-1]) else "reward"
    judged = "reward" if any("reward" in row for row in evaluations) else merit
    steps, rewards = points(metrics, merit)
    axes.plot(steps, rewards, color=FAINT, linewidth=1, label="training, each step")
    label = f"training, mean of {WINDOW} steps"
    axes.plot(steps, means(rewards), color=FULL, linewidth=2, label=label)
    # Who learns without rewards may be judged by them, which are no losses.
    beside = axes if judged == merit or not evaluations else axes.twinx()
    _draw_held_out(beside, evaluations, judged)
    axes.set(title=title, xlabel="train step", ylabel=f"mean {merit}")
    axes.locator_params(axis="x", integer=True)
    axes.grid(alpha=0.3)
    if beside is axes:
        axes.legend(loc="best", fontsize="small")
    else:
        beside.set_ylabel(f"held-out {judged}")
        drawn = [*axes.get_lines(), *beside.get_lines()]
        beside.legend(handles=drawn, loc="best", fontsize="small")


def _draw_held_out(axes: Axes, evaluations: Rows, judged: str) -> None:
    steps, rewards = points(evaluations, judged)
    if steps:
        label = f"held-out {'problems' if judged == 'reward' else 'rows'}"
        axes.plot(steps, rewards, color=JUDGED, marker="o", linewidth=1.5, label=label)
    for key in _of_sets(evaluations):
        steps, rewards = points(evaluations, key)
        label = f"held-out {key.removeprefix('eval_').removesuffix('_reward')}"
        axes.plot(steps, rewards, marker=".", linewidth=1, linestyle=":", label=label)


def _of_sets(evaluations: Rows) -> list[str]:
    """Return the columns with the rewards of the named sets."""
    known = dict.fromkeys(key for row in evaluations for key in row)
    named = [key for key in known if key.startswith("eval_") and key.endswith("_reward")]
    return named[:MOST_FUNCTIONS]


def _panels(metrics: Rows) -> dict[str, dict[str, str]]:
    """Return each panel's lines by title: labels by key. None in the first steps."""
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
        steps, values = points(metrics, key)
        axes.plot(steps, means(values), linewidth=1.5, label=label[:24])
    axes.set_title(title, fontsize="small")
    axes.tick_params(labelsize="x-small")
    axes.grid(alpha=0.3)
    if any(lines.values()):
        axes.legend(loc="best", fontsize="x-small", framealpha=0.6)


def points(rows: Rows, key: str) -> tuple[list[int], list[float]]:
    found = [(row["step"], row[key]) for row in rows if row.get(key) is not None]
    return [step for step, _ in found], [value for _, value in found]


def means(values: Sequence[float]) -> list[float]:
    return [
        sum(values[max(0, end - WINDOW) : end]) / min(WINDOW, end)
        for end in range(1, len(values) + 1)
    ]
