"""The reward curve as a picture."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

WINDOW = 10
"""Steps of the running mean."""
NUM_COLOURS = 48
"""Of a picture with three lines and their soft edges."""


def reward_curve(
    title: str,
    metrics: Sequence[Mapping[str, Any]],
    evaluations: Sequence[Mapping[str, Any]],
    *,
    training_temperature: float,
    held_out_temperature: float,
) -> bytes:
    """A PNG of the reward per step, its running mean, and the held-out reward.

    Where nothing was scored there is no point. The temperatures tell the two apart: greedy rewards
    are not those of what is sampled.
    """
    from matplotlib.figure import Figure  # slow to import, and needed now and then

    figure = Figure(figsize=(8, 4.5), dpi=110)
    axes = figure.add_axes((0.08, 0.11, 0.9, 0.81))  # a layout engine would draw all of it twice
    scored = [row for row in metrics if row["reward"] is not None]
    steps = [row["step"] for row in scored]
    rewards = [row["reward"] for row in scored]
    means = [
        sum(rewards[max(0, i - WINDOW + 1) : i + 1]) / min(WINDOW, i + 1)
        for i in range(len(rewards))
    ]
    axes.plot(
        steps,
        rewards,
        color="#9ecae1",
        linewidth=1,
        label=f"training, each step ({_drawn(training_temperature)})",
    )
    axes.plot(steps, means, color="#08519c", linewidth=2, label=f"training, mean of {WINDOW} steps")
    judged = [row for row in evaluations if "reward" in row]
    if judged:
        axes.plot(
            [row["step"] for row in judged],
            [row["reward"] for row in judged],
            color="#d94801",
            marker="o",
            linewidth=1.5,
            label=f"held-out problems ({_drawn(held_out_temperature)})",
        )
    axes.set(title=title, xlabel="train step", ylabel="mean reward")
    axes.grid(alpha=0.3)
    axes.legend(loc="best")
    return _in_few_colours(figure)


def _in_few_colours(figure: Any) -> bytes:
    """The picture in few colours, at a third of its size: it travels inside of reports."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    canvas: Any = FigureCanvasAgg(figure)  # whose methods have no types
    canvas.draw()
    small = io.BytesIO()
    pixels = Image.frombuffer("RGBA", canvas.get_width_height(), canvas.buffer_rgba())
    pixels.convert("RGB").quantize(NUM_COLOURS).save(small, format="png")
    return small.getvalue()


def _drawn(temperature: float) -> str:
    """How completions were chosen."""
    return f"sampled, temperature {temperature:g}" if temperature else "greedy, temperature 0"
